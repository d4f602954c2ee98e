package packages

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
)

// deb reads a package of Debian (deb(5)): an ar archive with a version, a tar archive that
// describes the package, and one with its files.
func (w *reading) deb(r *bufio.Reader) error {
	if _, err := r.Discard(len(magicAr)); err != nil {
		return err
	}
	meta := new(Meta)
	for {
		name, size, err := arHeader(r)
		if err == io.EOF {
			return errors.New("no data.tar in it")
		}
		if err != nil {
			return err
		}
		body := bufio.NewReaderSize(io.LimitReader(r, size), 64<<10)
		switch {
		case strings.HasPrefix(name, "control.tar"):
			if err := w.control(body, meta); err != nil {
				return err
			}
			if err := w.meta(meta); err != nil {
				return err
			}
		case strings.HasPrefix(name, "data.tar"):
			plain, done, err := w.decompress(body)
			if err != nil {
				return err
			}
			defer done()
			return w.tar(plain, meta, w.lim.Nesting)
		}
		if _, err := io.Copy(io.Discard, body); err != nil {
			return err
		}
		if size%2 == 1 {
			if _, err := r.Discard(1); err != nil {
				return err
			}
		}
	}
}

// arHeader reads the header of a member.
func arHeader(r io.Reader) (name string, size int64, err error) {
	var h [60]byte
	if n, err := io.ReadFull(r, h[:]); err != nil {
		if n <= 1 {
			return "", 0, io.EOF // a byte of padding may be left
		}
		return "", 0, err
	}
	size, err = strconv.ParseInt(strings.TrimSpace(string(h[48:58])), 10, 64)
	if err != nil || size < 0 || h[58] != '`' || h[59] != '\n' {
		return "", 0, errors.New("a header of ar is damaged")
	}
	return strings.TrimRight(string(h[:16]), " /"), size, nil
}

const maxControl = 1 << 20 // bytes of a description

// control reads the description of a package.
func (w *reading) control(r *bufio.Reader, meta *Meta) error {
	plain, done, err := w.decompress(r)
	if err != nil {
		return err
	}
	defer done()
	t := tar.NewReader(plain)
	for {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.count(); err != nil {
			return err
		}
		if path.Clean("/"+h.Name) != "/control" {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(t, maxControl+1))
		if err != nil {
			return err
		}
		if len(b) > maxControl {
			return fmt.Errorf("%w: its control file has %d bytes", ErrLimit, h.Size)
		}
		meta.readControl(b)
	}
}

// readControl reads the fields of a description (deb-control(5)).
func (m *Meta) readControl(b []byte) {
	fields := map[string]string{}
	last := ""
	for line := range bytes.Lines(b) {
		text := strings.TrimRight(string(line), "\n")
		switch name, value, ok := strings.Cut(text, ":"); {
		case strings.HasPrefix(text, " "), strings.HasPrefix(text, "\t"):
			if last != "" {
				fields[last] += "\n" + strings.TrimSpace(text)
			}
		case ok:
			last = strings.ToLower(name)
			fields[last] = strings.TrimSpace(value)
		}
	}
	m.Name, m.Version, m.Architecture = fields["package"], fields["version"], fields["architecture"]
	m.Source, m.SourceVersion = m.Name, m.Version
	if source, version, ok := strings.Cut(fields["source"], " "); source != "" {
		m.Source = source
		if ok {
			m.SourceVersion = strings.Trim(version, "() ")
		}
	}
	for _, id := range strings.Fields(fields["build-ids"]) {
		m.addBuildID(id)
	}
}

const maxBuildIDs = 1 << 16

func (m *Meta) addBuildID(id string) {
	if len(id) >= 4 && len(id) <= 510 && len(id)%2 == 0 && strings.Trim(id, "0123456789abcdef") == "" && len(m.BuildIDs) < maxBuildIDs {
		m.BuildIDs = append(m.BuildIDs, id)
	}
}
