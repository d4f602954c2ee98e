package debuginfo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"hallmark/buildid"
	"hallmark/internal/contentcache"
	"hallmark/internal/trust"
	"hallmark/symbol"
)

// A belief says whose word a file is: its build ID and its names are claims.
type belief struct {
	level trust.Level
	// named says that the user who asks has named the file, or the directory that it is in.
	named bool
	// owner and device are those of the file, if hasOwner.
	owner    uint32
	device   uint64
	hasOwner bool
	// isOwn says that this user or root has the file, and nobody else may write it. On a file
	// system that shows the owners that it likes, that means nothing.
	isOwn bool
}

// beliefOf returns whose word an open file is.
func beliefOf(file *symbol.File, named bool) belief {
	b := belief{named: named}
	f := file.Stored()
	if f == nil {
		return b
	}
	b.level = trust.LevelOf(f, "")
	if st, ok := statOf(f); ok {
		b.owner, b.device, b.hasOwner = st.Uid, st.Dev, true
		b.isOwn = (st.Uid == 0 || st.Uid == uint32(os.Geteuid())) && st.Mode&0o022 == 0
	}
	return b
}

func statOf(f *os.File) (*syscall.Stat_t, bool) {
	info, err := f.Stat()
	if err != nil {
		return nil, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return st, ok
}

// isBelieved reports whether the file may speak for an identity, wherever it lies.
func (b belief) isBelieved() bool { return b.named || b.level != trust.Others }

// mayName reports whether what the file says may name the code of a program. Of a program
// that others can write, its owner may say what he likes; on another file system, which
// shows the owners that it likes, he may not.
func (b belief) mayName(program belief) bool {
	return b.isBelieved() || program.level == trust.Others && program.hasOwner && b.hasOwner &&
		b.owner == program.owner && b.device == program.device
}

// isOfOwner reports whether a file is of the owner of a program.
func (b belief) isOfOwner(program belief) bool {
	return b.hasOwner && program.hasOwner && b.owner == program.owner &&
		(b.device == program.device || b.level != trust.Others && program.level != trust.Others)
}

// isLent reports whether the file may name the code of a program for no other reason than
// that the user named it. That holds for the question at hand, and nothing is kept of it.
func (b belief) isLent(program belief) bool {
	b.named = false
	return !b.mayName(program)
}

// rank orders files that claim one identity by whom to believe.
func (b belief) rank() rank {
	switch b.level {
	case trust.Root:
		return rankRoot
	case trust.Own:
		return rankOwn
	}
	return rankOthers
}

// A rank says how far a claim is believed, beside others of the same identity.
type rank uint8

const (
	rankOthers rank = iota
	rankNamed       // an index that the user had made of a file of others
	rankOwn
	rankRoot
)

// isShared reports whether all users can put a file at a path, such as one in /tmp: it may be
// another user's than the one that was there.
func (f *Finder) isShared(path string) bool {
	for _, name := range f.namesOf(path) {
		for dir := filepath.Dir(name); ; dir = filepath.Dir(dir) {
			st, err := f.view().Stat(dir)
			if err != nil || st.Mode&0o002 != 0 {
				return true
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return false
}

// witness returns what distinguishes a file from all others, and from itself after any change;
// "" where that is not known.
func witness(file *symbol.File) string {
	f := file.Stored()
	if f == nil {
		return ""
	}
	st, ok := statOf(f)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d.%d.%d.%d.%d", st.Dev, st.Ino, st.Size, st.Ctim.Sec, st.Ctim.Nsec)
}

// contentOf returns the content of a file, zero where it has none or is not readable.
func contentOf(ctx context.Context, file *symbol.File) buildid.Content {
	content, err := readContent(ctx, file)
	if err != nil {
		return buildid.Content{}
	}
	return content
}

func readContent(ctx context.Context, file *symbol.File) (buildid.Content, error) {
	if f, ok := file.Reader().(*os.File); ok {
		return contentcache.Of(ctx, f)
	}
	return buildid.ReadContent(ctx, file.Reader())
}

// readMapped is readContent for a file that was executed.
func readMapped(ctx context.Context, file *symbol.File) (buildid.Content, error) {
	if f, ok := file.Reader().(*os.File); ok {
		return contentcache.OfMapped(ctx, f)
	}
	return buildid.ReadMapped(ctx, file.Reader())
}

// fits reports whether a debug file has the program headers of a program, as far as they
// are about code. Tools that split files keep the addresses and sizes of segments in memory
// and not always their places in the file. Kernels are relocated and modules laid out, so
// nothing is compared where one of the two has no segment with code.
func fits(program, debug *symbol.File) bool {
	if program.Relocatable() || debug.Relocatable() {
		return program.Relocatable() == debug.Relocatable()
	}
	one, other := codeSegments(program), codeSegments(debug)
	return len(one) == 0 || len(other) == 0 || slices.Equal(one, other)
}

// codeSegment is what a debug file keeps of a segment.
type codeSegment struct{ virt, size uint64 }

func codeSegments(file *symbol.File) []codeSegment {
	var all []codeSegment
	for _, s := range file.Segments() {
		if s.Executable() && s.MemSize > 0 {
			all = append(all, codeSegment{uint64(s.Virt), s.MemSize})
		}
	}
	slices.SortFunc(all, func(a, b codeSegment) int {
		if a.virt < b.virt {
			return -1
		}
		return 1
	})
	return all
}
