// Package procmap returns which files and memory a process of this machine has mapped, and where.
//
// A [Process] answers for one address space: which VMA holds an address
// ([Process.Find], [Process.Translate]), what all of them are ([Process.All]),
// which file is behind one ([Process.OpenFile]) and what identity that file has
// ([Process.Identity]). [Process.Locate] answers for a batch of addresses with all of it: identity,
// offset, file, or the reason why there is none.
//
// There are two ways to the same facts. The text of /proc/PID/maps is as old as
// Linux; to find one address it must be read up to there. The PROCMAP_QUERY
// ioctl on that file (Linux 6.11, include/uapi/linux/fs.h) looks up a single
// address. Both give equal VMAs. The package takes the ioctl where the kernel has
// it: it is much faster for single addresses and for batches of them, and about as
// fast for all VMAs.
//
// Processes map mostly the same files. A program that looks at many processes opens them
// with one [Files], which remembers identities on the file systems that allow it.
//
// The path to open is not the path to show. [VMA.Name] is what the kernel prints,
// seen from wherever the reader is; the file at that path may be another one, in
// another mount namespace, replaced, or gone. OpenFile only returns a file that
// is proven to be the mapped one.
//
// A program calls launch.ExecWhenReady first in main, so that a helper process can look at files on
// FUSE and networks. Without that call these files have the reason FileUnresponsive.
package procmap
