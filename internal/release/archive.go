package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// A pack is all that is in the archive and in the package for one architecture.
type pack struct {
	commit       commit
	version      string
	architecture string
	program      []byte
	contents     contents
	licenses     []file
}

// archiveName returns the name of the .tar.gz archive.
func (p pack) archiveName() string { return p.directory() + ".tar.gz" }

// directory returns the name of the one directory in the archive.
func (p pack) directory() string {
	return fmt.Sprintf("hallmark-%s-linux-%s", p.version, p.architecture)
}

// writeArchive writes the .tar.gz archive.
func (p pack) writeArchive(w *bytes.Buffer) error {
	files := []file{{"hallmark", 0o755, p.program}}
	files = append(files, p.contents.documents...)
	files = append(files, below("man/man1", p.contents.pages)...)
	files = append(files, below("licenses", p.licenses)...)
	for shell, name := range map[string]string{"bash": "hallmark", "zsh": "_hallmark", "fish": "hallmark.fish"} {
		files = append(files, file{path.Join("completions", shell, name), 0o644, p.contents.completions[shell]})
	}
	return writeTarGz(w, p.directory()+"/", files, p.commit.at)
}

// below returns files with a directory before their names.
func below(dir string, files []file) []file {
	moved := slices.Clone(files)
	for i := range moved {
		moved[i].name = path.Join(dir, moved[i].name)
	}
	return moved
}

// writeTarGz writes files, and the directories that they are in, as a compressed tar archive (ustar). All
// names begin with root, which ends in a slash; all is root's, and of one time.
func writeTarGz(w io.Writer, root string, files []file, at time.Time) error {
	byName := map[string]file{root: {name: root, mode: 0o755}}
	for _, f := range files {
		if _, twice := byName[root+f.name]; twice {
			return fmt.Errorf("two files are %s", f.name)
		}
		byName[root+f.name] = f
		for dir := path.Dir(f.name); dir != "."; dir = path.Dir(dir) {
			byName[root+dir+"/"] = file{mode: 0o755}
		}
	}
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		f := byName[name]
		header := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: f.mode, Size: int64(len(f.data)), ModTime: at, Uname: "root", Gname: "root", Format: tar.FormatUSTAR}
		if strings.HasSuffix(name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := t.WriteHeader(&header); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return z.Close()
}

// compressed returns data as gzip -9n writes it, without a name and a time.
func compressed(data []byte) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
