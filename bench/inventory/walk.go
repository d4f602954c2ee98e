package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"hallmark/buildid"
)

// walk does what tools do that know nothing but files: it reads the text of every
// /proc/PID/maps, and the build ID of each file that is mapped to be executed, at its path.
// It reads files as fast as hallmark does, and proves nothing.
func (s *scene) walk(t taken) error {
	var err error
	once := map[string]buildid.ID{}
	t[walkOnce] = measure(func() { err = walkAll(func() map[string]buildid.ID { return once }) })
	if err != nil {
		return err
	}
	t[walkEach] = measure(func() { err = walkAll(func() map[string]buildid.ID { return map[string]buildid.ID{} }) })
	return err
}

// walkAll walks over all processes. known returns the files that are known at the
// beginning of one, by device, inode and path.
func walkAll(known func() map[string]buildid.ID) error {
	dir, err := os.Open("/proc")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := strconv.Atoi(name); err == nil {
			walkProcess(name, known())
		}
	}
	return nil
}

// walked is an executable mapping.
type walked struct {
	start, end, offset uint64
	path               string
	id                 buildid.ID
}

func walkProcess(pid string, known map[string]buildid.ID) []walked {
	text, err := os.ReadFile("/proc/" + pid + "/maps")
	if err != nil {
		return nil // it ended
	}
	var list []walked
	for line := range bytes.Lines(text) {
		// start-end perm offset dev inode path
		f := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(" "), 6)
		if len(f) < 6 || len(f[1]) < 4 || f[1][2] != 'x' || string(f[4]) == "0" {
			continue
		}
		path := strings.TrimLeft(string(f[5]), " ")
		start, end, _ := strings.Cut(string(f[0]), "-")
		m := walked{start: hex(start), end: hex(end), offset: hex(string(f[2])), path: path}
		key := fmt.Sprintf("%s %s %s", f[3], f[4], path)
		id, ok := known[key]
		if !ok {
			info, _ := buildid.ReadFile("/proc/" + pid + "/root" + path) // zero if it is not there
			id = info.ID
			known[key] = id
		}
		m.id = id
		list = append(list, m)
	}
	return list
}

func hex(s string) uint64 {
	n, _ := strconv.ParseUint(s, 16, 64)
	return n
}
