# Assembler with what compilers rarely write: call frame information by registers that
# are no frame pointers, by an expression, after pushes in the midst of the code, and with
# states that are remembered.
	.text
	.globl by_rbx
	.type by_rbx, @function
by_rbx:
	.cfi_startproc
	push %rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbx, 0
	mov %rsp, %rbx
	.cfi_def_cfa_register rbx
	sub $200, %rsp
	and $-64, %rsp
	mov $300, %ecx
1:	push %rcx
	dec %ecx
	pop %rax
	jnz 1b
	call in_c
	mov %rbx, %rsp
	.cfi_def_cfa_register rsp
	pop %rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbx
	ret
	.cfi_endproc
	.size by_rbx, .-by_rbx

	.globl by_memory
	.type by_memory, @function
by_memory: # the CFA is what lies at rsp+48, plus 8
	.cfi_startproc
	mov %rsp, %rax
	.cfi_def_cfa_register rax
	sub $128, %rsp
	and $-64, %rsp
	mov %rax, 48(%rsp)
	.cfi_escape 0x0f, 0x06, 0x77, 0x30, 0x06, 0x23, 0x08, 0x96
	mov $300, %ecx
1:	imul %rcx, %rdx
	dec %ecx
	jnz 1b
	call in_c
	mov 48(%rsp), %rsi
	.cfi_def_cfa rsi, 8
	mov %rsi, %rsp
	.cfi_def_cfa_register rsp
	ret
	.cfi_endproc
	.size by_memory, .-by_memory

	.globl two_ways
	.type two_ways, @function
two_ways:
	.cfi_startproc
	push %r12
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r12, 0
	push %r15
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r15, 0
	sub $40, %rsp
	.cfi_adjust_cfa_offset 40
	mov $100, %r12d
1:	call in_c
	dec %r12d
	test $3, %r12d
	jz 2f
	mov %r12, %r15
	jmp 1b
2:	.cfi_remember_state
	test %r12d, %r12d
	jnz 1b
	add $40, %rsp
	.cfi_adjust_cfa_offset -40
	pop %r15
	.cfi_adjust_cfa_offset -8
	.cfi_restore r15
	pop %r12
	.cfi_adjust_cfa_offset -8
	.cfi_restore r12
	ret
	.cfi_restore_state
	ud2
	.cfi_endproc
	.size two_ways, .-two_ways
	.section .note.GNU-stack,"",@progbits
