package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sumsName is the file with the hash of each other one of a release.
const sumsName = "SHA256SUMS"

// writeAll writes files, and one with their hashes, into a new directory. It returns their names.
func writeAll(dir string, files map[string][]byte) (names []string, err error) {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return nil, err
	}
	var sums bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(files[name]), name)
		if err := writeWhole(filepath.Join(dir, name), files[name]); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return append(names, sumsName), writeWhole(filepath.Join(dir, sumsName), sums.Bytes())
}

// writeWhole writes a new file, which is on the disk when it returns.
func writeWhole(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// mayReplace returns an error if dist has files that are of no release: a release takes the place of the
// whole directory.
func mayReplace(dist string) error {
	entries, err := os.ReadDir(dist)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(dist, sumsName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ours := map[string]bool{sumsName: true}
	for line := range strings.Lines(string(sums)) {
		_, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		ours[name] = true
	}
	for _, e := range entries {
		if !ours[e.Name()] || !e.Type().IsRegular() {
			return fmt.Errorf("%s has %s, which is of no release: a release takes the place of the directory", dist, e.Name())
		}
	}
	return nil
}

// replace gives the directory from the name dist. The one that had it gets the name old, and has it again
// if that fails.
func replace(dist, from, old string) error {
	err := os.Rename(dist, old)
	existed := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(from, dist); err != nil {
		if existed {
			err = errors.Join(err, os.Rename(old, dist))
		}
		return err
	}
	return nil
}
