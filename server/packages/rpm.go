package packages

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Tags of the header of an rpm package, under the names of rpmtag.h.
const (
	tagName           = 1000
	tagVersion        = 1001
	tagRelease        = 1002
	tagArch           = 1022
	tagFileLinkTos    = 1036
	tagSourceRPM      = 1044
	tagProvideName    = 1047
	tagProvideVersion = 1113
	tagDirIndexes     = 1116
	tagBaseNames      = 1117
	tagDirNames       = 1118
)

// Types of values in the header.
const (
	typeInt32       = 4
	typeString      = 6
	typeStringArray = 8
	typeI18NString  = 9
)

const (
	rpmLead   = 96
	maxHeader = 256 << 20 // what rpm itself takes
	maxTags   = 1 << 16
	maxTexts  = 1 << 18 // of a tag: of a store of NULs each byte would be one
)

// rpm reads a package of rpm: a lead that says nothing, a header of signatures, a header that
// describes the package, and a cpio archive.
func (w *reading) rpm(r *bufio.Reader) error {
	if _, err := io.CopyN(io.Discard, r, rpmLead); err != nil {
		return err
	}
	_, size, err := rpmHeader(r)
	if err != nil {
		return fmt.Errorf("its signatures: %w", err)
	}
	if _, err := r.Discard(int(-size & 7)); err != nil {
		return err
	}
	h, _, err := rpmHeader(r)
	if err != nil {
		return fmt.Errorf("its header: %w", err)
	}
	meta := metaOf(h)
	if err := w.meta(meta); err != nil {
		return err
	}
	plain, done, err := w.decompress(r)
	if err != nil {
		return err
	}
	defer done()
	return w.cpio(plain, meta)
}

// described is what is wanted of a header.
type described struct {
	texts map[uint32][]string // by tag
	dirs  []byte              // tagDirIndexes, four bytes each
}

// rpmHeader reads a header: a table of tags, and a store of size bytes with their values.
func rpmHeader(r io.Reader) (d described, size int64, err error) {
	var h [16]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return d, 0, err
	}
	n, size := binary.BigEndian.Uint32(h[8:]), int64(binary.BigEndian.Uint32(h[12:]))
	if !bytes.HasPrefix(h[:], []byte{0x8e, 0xad, 0xe8, 1}) || n > maxTags || size > maxHeader {
		return d, 0, errors.New("it is damaged")
	}
	// The reader allocates for the bytes that are there, whatever the header says.
	all, err := io.ReadAll(io.LimitReader(r, 16*int64(n)+size))
	if err != nil {
		return d, 0, err
	}
	if int64(len(all)) < 16*int64(n)+size {
		return d, 0, io.ErrUnexpectedEOF
	}
	table, store := all[:16*n], all[16*n:]
	d.texts = map[uint32][]string{}
	for ; len(table) > 0; table = table[16:] {
		tag, typ := binary.BigEndian.Uint32(table), binary.BigEndian.Uint32(table[4:])
		off, count := binary.BigEndian.Uint32(table[8:]), binary.BigEndian.Uint32(table[12:])
		switch isText := typ == typeString || typ == typeStringArray || typ == typeI18NString; {
		case int64(off) > size:
		case isText && isWanted(tag) && d.texts[tag] == nil:
			d.texts[tag] = texts(store[off:], count)
		case typ == typeInt32 && tag == tagDirIndexes:
			d.dirs = store[off:][:min(4*int64(count), size-int64(off))]
		}
	}
	return d, size, nil
}

func isWanted(tag uint32) bool {
	switch tag {
	case tagName, tagVersion, tagRelease, tagArch, tagSourceRPM, tagProvideName, tagProvideVersion, tagFileLinkTos, tagBaseNames, tagDirNames:
		return true
	}
	return false
}

// texts returns count texts, which end with NUL each.
func texts(b []byte, count uint32) (all []string) {
	for range min(count, maxTexts) {
		end := bytes.IndexByte(b, 0)
		if end < 0 {
			return all
		}
		all = append(all, string(b[:end]))
		b = b[end+1:]
	}
	return all
}

func metaOf(d described) *Meta {
	tags := d.texts
	first := func(tag uint32) string {
		if len(tags[tag]) == 0 {
			return ""
		}
		return tags[tag][0]
	}
	m := &Meta{Name: first(tagName), Architecture: first(tagArch), Version: first(tagVersion)}
	if release := first(tagRelease); release != "" {
		m.Version += "-" + release
	}
	// NAME-VERSION-RELEASE.src.rpm
	source := strings.TrimSuffix(strings.TrimSuffix(first(tagSourceRPM), ".src.rpm"), ".nosrc.rpm")
	if parts := strings.Split(source, "-"); len(parts) > 2 {
		n := len(parts) - 2
		m.Source, m.SourceVersion = strings.Join(parts[:n], "-"), strings.Join(parts[n:], "-")
	}
	names, versions := tags[tagProvideName], tags[tagProvideVersion]
	for i, name := range names {
		if name == "debuginfo(build-id)" && i < len(versions) {
			m.addBuildID(versions[i])
		}
	}
	m.links = d.links()
	return m
}

// links returns the links to debug files. A package names its files by the number of a directory and a name there.
func (d *described) links() map[string]string {
	links := map[string]string{}
	bases, dirs, targets := d.texts[tagBaseNames], d.texts[tagDirNames], d.texts[tagFileLinkTos]
	for i, to := range targets {
		if to == "" || i >= len(bases) || 4*i+4 > len(d.dirs) {
			continue
		}
		if dir := binary.BigEndian.Uint32(d.dirs[4*i:]); int64(dir) < int64(len(dirs)) && strings.HasPrefix(dirs[dir], buildIDDir) {
			links[dirs[dir]+bases[i]] = to
		}
	}
	return links
}

// cpio reads an archive of the format "newc" (cpio(5)).
func (w *reading) cpio(r io.Reader, meta *Meta) error {
	for {
		var h [110]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return err
		}
		if magic := string(h[:6]); magic != "070701" && magic != "070702" {
			return errors.New("its payload is no cpio archive, or damaged")
		}
		number := func(i int) int64 {
			n, err := strconv.ParseUint(string(h[6+8*i:14+8*i]), 16, 32)
			if err != nil {
				return -1
			}
			return int64(n)
		}
		mode, modified, size, nameSize := number(1), number(5), number(6), number(11)
		if mode < 0 || size < 0 || nameSize < 1 || nameSize > maxName {
			return errors.New("a header of cpio is damaged")
		}
		name := make([]byte, nameSize+pad4(110+nameSize))
		if _, err := io.ReadFull(r, name); err != nil {
			return err
		}
		text := string(name[:nameSize-1])
		if text == "TRAILER!!!" {
			return nil
		}
		body := io.LimitReader(r, size)
		var err error
		if mode&0o170000 == 0o100000 {
			err = w.member(Member{text, size, time.Unix(modified, 0), meta, body})
		} else {
			err = w.count()
		}
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, body); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, r, pad4(size)); err != nil {
			return err
		}
	}
}

// pad4 returns how many bytes are missing to a multiple of 4.
func pad4(n int64) int64 { return -n & 3 }
