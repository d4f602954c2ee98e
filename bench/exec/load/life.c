// Lives for about a millisecond, the loader and the kernel's part included.

volatile unsigned sink;

int main(void)
{
	for (unsigned i = 0; i < 300000; i++)
		sink += i;
	return 0;
}
