package testenv

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestEnvironment has a shell print the environment of tests that somebody runs who has set much.
func TestEnvironment(t *testing.T) {
	there := []string{
		"HOME=/home/somebody", "PATH=/home/somebody/bin:/usr/bin", "TZ=Asia/Kathmandu", "LC_ALL=de_DE.UTF-8", "LANGUAGE=de", "LANG=de_DE",
		"XDG_CACHE_HOME=/c", "XDG_CONFIG_HOME=/c", "DEBUGINFOD_URLS=http://127.0.0.1", "DEBUGINFOD_CACHE_PATH=/c", "PERF_CONFIG=/c",
		"HALLMARK_SERVER=http://127.0.0.1", "HALLMARK_TOKEN=x", "CC=tcc", "CFLAGS=-O3", "LD_PRELOAD=/x.so", "AWS_PROFILE=x", "GOGC=off", "GODEBUG=x=1",
		"GREP_COLORS=x", "LESS=x", "BROWSER=x", "DISPLAY=:0", "TERM=dumb", "GOCACHE=/theirs",
		"CI=1", "HALLMARK_THOROUGH=1", "GOFLAGS=-mod=mod", "TMPDIR=/t",
	}
	env := Environment(there, "/own", map[string]string{"GOROOT": "/go", "GOCACHE": "/c/go-build"})
	cmd := exec.Command("/usr/bin/env")
	cmd.Env = env
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(string(out))
	slices.Sort(got)
	want := []string{
		"CI=1", "GOCACHE=/c/go-build", "GOFLAGS=-mod=mod", "GOROOT=/go", "HALLMARK_ISOLATED=1", "HALLMARK_THOROUGH=1", "HOME=/own", "LANG=C.UTF-8",
		"PATH=/go/bin:/usr/sbin:/usr/bin:/sbin:/bin:/home/somebody/bin", "TMPDIR=/t", "TZ=UTC",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

// runs is what a package runs as its tests.
type runs func() int

func (r runs) Run() int { return r() }

// TestIsolated wants an empty home while the tests run, none behind them, and no other one in a child.
func TestIsolated(t *testing.T) {
	for _, v := range os.Environ() { // which Isolated changes, and t.Setenv puts back
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	os.Unsetenv(isolatedVar)
	t.Setenv("HOME", t.TempDir())
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Skipf("NOT CHECKED: needs the Go command: %v", err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	home := ""
	status := Isolated(runs(func() int {
		home = os.Getenv("HOME")
		if list, err := os.ReadDir(home); err != nil || len(list) > 0 {
			t.Errorf("the home has %v, %v", list, err)
		}
		if got, err := exec.Command("go", "env", "GOMODCACHE").Output(); string(got) != string(cache) {
			t.Errorf("the Go command has modules in %s, not in %s: %v", got, cache, err)
		}
		if value, found := os.LookupEnv("XDG_CACHE_HOME"); found {
			t.Errorf("a cache is in %s", value)
		}
		Isolated(runs(func() int {
			if again := os.Getenv("HOME"); again != home {
				t.Errorf("the home of a child is %s", again)
			}
			return 0
		})).Run()
		return 7
	})).Run()
	if status != 7 {
		t.Errorf("status %d", status)
	}
	if _, err := os.Stat(home); !os.IsNotExist(err) {
		t.Errorf("%s is left behind: %v", home, err)
	}
	os.Unsetenv(isolatedVar)
}
