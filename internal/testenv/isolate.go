package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// isolatedVar is set where tests already have an environment of their own.
const isolatedVar = "HALLMARK_ISOLATED"

// kept are the variables that tests see as whoever runs them has set them: where programs may write
// and fetch from, what is asked of the tests, and what the Go command needs. Beside them tests keep
// HALLMARK_TEST_*, by which they know processes of their own.
var kept = []string{
	"CI", "TMPDIR", "USER", "LOGNAME",
	"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"HALLMARK_THOROUGH", "HALLMARK_KERNELS", "HALLMARK_EMULATED", "HALLMARK_SEED", "HALLMARK_COMMAND", LackVar,
	"HALLMARK_DIR", "HALLMARK_PROGRAMS", "HALLMARK_BENCH_FILE", "HALLMARK_BENCH_GO",
	"CGO_ENABLED",
}

// ofRuntime are variables of programs in Go, which would change what is tested.
var ofRuntime = []string{"GOGC", "GOMEMLIMIT", "GODEBUG", "GOTRACEBACK", "GOMAXPROCS"}

// systemPath is where packages of the system have their programs.
var systemPath = []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// Environment returns the environment of tests whose home is a directory: the same whoever runs them.
// A recording, a cache or a setting in the home of a user, another language or time zone, and another
// compiler in front of the system's would change what tests see. From the environment that there is, it
// takes what tests are meant to see. The Go command and rustup find by toolchains what they need: the
// function Toolchains returns it.
func Environment(there []string, home string, toolchains map[string]string) (env []string) {
	path := ""
	for _, v := range there {
		name, value, _ := strings.Cut(v, "=")
		switch _, isGo := toolchains[name]; {
		case name == "PATH":
			path = value
		case isGo:
		case slices.Contains(kept, name), strings.HasPrefix(name, "HALLMARK_TEST_"),
			strings.HasPrefix(name, "GO") && !slices.Contains(ofRuntime, name):
			env = append(env, v)
		}
	}
	var dirs []string
	if root := toolchains["GOROOT"]; root != "" {
		dirs = append(dirs, filepath.Join(root, "bin"))
	}
	for _, dir := range slices.Concat(systemPath, filepath.SplitList(path)) {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for name, value := range toolchains {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return append(env, "HOME="+home, "LANG=C.UTF-8", "TZ=UTC", isolatedVar+"=1",
		"PATH="+strings.Join(dirs, string(filepath.ListSeparator)))
}

// Toolchains returns variables with the directories of compilers that are those of a user: where the Go
// command is and keeps what it builds and fetches, and where rustup has its toolchains.
func Toolchains() map[string]string {
	all := map[string]string{}
	rustup := os.Getenv("RUSTUP_HOME")
	if rustup == "" {
		rustup = filepath.Join(os.Getenv("HOME"), ".rustup")
	}
	if st, err := os.Stat(rustup); err == nil && st.IsDir() && filepath.IsAbs(rustup) {
		all["RUSTUP_HOME"] = rustup
	}
	names := []string{"GOROOT", "GOCACHE", "GOMODCACHE", "GOPATH", "GOENV"}
	out, err := exec.Command("go", append([]string{"env"}, names...)...).Output()
	values := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if err != nil || len(values) != len(names) {
		return all
	}
	for i, name := range names {
		all[name] = values[i]
	}
	return all
}

// Isolated is for the function TestMain of a package whose tests run the command, perf or a compiler. It
// changes the environment of this process to Environment, with an empty home. The tests that m runs have
// it, and the home is removed behind them. Where the environment is isolated already, it stays.
func Isolated(m interface{ Run() int }) interface{ Run() int } {
	if os.Getenv(isolatedVar) != "" || Emulated() {
		return m
	}
	home, err := os.MkdirTemp("", "hallmark-home")
	if err != nil {
		panic(err)
	}
	env := Environment(os.Environ(), home, Toolchains())
	os.Clearenv()
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	time.Local = time.UTC
	SetUmask()
	return isolated{m, home}
}

// SetUmask has files of tests be for all to read, as on most machines: some tests run programs as another
// user.
func SetUmask() { syscall.Umask(0o022) }

type isolated struct {
	tests interface{ Run() int }
	home  string
}

func (i isolated) Run() int {
	defer os.RemoveAll(i.home)
	return i.tests.Run()
}
