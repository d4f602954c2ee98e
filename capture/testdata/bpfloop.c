// Loads a BPF program of many instructions, called hallmark_loop, and has the kernel
// run it for the number of milliseconds in its first argument.
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LENGTH = 3000 };

static long bpf(int command, union bpf_attr *attr) {
	return syscall(SYS_bpf, command, attr, sizeof *attr);
}

int main(int argc, char **argv) {
	static struct bpf_insn code[LENGTH + 2];
	code[0] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K};
	for (int i = 1; i <= LENGTH; i++)
		code[i] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MUL | BPF_K, .imm = 31};
	code[LENGTH + 1] = (struct bpf_insn){.code = BPF_JMP | BPF_EXIT};
	union bpf_attr load = {
		.prog_type = BPF_PROG_TYPE_SOCKET_FILTER,
		.insns = (unsigned long)code,
		.insn_cnt = LENGTH + 2,
		.license = (unsigned long)"GPL",
		.prog_name = "hallmark_loop",
	};
	int program = bpf(BPF_PROG_LOAD, &load);
	if (program < 0) {
		perror("loading a BPF program");
		return 1;
	}
	char packet[64] = {0};
	union bpf_attr run = {.test = {
		.prog_fd = program,
		.data_in = (unsigned long)packet,
		.data_size_in = sizeof packet,
		.repeat = 10000,
	}};
	clock_t end = clock() + atol(argv[1]) * (CLOCKS_PER_SEC / 1000);
	while (clock() < end)
		if (bpf(BPF_PROG_TEST_RUN, &run)) {
			perror("running a BPF program");
			return 1;
		}
	return 0;
}
