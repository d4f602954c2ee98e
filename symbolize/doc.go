// Package symbolize gives functions and lines to the frames in text that say which
// file they are from and where in it: logs, crash reports, output of perf script,
// folded stacks.
//
// A Filter copies text and rewrites the frames that it knows, each in the way in which
// the program that wrote it would have done so itself. Everything else stays as it is,
// byte for byte. It knows:
//
//   - the stacks of sanitizers and of LLVM's tools, and LLVM's symbolizer markup
//   - tombstones and logcat of Android
//   - backtrace_symbols(3) of glibc and musl
//   - the stacks of systemd-coredump, as in the journal, and of eu-stack
//   - the kernel's oopses, warnings and stacks, and what it logs of a process that crashes
//   - backtraces of gdb, with the mappings that it printed before
//   - stacks of BPF with build IDs, as bpftrace and Inspektor Gadget print them
//   - perf script
//   - folded stacks
//   - anything with a build ID and an offset, see the dialects for the forms
//
// # Which file
//
// A build ID in the text is the truth: only a file that has it answers, wherever it is.
// Text with a path alone proves nothing of the file that is there now. Such
// frames stay as they are, unless the caller vouches for the file (Filter.Binaries) or
// for all paths (Filter.TrustPaths).
//
// # Which instruction
//
// An address on a stack is mostly a return address: behind the call, and often on
// another line. Programs differ in whether they print it so or print the call; each
// dialect says what its programs do.
//
// Rust's and Go's own traces have addresses of the process and no file. Go's have lines
// in any case; of Rust's nothing can be known where they have none.
package symbolize
