package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"hallmark/internal/testenv"
)

// A check is what is to be right besides tests.
type check struct {
	name string
	dir  string // below the root
	env  []string
	args []string // the command; it is well if it ends well
	mute bool     // and prints nothing
	tool string   // a program that it needs
}

// checks are run in the whole run. Those that need little come first in the quick one.
func (r *runner) checks() []check {
	list := []check{
		{name: "gofmt", args: []string{"gofmt", "-l", "."}, mute: true},
		{name: "vet", args: []string{"go", "vet", "./..."}},
	}
	if r.quick {
		return list
	}
	return append(list,
		check{name: "go.mod", args: []string{"go", "mod", "tidy", "-diff"}},
		check{name: "staticcheck", args: []string{"go", "tool", "-modfile=tools/go.mod", "staticcheck", "./..."}},
		check{name: "vet for arm64", env: []string{"GOARCH=arm64"}, args: []string{"go", "vet", "./..."}},
		check{name: "vet of bench", dir: "bench", args: []string{"go", "vet", "./..."}},
		check{name: "tests of bench/symbol", dir: "bench", args: []string{"go", "test", "./symbol"}},
		check{name: "tests in a browser", dir: "bench", tool: "chromium", args: []string{"go", "test", "./browser"}},
	)
}

// noNetwork matches the Go command's words for modules that it cannot fetch, and not what a
// program or a check may print.
var noNetwork = regexp.MustCompile(`(?m)^(?:go: |.*: Get "https?://).*(?:dial tcp|no such host|i/o timeout|connection refused|network is unreachable|module lookup disabled|TLS handshake timeout|proxyconnect)`)

// runCheck runs a check.
func (r *runner) runCheck(ctx context.Context, c check) {
	if _, err := exec.LookPath(c.tool); c.tool != "" && err != nil && !testenv.CI() {
		r.results.skip(c.name, "needs "+c.tool+" in PATH")
		return
	}
	end := r.results.begin(c.name)
	begun := time.Now()
	cmd := r.procs.command(ctx, c.args[0], c.args[1:]...)
	cmd.Dir = filepath.Join(r.root, c.dir)
	cmd.Env = append(os.Environ(), append(c.env, "PWD="+cmd.Dir)...)
	out, err := r.procs.output(cmd)
	if ctx.Err() != nil {
		return
	}
	end()
	word := "ok  "
	switch {
	case err == nil && !(c.mute && out != ""):
		r.results.pass()
	case noNetwork.MatchString(out) && !testenv.CI():
		word = "none"
		r.results.skip(c.name, "needs modules of Go that cannot be fetched now")
	default:
		word = "FAIL"
		r.console.printf("%s", out)
		if err == nil {
			err = errors.New("it should print nothing")
		}
		r.results.failure(c.name, fmt.Sprintf("%s: %v", strings.Join(c.args, " "), err))
	}
	r.console.printf("%s  %-40s %6.1fs\n", word, c.name, time.Since(begun).Seconds())
}

// A need is a command or a file that tests use, and the Debian package that has it.
type need struct{ name, debian string }

// needs are those of the tests on this machine.
var needs = []need{
	{"readelf", "binutils"}, {"c++filt", "binutils"}, {"eu-readelf", "elfutils"}, {"llvm-symbolizer", "llvm"},
	{"gcc", "gcc"}, {"g++", "g++"}, {"dwz", "dwz"}, {"perf", "linux-perf"}, {"python3", "python3"}, {"file", "file"},
	{"debuginfod", "debuginfod"}, {"debuginfod-find", "debuginfod"},
	{"clang-19", "clang-19"}, {"llvm-strip-19", "llvm-19"}, {"llvm-dwp-19", "llvm-19"}, {"ld.lld-19", "lld-19"}, {"mold", "mold"},
	{"cpio", "cpio"}, {"xz", "xz-utils"}, {"zstd", "zstd"}, {"rpmbuild", "rpm"}, {"rpm", "rpm"}, {"find-debuginfo", "debugedit"}, {"gdb", "gdb"}, {"strace", "strace"}, {"jq", "jq"}, {"curl", "curl"}, {"chromium", "chromium"},
	{"mkfs.ext4", "e2fsprogs"}, {"mkfs.xfs", "xfsprogs"}, {"mkfs.btrfs", "btrfs-progs"}, {"btrfs", "btrfs-progs"},
	{"mksquashfs", "squashfs-tools"}, {"mkdosfs", "dosfstools"}, {"dpkg-parsechangelog", "dpkg-dev"}, {"git", "git"}, {"systemd-sysusers", "systemd"},
	{"/usr/include/bpf/bpf_helpers.h", "libbpf-dev"}, {"/usr/include/stdio.h", "libc6-dev"}, {"/usr/lib/debug/.build-id", "libc6-dbg"},
	{"/usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.asan-x86_64.a", "libclang-rt-19-dev"},
	{"/usr/aarch64-linux-gnu/lib/libgomp.so.1", "libgomp1-arm64-cross"}, {"/usr/aarch64-linux-gnu/lib/libstdc++.so.6", "libstdc++6-arm64-cross"},
}

// thoroughNeeds are those of the tests that HALLMARK_THOROUGH=1 adds.
var thoroughNeeds = []need{
	{"make", "make"}, {"lintian", "lintian"}, {"man", "man-db"}, {"mandoc", "mandoc"}, {"zsh", "zsh"}, {"fish", "fish"},
}

// kernelNeeds are those of the tests on other kernels.
var kernelNeeds = []need{
	{"qemu-system-x86_64", "qemu-system-x86"}, {"qemu-system-aarch64", "qemu-system-arm"}, {"aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"},
	{"busybox", "busybox-static"}, {"/usr/aarch64-linux-gnu/include/stdio.h", "libc6-dev-arm64-cross"},
	{"/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring"},
}

// missing returns the packages of what is not there, each once.
func missing(needs []need) (packages []string) {
	seen := map[string]bool{}
	for _, n := range needs {
		var err error
		if strings.HasPrefix(n.name, "/") {
			_, err = os.Stat(n.name)
		} else {
			_, err = exec.LookPath(n.name)
		}
		if err != nil && !seen[n.debian] {
			seen[n.debian] = true
			packages = append(packages, n.debian)
		}
	}
	return packages
}
