// Package debuginfo finds the files that tell more about an identity, and keeps what
// was made of them: the file itself, the debug file that was split from it, and the
// index that was prepared from both.
//
// A Finder looks at the places of Order, one after another. Names prove nothing:
// whatever is found has its own build ID read, from the opened file, before it is used.
// Only where a debug file has none at all, the checksum in the .gnu_debuglink that led
// to it decides.
//
// Indexes are a directory of prepared indexes, shared by all processes of a user, and a
// Library is both together: it answers from an index where there is one that is as good
// as the files, from the files else, and makes the index where that pays.
package debuginfo
