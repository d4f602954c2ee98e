/* Little enough for a .debug_line that is longer than the .debug_info of its unit: with
 * -gsplit-dwarf and -gno-as-loc-support GCC writes the names of files into the former. */
static volatile int sink;

static inline void note(int n) { sink = n * 2 + sink; }

__attribute__((noinline)) int called(int n)
{
	for (int i = 0; i < n; i++)
		note(i);
	return sink;
}

int main(int argc, char **argv)
{
	(void)argv;
	return called(argc);
}
