package cli

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"hallmark/buildid"
	"hallmark/internal/regular"
	"hallmark/internal/trust"
)

// neighbours read files that are named one after the other, many of which are in one directory. That directory
// is open, as a place, while its files are read: each costs less then.
type neighbours struct {
	path string // of the directory, with the slash at its end
	dir  int    // the directory where it is open, else -1
	seen bool   // whether opening it was tried
}

// read is buildid.ReadFileContext. The name that is next, "" for none, says whether to open the directory.
func (n *neighbours) read(ctx context.Context, name, next string) (buildid.Info, error) {
	if path := dirOf(name); path != n.path || !n.seen {
		n.close()
		n.path, n.seen = path, next != "" && dirOf(next) == path
		if n.seen {
			n.dir = openTrue(path)
		}
	}
	if n.dir < 0 {
		return buildid.ReadFileContext(ctx, name)
	}
	info, err := buildid.ReadEntryContext(ctx, n.dir, name)
	if errors.Is(err, syscall.EMFILE) {
		n.close() // it or the mounts may have the last descriptor
		trust.ForgetMounts()
		return buildid.ReadFileContext(ctx, name)
	}
	return info, err
}

// dirOf returns the part of a name that leads to the directory, with the slash at its end.
func dirOf(name string) string { return name[:strings.LastIndexByte(name, '/')+1] }

// openTrue opens a directory as a place, if its mount shows who owns its files, and others cannot change it. Else
// it returns -1: a file costs no less then.
func openTrue(path string) int {
	if path == "" {
		path = "."
	}
	dir, err := syscall.Open(path, regular.OPath|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	// The other way round a server of the file system could make us wait, which the files' own names did not.
	if !trust.TrueOwners(dir) || !regular.OpensEntries(dir) {
		syscall.Close(dir)
		return -1
	}
	return dir
}

func (n *neighbours) close() {
	if n.dir >= 0 {
		syscall.Close(n.dir)
	}
	n.dir = -1
}
