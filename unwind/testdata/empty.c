void empty(void) {}
