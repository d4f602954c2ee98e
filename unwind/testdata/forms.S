# Call frame instructions that people write, and some that nobody does.
	.text
	.globl	plain
	.type	plain, @function
plain:
	.cfi_startproc
	push	%rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbp, 0
	mov	%rsp, %rbp
	.cfi_def_cfa_register rbp
	.cfi_remember_state
	pop	%rbp
	.cfi_def_cfa rsp, 8
	.cfi_restore rbp
	ret
	.cfi_restore_state
	nop
	.cfi_undefined rbx
	nop
	.cfi_same_value rbx
	nop
	.cfi_register rbx, r9
	nop
	.cfi_val_offset rbx, -24
	nop
	.cfi_escape 0x10,0x03,0x02,0x23,0x04	# rbx: at CFA + 4, no multiple of 8
	nop
	.cfi_escape 0x10,0x03,0x02,0x23,0x08	# rbx: at CFA + 8
	nop
	.cfi_offset rbx, -2000		# too far
	nop
	.cfi_endproc

	.globl	openssl
openssl:
	.cfi_startproc
	mov	%rsp, %rax
	.cfi_def_cfa_register rax
	push	%rbx
	.cfi_offset rbx, -16
	sub	$72, %rsp
	mov	%rax, 24(%rsp)
	.cfi_escape 0x0f,0x05,0x77,0x18,0x06,0x23,0x08	# def_cfa_expression breg7 24, deref, plus_uconst 8
	nop
	.cfi_escape 0x0f,0x04,0x77,0x18,0x06,0x96	# the same with a nop, and without the 8
	nop
	.cfi_escape 0x0f,0x05,0x77,0x18,0x06,0x23,0x07	# no multiple of 8
	nop
	.cfi_escape 0x0f,0x03,0x77,0x18,0x1f		# neg
	nop
	.cfi_def_cfa rsp, 8
	ret
	.cfi_endproc

	.globl	link
link:
	.cfi_startproc
	pop	%r11
	.cfi_def_cfa rsp, 0
	.cfi_register rip, r11
	nop
	jmp	*%r11
	.cfi_endproc

	.globl	switches		# another stack
switches:
	.cfi_startproc
	nop
	.cfi_val_offset rsp, -16
	nop
	.cfi_val_offset rsp, 0
	nop
	.cfi_def_cfa_register rbx
	nop
	.cfi_endproc

	.globl	entry
entry:
	.cfi_startproc
	.cfi_undefined rip
	nop
	call	plain
	hlt
	.cfi_endproc

	.globl	realign
realign:
	.cfi_startproc
	lea	8(%rsp), %r10
	.cfi_def_cfa r10, 0
	and	$-32, %rsp
	push	-8(%r10)
	push	%rbp
	.cfi_escape 0x10,0x6,0x2,0x76,0		# rbp: breg6 0
	mov	%rsp, %rbp
	push	%r12
	push	%r10
	.cfi_escape 0x0f,0x03,0x76,0x70,0x06	# CFA: breg6 -16, deref
	.cfi_escape 0x10,0xc,0x2,0x76,0x78	# r12: breg6 -8
	.cfi_escape 0x10,0xd,0x2,0x77,0x78	# r13: breg7 -8: another register
	nop
	.cfi_offset rbx, -32
	nop
	.cfi_endproc

	.section .note.GNU-stack,"",@progbits
