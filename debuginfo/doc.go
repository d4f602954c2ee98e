// Package debuginfo finds the files that tell more about an identity, and keeps what
// was made of them: the file itself, the debug file that was split from it, and the
// index that was prepared from both.
//
// A Finder looks at the places of Order, one after another. Names prove nothing:
// whatever is found has its own build ID read, from the opened file, before it is used.
// Only where a debug file has none at all, the checksum in the .gnu_debuglink that led
// to it decides.
//
// Build IDs prove little: they are claims of the files. Where the content of the file is
// known, only a file of that content counts. Where it is not, a file that others than this
// user and root can have written counts only at the path that the question has, or if the
// user has named it; and several contents that are believed equally are no answer. What
// such a file says never names the code of a file with another owner.
//
// Indexes are a directory of prepared indexes, shared by all processes of a user, and a
// Library is both together: it answers from an index where there is one that is as good
// as the files, from the files else, and makes the index where that pays.
package debuginfo
