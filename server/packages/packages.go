// Package packages reads the files in packages of distributions and in archives: .deb, .rpm, tar
// in any compression, and images of containers as tar archives.
//
// All input is doubtful. A reader is bounded in members, in bytes that are unpacked, in the
// ratio of these to what they were unpacked of, and in nesting. Nothing is written anywhere,
// and names of members are values that become no paths.
package packages

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/xi2/xz"
)

// Errors of packages. They arrive wrapped, with the name of the package and of the member.
var (
	// ErrFormat says that something is no package, or a damaged one.
	ErrFormat = errors.New("not a sound package or archive")
	// ErrLimit says that a package has more in it than is read.
	ErrLimit = errors.New("more than is unpacked")
)

// Limits are how much of a package is read. The zero value has those of packages of
// distributions.
type Limits struct {
	Members  int   // 1 million when 0
	Unpacked int64 // bytes, 64 GiB when 0
	Ratio    int64 // unpacked bytes for each byte of the package, beyond 64 MiB; 200 when 0
	Nesting  int   // archives in archives, 2 when 0
}

const freeBytes = 64 << 20 // that are unpacked whatever they are unpacked of

func (l Limits) orDefault() Limits {
	if l.Members == 0 {
		l.Members = 1 << 20
	}
	if l.Unpacked == 0 {
		l.Unpacked = 64 << 30
	}
	if l.Ratio == 0 {
		l.Ratio = 200
	}
	if l.Nesting == 0 {
		l.Nesting = 2
	}
	return l
}

// Meta is what a package says of itself. All of it is a claim.
type Meta struct {
	Name, Version, Architecture string
	Source, SourceVersion       string // of the source package that it was built from
	// BuildIDs are those that the package says are in it, in hexadecimal. Their files are at DebugFiles.
	BuildIDs []string

	links map[string]string // below .build-id, and where they lead to: of rpm
}

// Package returns NAME VERSION ARCHITECTURE, "" where the package does not say them.
func (m *Meta) Package() string {
	return strings.TrimSpace(m.Name + " " + m.Version + " " + m.Architecture)
}

// Build returns NAME VERSION of the source package, "" where it is not known.
func (m *Meta) Build() string { return strings.TrimSpace(m.Source + " " + m.SourceVersion) }

// buildIDDir is where distributions have the debug file of a build ID, or a link to it.
const buildIDDir = "/usr/lib/debug/.build-id/"

// maxLinks is how many links are followed, one after another.
const maxLinks = 8

// DebugFiles returns the paths at which the package has debug files of a build ID: that of the distributions, or where
// links lead that are there (find-debuginfo(1) numbers those of an ID that several files have). There is one at least, but
// for no ID.
func (m *Meta) DebugFiles(hexID string) (paths []string) {
	if len(hexID) < 3 {
		return nil
	}
	link := buildIDDir + hexID[:2] + "/" + hexID[2:]
	for n := range maxSame {
		name := link + ".debug"
		if n > 0 {
			name = fmt.Sprintf("%s.%d.debug", link, n)
			if _, ok := m.links[name]; !ok {
				break
			}
		}
		if name = m.follow(name); !slices.Contains(paths, name) {
			paths = append(paths, name)
		}
	}
	return paths
}

// maxSame is how many files of one build ID are looked for in a package.
const maxSame = 100

// follow returns where links lead that begin at a path.
func (m *Meta) follow(name string) string {
	for range maxLinks {
		to, ok := m.links[name]
		if !ok {
			break
		}
		if !path.IsAbs(to) {
			to = path.Join(path.Dir(name), to)
		}
		name = path.Clean(to)
	}
	return name
}

// A Member is a regular file in a package.
type Member struct {
	Path     string // with a slash at the start, and cleaned
	Size     int64
	Modified time.Time
	Meta     *Meta // of the package
	io.Reader
}

// ErrSkip is returned by functions that want no more of the members.
var ErrSkip = errors.New("skip the rest")

// IsPackage reports whether a name is one of those that Walk reads.
func IsPackage(name string) bool {
	for _, suffix := range suffixes {
		if strings.HasSuffix(strings.ToLower(name), suffix) {
			return true
		}
	}
	return false
}

var suffixes = []string{".deb", ".ddeb", ".udeb", ".rpm", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.zst", ".tzst", ".tar.bz2", ".tbz2", ".oci"}

// reading is one package on its way.
type reading struct {
	ctx      context.Context
	name     string
	lim      Limits
	packed   int64 // bytes read so far
	unpacked int64
	members  int
	file     func(Member) error
	meta     func(*Meta) error
}

// Walk calls file for each regular file in a package, whose Reader is valid until the call
// returns. meta, which may be nil, is called first with what the package says of itself, if it
// says something. An error of either ends the walk and is returned, except ErrSkip.
func Walk(ctx context.Context, r io.Reader, name string, lim Limits, meta func(*Meta) error, file func(Member) error) error {
	w := &reading{ctx: ctx, name: name, lim: lim.orDefault(), file: file, meta: meta}
	if w.meta == nil {
		w.meta = func(*Meta) error { return nil }
	}
	err := w.archive(bufio.NewReaderSize(&counted{w, r, &w.packed}, 64<<10), &Meta{}, 0)
	if errors.Is(err, ErrSkip) {
		return nil
	}
	return err
}

func (w *reading) damaged(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrSkip), errors.Is(err, ErrLimit), errors.Is(err, ErrFormat), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("%s: %w: %w", w.name, ErrFormat, err)
}

