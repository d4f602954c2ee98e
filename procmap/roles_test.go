package procmap

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

const page = 4096

// mapMany makes some thousand VMAs: executable and other mappings of a file, and
// anonymous memory, with holes between them.
func mapMany() {
	f, err := os.Open("/proc/self/exe")
	check(err)
	const n = 2000
	area, err := syscall.Mmap(-1, 0, 3*n*page, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	check(err)
	base := uintptr(unsafe.Pointer(&area[0]))
	for i := range uintptr(n) {
		at := base + 3*i*page
		prot := uintptr(syscall.PROT_READ)
		if i%4 == 0 {
			prot |= syscall.PROT_EXEC
		}
		if i%2 == 0 {
			mapAt(at, page, prot, syscall.MAP_PRIVATE, f.Fd(), i*page)
		} else {
			mapAt(at, page, prot, syscall.MAP_PRIVATE|syscall.MAP_ANON, ^uintptr(0), 0)
		}
		unmap(at+page, page)
	}
}

// churn maps, splits and unmaps memory until standard input ends.
func churn() {
	fmt.Println()
	done := make(chan bool)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(done)
	}()
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		default:
		}
		m, err := syscall.Mmap(-1, 0, 64*page, syscall.PROT_READ, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		check(err)
		for off := page; off < 64*page; off += 2 * page {
			check(syscall.Mprotect(m[off:off+page], syscall.PROT_READ|syscall.PROT_WRITE))
		}
		if i%2 == 0 {
			check(syscall.Mprotect(m, syscall.PROT_READ))
		}
		check(syscall.Munmap(m))
	}
}

// remap maps a file and then does what programs do that want their code in huge
// pages: page 2 becomes an anonymous copy, pages 3 and 4 one in a memory file. It
// says where the mapping starts.
func remap(name string) {
	text := mapFile(name, 0)
	private, err := syscall.Mmap(-1, 0, page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	check(err)
	fd := memfd("text")
	check(syscall.Ftruncate(fd, 2*page))
	shared, err := syscall.Mmap(fd, 0, 2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	check(err)
	put(private, text[2*page:3*page])
	put(shared, text[3*page:5*page])
	ready(strconv.FormatUint(uint64(uintptr(unsafe.Pointer(&text[0]))), 16))
}

// put copies code to other memory and moves that over the code.
func put(memory, code []byte) {
	copy(memory, code)
	check(syscall.Mprotect(memory, syscall.PROT_READ|syscall.PROT_EXEC))
	const mayMove, fixed = 1, 2
	size := uintptr(len(code))
	_, _, errno := syscall.Syscall6(syscall.SYS_MREMAP, uintptr(unsafe.Pointer(&memory[0])),
		size, size, mayMove|fixed, uintptr(unsafe.Pointer(&code[0])), 0)
	if errno != 0 {
		check(errno)
	}
}

func mapAt(at, size, prot, flags, fd, offset uintptr) {
	const fixed = 0x10
	_, _, errno := syscall.Syscall6(syscall.SYS_MMAP, at, size, prot, flags|fixed, fd, offset)
	if errno != 0 {
		check(errno)
	}
}

func unmap(at, size uintptr) {
	if _, _, errno := syscall.Syscall(syscall.SYS_MUNMAP, at, size, 0); errno != 0 {
		check(errno)
	}
}

// execMemfd copies this program into a memfd and runs that, which then waits.
func execMemfd(name string) {
	program, err := os.ReadFile("/proc/self/exe")
	check(err)
	fd := memfd(name)
	_, err = syscall.Write(fd, program)
	check(err)
	check(os.Setenv(roleVar, "wait"))
	check(syscall.Exec("/proc/self/fd/"+strconv.Itoa(fd), []string{name}, os.Environ()))
}

func memfd(name string) int {
	const closeOnExec = 1
	b, err := syscall.BytePtrFromString(name)
	check(err)
	fd, _, errno := syscall.Syscall(sysMemfdCreate, uintptr(unsafe.Pointer(b)), closeOnExec, 0)
	if errno != 0 {
		check(errno)
	}
	return int(fd)
}

// mounted maps a copy of a file from a file system that only this process, started
// in a mount namespace of its own, has mounted on dir.
func mounted(dir, file string) {
	check(syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""))
	check(syscall.Mount("tmpfs", dir, "tmpfs", 0, ""))
	inside := filepath.Join(dir, "lib.so")
	copyTo(file, inside)
	mapFile(inside, 0)
	ready()
}

func copyTo(from, to string) {
	data, err := os.ReadFile(from)
	check(err)
	check(os.WriteFile(to, data, 0o755))
}

// overlaid maps a file of an overlay in a mount namespace of its own. After the
// first line of input it writes another file's content there, which makes the
// overlay put a new file in the place of the mapped one.
func overlaid(args []string) {
	dir, lower, file, other := args[0], args[1], args[2], args[3]
	check(syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""))
	check(syscall.Mount("tmpfs", dir, "tmpfs", 0, ""))
	if lower == "" {
		lower = filepath.Join(dir, "lower")
	}
	merged := filepath.Join(dir, "merged")
	for _, d := range []string{lower, filepath.Join(dir, "upper"), filepath.Join(dir, "work"), merged} {
		check(os.MkdirAll(d, 0o755))
	}
	copyTo(file, filepath.Join(lower, "lib.so"))
	check(syscall.Mount("overlay", merged, "overlay", 0,
		"lowerdir="+lower+",upperdir="+dir+"/upper,workdir="+dir+"/work"))
	mapFile(filepath.Join(merged, "lib.so"), 0)
	fmt.Println()
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return
	}
	copyTo(other, filepath.Join(merged, "lib.so"))
	ready()
}

