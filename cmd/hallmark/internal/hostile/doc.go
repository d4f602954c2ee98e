// Package hostile attacks the command with inputs that somebody made to harm whoever reads
// them: every verb with every kind of file that it reads. It has tests alone.
//
// The command runs as a child, built without the race detector. A run passes when its peak of
// memory is at most 512 MiB and ten times its input, it executes at most 200 million statements and
// 60 for each byte of input, uncompressed, it does not crash, a terminal gets no control characters,
// nothing is opened that is no regular file, and nothing is written but what the command line asks
// for. Statements are counted as go build -cover does it: time depends on the machine.
//
// The server is attacked while it runs: it has to answer afterwards, to end well, and to bring no
// file of the machine. What is sent to it counts as its input.
//
// The short form runs one command for each input, and HALLMARK_THOROUGH=1 all commands.
// HALLMARK_COMMAND=FILE attacks another build, whose statements count where it was built to count.
package hostile
