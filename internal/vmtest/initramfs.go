package vmtest

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// An Initramfs is an archive in the making that a kernel unpacks as its first file
// system: cpio's "newc" (Documentation/driver-api/early-userspace/buffer-format.rst).
// The first error stays and is returned by Close.
type Initramfs struct {
	System
	file *os.File
	out  *bufio.Writer
	made map[string]bool
	err  error
}

// CreateInitramfs begins an archive that has the two devices that every process needs,
// and takes programs from a system.
func CreateInitramfs(name string, from System) (*Initramfs, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	a := &Initramfs{System: from, file: f, out: bufio.NewWriter(f), made: map[string]bool{"/": true}}
	a.parents("/dev/null")
	a.entry("/dev/console", unixChar|0o600, device{5, 1}, nil)
	a.entry("/dev/null", unixChar|0o666, device{1, 3}, nil)
	return a, nil
}

// The types of files, in modes of Unix.
const (
	unixChar    = 0o020000
	unixDir     = 0o040000
	unixRegular = 0o100000
	unixLink    = 0o120000
)

type device struct{ major, minor int }

// Write adds a file with this content.
func (a *Initramfs) Write(name string, perm fs.FileMode, content []byte) {
	if a.made[name] {
		return
	}
	a.parents(name)
	a.entry(name, unixRegular|int(perm.Perm()), device{}, content)
}

// Link adds a symbolic link.
func (a *Initramfs) Link(name, target string) {
	if a.made[name] {
		return
	}
	a.parents(name)
	a.entry(name, unixLink|0o777, device{}, []byte(target))
}

// Copy adds a file, or all files below a directory, under another name.
func (a *Initramfs) Copy(name, from string) {
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, path)
		a.Write(filepath.Join(name, below), info.Mode(), content)
		return err
	})
	a.keep(err)
}

// libraryDirs are where the dynamic linkers of distributions look.
var libraryDirs = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib"}

// Program adds a program under a name, and what it is linked with, which is the
// system's, under their own.
func (a *Initramfs) Program(name, from string) {
	a.Copy(name, from)
	f, err := elf.Open(from)
	if err != nil {
		a.keep(err)
		return
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			interpreter, err := io.ReadAll(p.Open())
			a.keep(err)
			path := string(bytes.TrimRight(interpreter, "\x00"))
			a.Copy(path, filepath.Join(a.Root, path))
		}
	}
	libraries, err := f.ImportedLibraries()
	a.keep(err)
	for _, l := range libraries {
		a.library(l)
	}
}

func (a *Initramfs) library(name string) {
	for _, dir := range libraryDirs {
		path := filepath.Join(dir, name)
		from := filepath.Join(a.Root, path)
		if _, err := os.Stat(from); err == nil {
			if !a.made[path] {
				a.Program(path, from)
			}
			return
		}
	}
	a.keep(fmt.Errorf("no library %s in %v of %s", name, libraryDirs, a.Root))
}

// Tools adds what the guest itself needs, a shell among it, and what tests compare
// with as far as the system has it.
func (a *Initramfs) Tools() {
	for _, name := range []string{"busybox", "cat", "readelf", "sleep"} {
		path, err := a.find(name)
		switch {
		case err == nil:
			a.Program("/bin/"+name, path)
		case name == "busybox":
			a.keep(err)
		}
	}
}

// find returns where a program of the system is on this machine.
func (s System) find(name string) (string, error) {
	if s.Root == "/" {
		return exec.LookPath(name)
	}
	path := filepath.Join(s.Root, "bin", name)
	_, err := os.Stat(path)
	return path, err
}

// Close ends the archive.
func (a *Initramfs) Close() error {
	a.entry("/TRAILER!!!", 0, device{}, nil)
	a.keep(a.out.Flush())
	a.keep(a.file.Close())
	return a.err
}

func (a *Initramfs) keep(err error) {
	if a.err == nil {
		a.err = err
	}
}

// parents adds the directories that name is in.
func (a *Initramfs) parents(name string) {
	dir := filepath.Dir(name)
	if a.made[dir] {
		return
	}
	a.parents(dir)
	a.entry(dir, unixDir|0o755, device{}, nil)
}

func (a *Initramfs) entry(name string, mode int, d device, content []byte) {
	a.made[name] = true
	name = name[1:]
	// ino, mode, uid, gid, nlink, mtime, size, device of the file, device that it is,
	// size of the name, checksum. Without links nobody looks at the inode's number.
	fmt.Fprintf(a.out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		0, mode, 0, 0, 1, 1, len(content), 0, 0, d.major, d.minor, len(name)+1, 0)
	const header = 6 + 13*8
	a.out.WriteString(name)
	a.pad(header+len(name), 1)
	a.out.Write(content)
	a.pad(len(content), 0)
}

// pad brings what has n bytes to a multiple of four, with so many zeros at least.
func (a *Initramfs) pad(n, least int) {
	for ; least > 0 || n%4 != 0; n, least = n+1, least-1 {
		a.out.WriteByte(0)
	}
}

// pack writes the initramfs that the machine boots with. Archives may follow each other.
func (m *Machine) pack(name string, jobs []Job) error {
	list, err := json.Marshal(jobs)
	if err != nil {
		return err
	}
	a, err := CreateInitramfs(name, System{})
	if err != nil {
		return err
	}
	a.Write(JobsFile, 0o644, list)
	for i, module := range m.Modules {
		a.Copy(fmt.Sprintf("%s/%02d.ko", ModulesDir, i), module)
	}
	if err := a.Close(); err != nil {
		return err
	}
	return appendFile(name, m.Files)
}

func appendFile(name, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if closing := out.Close(); err == nil {
		err = closing
	}
	return err
}
