package bpf

import "hallmark/unwind"

// stackPointer is the register that is one.
const stackPointer = unwind.SP
