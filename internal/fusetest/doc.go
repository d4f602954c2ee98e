// Package fusetest mounts file systems whose server tests control: it can keep attributes in
// the kernel's caches, change files behind the kernel's back, stop answering, and die.
//
// The server passes a flat directory of regular files through, as sshfs does with a directory
// of another machine. It is a process of its own, because the kernel stops who waits for it
// where Go's scheduler does not know (page faults, vfork): a server in the process of the test
// would wait for itself. The process is the test's own executable, which [init] of this package
// turns into a server.
//
// No mount outlives its test. The server ends when the test's process does, however that ends,
// takes the mount away, and with the last descriptor of its connection the kernel ends all
// requests that nobody answered.
//
// The protocol is in include/uapi/linux/fuse.h of the kernel.
package fusetest
