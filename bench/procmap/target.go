package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"unsafe"

	"hallmark/addr"
	"hallmark/procmap"
)

// A target is the process whose addresses are looked up.
type target struct {
	pid   int
	vmas  []procmap.VMA
	stdin io.Closer
	cmd   *exec.Cmd
}

// startTarget starts a process with so many VMAs.
func startTarget(vmas int) (*target, error) {
	cmd := exec.Command("/proc/self/exe", "-map", strconv.Itoa(vmas))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &target{pid: cmd.Process.Pid, stdin: stdin, cmd: cmd}
	_, err = bufio.NewReader(stdout).ReadString('\n')
	if err == nil {
		t.vmas, err = list(t.pid)
	}
	if err != nil {
		return nil, errors.Join(err, t.stop())
	}
	return t, nil
}

func (t *target) stop() error {
	t.stdin.Close()
	return t.cmd.Wait()
}

func list(pid int) ([]procmap.VMA, error) {
	p, err := procmap.Open(pid)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.All()
}

// stackVMAs is in how many executable VMAs the addresses of a batch of stacks are:
// the program, the C library, the vdso, a few libraries.
const stackVMAs = 12

// stacks returns n addresses in at most m executable file mappings, in the order
// in which stacks have them.
func (t *target) stacks(rng *rand.Rand, n, m int) []addr.Abs {
	var code []procmap.VMA
	for _, v := range t.vmas {
		if v.Perm&procmap.Exec != 0 && v.FileBacked() {
			code = append(code, v)
		}
	}
	rng.Shuffle(len(code), func(i, j int) { code[i], code[j] = code[j], code[i] })
	code = code[:min(m, len(code))]
	return addresses(rng, code, n)
}

// uniform returns n addresses in any of the VMAs.
func (t *target) uniform(rng *rand.Rand, n int) []addr.Abs { return addresses(rng, t.vmas, n) }

func addresses(rng *rand.Rand, vmas []procmap.VMA, n int) []addr.Abs {
	addrs := make([]addr.Abs, n)
	for i := range addrs {
		v := vmas[rng.IntN(len(vmas))]
		addrs[i] = v.Start + addr.Abs(rng.Uint64N(uint64(v.End-v.Start)))
	}
	return addrs
}

// hit counts the VMAs that hold one of the addresses.
func (t *target) hit(addrs []addr.Abs) int {
	n := 0
	for _, v := range t.vmas {
		for _, a := range addrs {
			if v.Contains(a) {
				n++
				break
			}
		}
	}
	return n
}

// becomeTarget makes VMAs as a large program has them: half of them are the five
// segments that a library is mapped as, half are anonymous memory. It waits until
// standard input ends.
func becomeTarget(vmas int) {
	have, err := list(os.Getpid())
	check(err)
	files, err := filepath.Glob("/usr/lib/*-linux-gnu*/*.so*")
	check(err)
	if len(files) == 0 {
		check(errors.New("no libraries in /usr/lib"))
	}
	left := vmas - len(have)
	for i := 0; left > 0; i++ {
		n := min(left, len(segments))
		if i%2 == 0 {
			mapLibrary(files[i/2%len(files)], n)
		} else {
			mapAnonymous(n)
		}
		left -= n
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
}

// segments are the permissions of a library's segments. No two neighbours have the
// same, or the kernel would merge them.
var segments = []int{
	syscall.PROT_READ,
	syscall.PROT_READ | syscall.PROT_EXEC,
	syscall.PROT_READ,
	syscall.PROT_NONE,
	syscall.PROT_READ | syscall.PROT_WRITE,
}

const page = 4096

func mapLibrary(name string, n int) {
	f, err := os.Open(name)
	check(err)
	defer f.Close()
	// A page more: libraries that are neighbours must not merge either.
	at := reserve(n + 1)
	for i := range n {
		const fixed = 0x10
		_, _, errno := syscall.Syscall6(syscall.SYS_MMAP, at+uintptr(i*page), page, uintptr(segments[i]),
			syscall.MAP_PRIVATE|fixed, f.Fd(), uintptr(i*page))
		if errno != 0 {
			check(errno)
		}
	}
	unmap(at+uintptr(n*page), page)
}

func mapAnonymous(n int) {
	at := reserve(n + 1)
	for i := range n {
		prot := syscall.PROT_READ | i%2*syscall.PROT_WRITE
		if _, _, errno := syscall.Syscall(syscall.SYS_MPROTECT, at+uintptr(i*page), page, uintptr(prot)); errno != 0 {
			check(errno)
		}
	}
	unmap(at+uintptr(n*page), page)
}

// reserve returns the address of so many pages that nothing else will get.
func reserve(pages int) uintptr {
	m, err := syscall.Mmap(-1, 0, pages*page, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	check(err)
	return uintptr(unsafe.Pointer(&m[0]))
}

func unmap(at, size uintptr) {
	if _, _, errno := syscall.Syscall(syscall.SYS_MUNMAP, at, size, 0); errno != 0 {
		check(errno)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "procmap:", err)
		os.Exit(1)
	}
}
