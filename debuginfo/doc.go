// Package debuginfo finds the files of an identity: the file itself and the debug file
// that was split from it. It keeps the indexes that were prepared from them.
//
// A Finder looks at the places of Order, one after another. Names prove nothing:
// whatever is found has its own build ID read, from the opened file, before it is used.
// Only where a debug file has none at all, the checksum in the .gnu_debuglink that led
// to it decides.
//
// Build IDs prove little: they are claims of the files. Where the content of the file is
// known, only a file of that content counts. Where it is not, a file counts
// if only this user and root can have written it, or if the user has named it. Another
// user's program counts only at one of Query.Paths, outside of directories that everybody can write.
// Several contents that are believed
// equally are no answer. The
// names in such a file count only for programs of the same owner.
//
// Indexes are a directory of prepared indexes, shared by all processes of a user, and a
// Library is both together: it answers from an index where there is one that is as good
// as the files, from the files else, and makes the index where that pays.
package debuginfo
