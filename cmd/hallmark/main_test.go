package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	pprof "github.com/google/pprof/profile"
	"github.com/rogpeppe/go-internal/testscript"

	"hallmark/cmd/hallmark/internal/addr2line"
	"hallmark/internal/proftest"
	"hallmark/internal/testenv"
	"hallmark/launch"
	"hallmark/server/indexer"
)

// TestMain makes the test binary itself the hallmark that the scripts run, by whatever
// name a link gives it.
func TestMain(m *testing.M) {
	if how := os.Getenv(victimVar); how != "" {
		victim(how)
		return
	}
	launch.ExecWhenReady()
	indexer.RunIfChild()
	if _, ok := addr2line.ProgramOf(os.Args[0]); ok {
		main()
	}
	var tests interface{ Run() int } = m
	if filepath.Base(os.Args[0]) != "hallmark" { // else a script runs it as the command
		tests = testenv.Isolated(m)
	}
	testscript.Main(tests, map[string]func(){"hallmark": main})
}

// recording is held by scripts that record: a recording that asks for build IDs makes perf stumble
// over another one that does not (perf 6.1 takes a device number for the size of an ID).
var recording sync.Mutex

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			if name := filepath.Base(e.WorkDir); regexp.MustCompile(`^script-(record|exec|bench|inject|perfdata|poisoned|two_builds)`).MatchString(name) {
				recording.Lock()
				e.Defer(recording.Unlock)
			}
			// Go programs that a script builds need their cache and their toolchain.
			for name, value := range goCaches() {
				e.Setenv(name, value)
			}
			return writeProfiles(e.WorkDir)
		},
		Condition: func(cond string) (bool, error) { return testenv.Condition(cond) },
	})
}

// goCaches returns where Go keeps what it builds and fetches: scripts have no home.
var goCaches = sync.OnceValue(func() map[string]string {
	caches := map[string]string{}
	if v, ok := os.LookupEnv("XDG_CACHE_HOME"); ok {
		caches["XDG_CACHE_HOME"] = v
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOROOT"} {
		if value, err := exec.Command("go", "env", name).Output(); err == nil { // else nothing is built
			caches[name] = strings.TrimSpace(string(value))
		}
	}
	return caches
})

// writeProfiles gives every script two built profiles: mixed.pb.gz with all that
// a profile can have, and empty.pb.gz with nothing.
func writeProfiles(dir string) error {
	for name, p := range map[string]*pprof.Profile{
		"mixed.pb.gz": proftest.Mixed(),
		"empty.pb.gz": proftest.New().Profile,
	} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := errors.Join(p.Write(f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}
