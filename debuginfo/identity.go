package debuginfo

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"hallmark/buildid"
	"hallmark/internal/contentcache"
	"hallmark/symbol"
)

// Identify returns the identity of an open file. An error that wraps buildid.ErrFormat
// names the file and the offset of the damage which leaves the identity unknown. The file
// is of use all the same: debug files often keep note segments that lead nowhere, beside
// sections that are sound.
func Identify(file *symbol.File) (buildid.ID, error) {
	info, err := read(file.Reader())
	var damage *buildid.FormatError
	if errors.As(err, &damage) {
		damage.Name = file.Name()
	}
	return info.ID, err
}

// read reads the identity of a file, whose content may be known already.
func read(r io.ReaderAt) (buildid.Info, error) {
	if f, ok := r.(*os.File); ok {
		return contentcache.Read(hashing(), f)
	}
	return buildid.ReadContext(hashing(), r)
}

// hashing bounds how much code of files without build IDs is hashed: profiles and links of
// somebody else may lead to any file.
var hashing = sync.OnceValue(func() context.Context {
	return buildid.WithBudget(context.Background(), buildid.Budget{Bytes: 16 << 30, Second: 64 << 20})
})

// identifyIfKnown is Identify, except that an unknown identity is the zero one and no
// error.
func identifyIfKnown(file *symbol.File) (buildid.ID, error) {
	id, err := Identify(file)
	if errors.Is(err, buildid.ErrFormat) {
		return buildid.ID{}, nil
	}
	return id, err
}
