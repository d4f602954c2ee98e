// What elfutils finds: stacks from copies of registers and stack memory. On standard
// input, in the machine's byte order:
//
//   'M', u64 number, then for each file: u64 bias, u64 length of the path, the path:
//        the files of the process that the samples which follow are of
//   'S', 17 × u64 registers by DWARF numbers (the last is the instruction pointer),
//        u64 bytes of stack, the stack, which begins at the stack pointer
//
// For every sample it prints a line: for each frame the address in hexadecimal, with '!'
// behind it where execution stood there and it is no return address.
#include <elfutils/libdwfl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t regs[17], size;
static unsigned char *stack;

static uint64_t number(void)
{
	uint64_t n;
	if (fread(&n, 8, 1, stdin) != 1)
		exit(2);
	return n;
}

static pid_t next_thread(Dwfl *d, void *arg, void **thread_arg)
{
	(void)d, (void)arg;
	if (*thread_arg)
		return 0;
	*thread_arg = regs;
	return getpid();
}

static bool get_thread(Dwfl *d, pid_t tid, void *arg, void **thread_arg)
{
	(void)d, (void)tid, (void)arg;
	*thread_arg = regs;
	return true;
}

static bool memory_read(Dwfl *d, Dwarf_Addr at, Dwarf_Word *result, void *arg)
{
	(void)d, (void)arg;
	uint64_t off = at - regs[7];
	if (off > size || size - off < 8)
		return false;
	memcpy(result, stack + off, 8);
	return true;
}

static bool set_registers(Dwfl_Thread *t, void *arg)
{
	(void)arg;
	dwfl_thread_state_register_pc(t, regs[16]);
	return dwfl_thread_state_registers(t, 0, 17, regs);
}

static const Dwfl_Thread_Callbacks threads = {
	.next_thread = next_thread, .get_thread = get_thread, .memory_read = memory_read, .set_initial_registers = set_registers,
};

static int no_debuginfo(Dwfl_Module *m, void **u, const char *n, Dwarf_Addr b, const char *f, const char *l, GElf_Word crc, char **name)
{
	(void)m, (void)u, (void)n, (void)b, (void)f, (void)l, (void)crc, (void)name;
	return -1;
}

static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_build_id_find_elf, .find_debuginfo = no_debuginfo};

static int frame(Dwfl_Frame *f, void *arg)
{
	(void)arg;
	Dwarf_Addr pc;
	bool exact;
	if (!dwfl_frame_pc(f, &pc, &exact))
		return DWARF_CB_ABORT;
	printf("%" PRIx64 "%s ", pc, exact ? "!" : "");
	return DWARF_CB_OK;
}

static Dwfl *files(Dwfl *old)
{
	if (old)
		dwfl_end(old);
	Dwfl *d = dwfl_begin(&callbacks);
	dwfl_report_begin(d);
	for (uint64_t n = number(); n > 0; n--) {
		uint64_t bias = number(), length = number();
		char *path = calloc(1, length + 1);
		if (fread(path, 1, length, stdin) != length)
			exit(2);
		if (!dwfl_report_elf(d, path, path, -1, bias, true))
			fprintf(stderr, "%s at %" PRIx64 ": %s\n", path, bias, dwfl_errmsg(-1));
		free(path);
	}
	dwfl_report_end(d, NULL, NULL);
	return d;
}

static void sample(Dwfl **d, bool fresh)
{
	for (int i = 0; i < 17; i++)
		regs[i] = number();
	size = number();
	stack = realloc(stack, size + 1);
	if (fread(stack, 1, size, stdin) != size)
		exit(2);
	if (fresh && !dwfl_attach_state(*d, NULL, getpid(), &threads, NULL))
		fprintf(stderr, "attach: %s\n", dwfl_errmsg(-1));
	dwfl_getthread_frames(*d, getpid(), frame, NULL);
	putchar('\n');
}

int main(void)
{
	Dwfl *d = NULL;
	bool fresh = false;
	for (int c; (c = getchar()) != EOF;)
		if (c == 'M') {
			d = files(d);
			fresh = true;
		} else if (c == 'S') {
			sample(&d, fresh);
			fresh = false;
		}
	return 0;
}
