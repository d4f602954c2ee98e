package unwind

// Version is that of what Build makes: whoever keeps tables must not use those of another
// version. It is raised whenever the same file gets another table.
//
//	1  until tables knew their version: V8's builtins and Go's pclntab came in it
//	2  the first that is checked by what is built
//	3  saved registers at the frame pointer, followed functions, stacks of Go's scheduler
//	4  where Go grows stacks, and where its scheduler's begin
const Version = 4
