package debuginfo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strconv"
	"strings"

	"hallmark/buildid"
	"hallmark/internal/trust"
	"hallmark/symbol"
)

// An Origin says of which file an index was made. It is kept in the index.
type Origin struct {
	ID      buildid.ID
	Content buildid.Content // zero if it is not known
	Author  Author
	// Witness distinguishes a file of AuthorNamed or AuthorOthers from all others, "" where it is
	// not known.
	Witness string
	Path    string // of the file, to show
}

// An Author says whose word an index is: who can have written the file.
type Author string

// The authors.
const (
	AuthorRoot   Author = "root"   // root alone can have written the file
	AuthorOwn    Author = "own"    // the user himself and root
	AuthorNamed  Author = "named"  // others, and the user asked for the index
	AuthorOthers Author = "others" // others, and nobody asked: it answers for that very file
)

// FromKernel is the origin, as symbol.IndexOptions want it, of an index that is made of what
// the running kernel reports.
var FromKernel = Origin{Author: AuthorRoot, Path: "/proc/kallsyms"}.String()

// String returns what an index keeps, without the identity.
func (o Origin) String() string {
	return "content=" + o.Content.String() + " author=" + string(o.Author) + " witness=" + o.Witness + " path=" + strconv.Quote(o.Path)
}

// OriginOf returns the origin of an index. It is zero but for the identity where the index
// does not say it, or says it in another way.
func OriginOf(x *symbol.Index) Origin {
	id, err := buildid.Parse(x.Identity())
	if err != nil {
		return Origin{}
	}
	o, ok := parseOrigin(x.Origin())
	if !ok {
		return Origin{ID: id}
	}
	o.ID = id
	return o
}

func parseOrigin(text string) (o Origin, ok bool) {
	text, ok = strings.CutPrefix(text, "content=")
	if !ok {
		return Origin{}, false
	}
	content, text, _ := strings.Cut(text, " author=")
	author, text, _ := strings.Cut(text, " witness=")
	witness, path, _ := strings.Cut(text, " path=")
	if o.Content.UnmarshalText([]byte(content)) != nil {
		return Origin{}, false
	}
	o.Author, o.Witness = Author(author), witness
	path, err := strconv.Unquote(path)
	o.Path = path
	switch o.Author {
	case AuthorRoot, AuthorOwn, AuthorNamed, AuthorOthers:
		return o, err == nil
	}
	return Origin{}, false
}

// names returns what names of files have behind the identity: the content, and what distinguishes a
// file of others apart.
func (o Origin) names() []string {
	names := []string{"unknown"}
	if !o.Content.IsZero() {
		names[0] = o.Content.String()
	}
	if o.Author == AuthorRoot || o.Author == AuthorOwn {
		return names
	}
	sum := sha256.Sum256([]byte(o.Witness))
	return append(names, hex.EncodeToString(sum[:8]))
}

// rank says how far an index is believed for a file that is not there.
func (o Origin) rank() rank {
	switch o.Author {
	case AuthorRoot:
		return rankRoot
	case AuthorOwn:
		return rankOwn
	case AuthorNamed:
		return rankNamed
	}
	return rankOthers
}

// isOf reports whether an index was made of this very file.
func (o Origin) isOf(file *symbol.File) bool {
	return file != nil && o.Witness != "" && o.Witness == witness(file)
}

// originOf returns the origin of an index to be made of a file. The user has asked for it if
// asked.
func originOf(ctx context.Context, id buildid.ID, f *found, asked bool) Origin {
	o := Origin{ID: id, Content: f.content, Path: absolute(f.file.Name()), Witness: witness(f.file)}
	if o.Content.IsZero() && hasCode(f.file) {
		o.Content = contentOf(ctx, f.file)
	}
	unknown := o.Content.IsZero() && hasCode(f.file) // there is too much of it: only this very file is known
	level := f.program().level
	switch {
	case level == trust.Root && !unknown:
		o.Author, o.Witness = AuthorRoot, ""
	case level == trust.Own && !unknown:
		o.Author, o.Witness = AuthorOwn, ""
	case asked:
		o.Author = AuthorNamed
	default:
		o.Author = AuthorOthers
	}
	o.Path = filepath.Clean(o.Path)
	return o
}