// twins maps two files of an overlay that have one device, one inode and one name: its layers are two
// file systems, which number files from 1 on, and the second file is bound over the first.
func twins(dir, file, other string) {
	check(syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""))
	lower, upper, merged := filepath.Join(dir, "lower"), filepath.Join(dir, "upper"), filepath.Join(dir, "merged")
	for _, d := range []string{lower, upper, merged} {
		check(os.Mkdir(d, 0o755))
	}
	check(syscall.Mount("tmpfs", lower, "tmpfs", 0, "inode64"))
	check(syscall.Mount("tmpfs", upper, "tmpfs", 0, "inode64"))
	check(os.Mkdir(upper+"/up", 0o755))
	check(os.Mkdir(upper+"/work", 0o755))
	for i := range 100 {
		check(os.WriteFile(fmt.Sprintf("%s/%d", lower, i), nil, 0o644))
	}
	name := lower + "/lib.so"
	copyTo(file, name)
	want, err := os.Stat(name)
	check(err)
	for i := 0; ; i++ {
		twin := upper + "/up/twin"
		check(os.WriteFile(twin, nil, 0o755))
		is, err := os.Stat(twin)
		check(err)
		if is.Sys().(*syscall.Stat_t).Ino == want.Sys().(*syscall.Stat_t).Ino {
			copyTo(other, twin)
			break
		}
		if i > 10_000 {
			check(fmt.Errorf("no file has the number %d", want.Sys().(*syscall.Stat_t).Ino))
		}
		check(os.Remove(twin))
	}
	check(syscall.Mount("overlay", merged, "overlay", 0, "lowerdir="+lower+",upperdir="+upper+"/up,workdir="+upper+"/work,xino=off"))
	mapFile(merged+"/lib.so", 0)
	check(syscall.Mount(merged+"/twin", merged+"/lib.so", "", syscall.MS_BIND, ""))
	mapFile(merged+"/lib.so", 0)
	ready()
}

// seen is what a role says of an executable mapping.
type seen struct {
	Name, ID, Reason, Door string
}

// look prints what this user can see of the executable mappings of a process.
func look(pid string) {
	n, err := strconv.Atoi(pid)
	check(err)
	p, err := Open(n)
	check(err)
	defer p.Close()
	list, err := p.Executable()
	check(err)
	var all []seen
	for _, v := range list {
		id, err := p.Identity(v)
		check(err)
		all = append(all, seen{v.Name, id.ID.String(), id.Reason.Code(), id.Door.String()})
	}
	check(json.NewEncoder(os.Stdout).Encode(all))
}

// mapDeep maps a file whose path is longer than PATH_MAX, which nobody can open by
// its name.
func mapDeep(dir string) {
	check(os.Chdir(dir))
	name := strings.Repeat("d", 250)
	for range 20 {
		check(os.Mkdir(name, 0o755))
		check(os.Chdir(name))
	}
	copyTo("/proc/self/exe", "lib.so")
	mapFile("lib.so", 0)
	ready()
}