// counted counts what is read of the package.
type counted struct {
	w *reading
	r io.Reader
	n *int64
}

func (c *counted) Read(p []byte) (int, error) {
	if err := c.w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	*c.n += int64(n)
	return n, err
}

// unpacking bounds what comes out of a decompressor.
type unpacking struct {
	w *reading
	r io.Reader
}

func (u *unpacking) Read(p []byte) (int, error) {
	if err := u.w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := u.r.Read(p)
	u.w.unpacked += int64(n)
	if u.w.unpacked > u.w.lim.Unpacked || u.w.unpacked > freeBytes+u.w.packed*u.w.lim.Ratio {
		return 0, fmt.Errorf("%s: %w: %d bytes from %d", u.w.name, ErrLimit, u.w.unpacked, u.w.packed)
	}
	return n, err
}

// Starts of formats.
var (
	magicAr   = []byte("!<arch>\n")
	magicRPM  = []byte{0xed, 0xab, 0xee, 0xdb}
	magicGzip = []byte{0x1f, 0x8b}
	magicXZ   = []byte("\xfd7zXZ\x00")
	magicZstd = []byte{0x28, 0xb5, 0x2f, 0xfd}
	magicBz2  = []byte("BZh")
)

// archive reads a package or an archive, in whatever compression it is.
func (w *reading) archive(r *bufio.Reader, meta *Meta, depth int) error {
	start, err := r.Peek(8)
	if err != nil && len(start) < 8 {
		return w.damaged(fmt.Errorf("it has %d bytes", len(start)))
	}
	switch {
	case depth == 0 && bytes.HasPrefix(start, magicAr):
		return w.damaged(w.deb(r))
	case depth == 0 && bytes.HasPrefix(start, magicRPM):
		return w.damaged(w.rpm(r))
	}
	plain, done, err := w.decompress(r)
	if err != nil {
		return w.damaged(err)
	}
	defer done()
	return w.damaged(w.tar(plain, meta, depth))
}

// decompress returns a reader of what is in r, which is r itself where it is not compressed.
func (w *reading) decompress(r *bufio.Reader) (out io.Reader, done func(), err error) {
	done = func() {}
	start, _ := r.Peek(6)
	switch {
	case bytes.HasPrefix(start, magicGzip):
		out, err = gzip.NewReader(r)
	case bytes.HasPrefix(start, magicXZ):
		out, err = xz.NewReader(r, maxDictionary)
	case bytes.HasPrefix(start, magicZstd):
		var z *zstd.Decoder
		if z, err = zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxDictionary), zstd.WithDecoderMaxMemory(1<<40)); err == nil {
			out, done = z, z.Close
		}
	case bytes.HasPrefix(start, magicBz2):
		out = bzip2.NewReader(r)
	default:
		return r, done, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return &unpacking{w, out}, done, nil
}

// maxDictionary is how much memory a decompressor takes for what it looks back at: xz -9 has 64
// MiB, zstd --ultra 128 MiB.
const maxDictionary = 128 << 20

// tar reads a tar archive.
func (w *reading) tar(r io.Reader, meta *Meta, depth int) error {
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			if err := w.count(); err != nil {
				return err
			}
			continue
		}
		if isBlob(h.Name) && depth < w.lim.Nesting {
			if err := w.layer(t, meta, depth); err != nil {
				return err
			}
			continue
		}
		if err := w.member(Member{h.Name, h.Size, h.ModTime, meta, t}); err != nil {
			return err
		}
	}
}

// isBlob reports whether a name is that of a layer in an image of a container: of the OCI, or
// of what docker save wrote before.
func isBlob(name string) bool {
	name = strings.TrimPrefix(name, "./")
	return strings.HasPrefix(name, "blobs/") || path.Base(name) == "layer.tar"
}

// layer reads a layer of an image, if it is one and not a description.
func (w *reading) layer(r io.Reader, meta *Meta, depth int) error {
	b := bufio.NewReaderSize(r, 64<<10)
	start, _ := b.Peek(512)
	isCompressed := bytes.HasPrefix(start, magicGzip) || bytes.HasPrefix(start, magicZstd)
	if !isCompressed && (len(start) < 262 || string(start[257:262]) != "ustar") {
		return w.count()
	}
	return w.archive(b, meta, depth+1)
}

func (w *reading) count() error {
	if w.members++; w.members > w.lim.Members {
		return fmt.Errorf("%s: %w: %d members", w.name, ErrLimit, w.members)
	}
	return nil
}

const maxName = 4096

// member passes a regular file on.
func (w *reading) member(m Member) error {
	if err := w.count(); err != nil {
		return err
	}
	if m.Size < 0 || len(m.Path) > maxName {
		return fmt.Errorf("a member of %d bytes with a name of %d", m.Size, len(m.Path))
	}
	m.Path, m.Reader = path.Clean("/"+m.Path), io.LimitReader(m.Reader, m.Size)
	return w.file(m)
}
