/* Works below 60 frames of 100 bytes and more. */
volatile int sink;

__attribute__((noinline)) void work(void)
{
	for (int i = 0; i < 1000000; i++)
		sink += i;
}

__attribute__((noinline)) int deep(int n)
{
	volatile char room[64];

	room[n % 64] = n;
	if (n > 0)
		sink += deep(n - 1);
	else
		work();
	return room[n % 64];
}

int main(void)
{
	for (;;)
		sink += deep(60);
}
