package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hallmark/debuginfo/debuginfod"
	"hallmark/server/api"
	"hallmark/server/blob"
	"hallmark/server/store"
)

// losses are the ways in which a file of the store is lost.
var losses = map[string]func(name string) error{
	"removed":  os.Remove,
	"empty":    func(name string) error { return os.Truncate(name, 0) },
	"cut off":  func(name string) error { return os.Truncate(name, 700) },
	"a bit":    changed(func(b []byte) { b[len(b)/3] ^= 4 }),
	"zeroed":   changed(func(b []byte) { clear(b[min(512, len(b)/2):min(1024, len(b))]) }),
	"its end":  changed(func(b []byte) { clear(b[len(b)-8:]) }),
	"its head": changed(func(b []byte) { b[0]++ }),
}

func changed(change func(b []byte)) func(name string) error {
	return func(name string) error {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		change(b)
		return os.WriteFile(name, b, 0o600)
	}
}

// objectPath is where a store in a directory has a file.
func objectPath(s *Server, b []byte) string {
	return filepath.Join(s.Store.Blobs.String(), "cas", hashHex(b)[:2], hashHex(b))
}

// fetched asks for a file. An answer that is cut off is none.
func fetched(t *testing.T, url string) (status int, body []byte) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil
	}
	return resp.StatusCode, body
}

// planned returns what a server answers to a client that has a file.
func planned(t *testing.T, base string, p built, b []byte) string {
	t.Helper()
	plan, err := json.Marshal(api.Plan{Files: []api.PlanFile{{ID: p.id, SHA256: hashHex(b), Size: int64(len(b))}}})
	if err != nil {
		t.Fatal(err)
	}
	return read[api.Planned](t, ask(t, "POST", base+"/v1/plan", bytes.NewReader(plan)).want(t, 200)).Files[0].Action
}

// again starts another server over the store of one, which knows nothing of it.
func again(t *testing.T, s *Server, change func(*Config)) (*Server, string) {
	t.Helper()
	return start(t, func(c *Config) {
		blobs, err := blob.OpenDir(s.Store.Blobs.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { blobs.Close() })
		c.Store.Blobs = blobs
		if change != nil {
			change(c)
		}
	})
}

// TestDamagedLists damages the lists of a store in every way. Nobody gets anything wrong, health and metrics say so, and who
// sends the same again has all of it there again.
func TestDamagedLists(t *testing.T) {
	p := program(t)
	for how, lose := range losses {
		s, base := start(t, nil)
		dir := s.Store.Blobs.String()
		push := func(base string) {
			t.Helper()
			for _, b := range [][]byte{p.stripped, p.debug} {
				if planned(t, base, p, b) == api.Upload {
					upload(t, base, b, "").want(t, 201)
				}
			}
			ask(t, "PUT", base+"/v1/sources/"+p.id.String()+"?path=/src/prog.c&modified=1000000000", strings.NewReader("int main;")).want(t, 204)
		}
		push(base)
		var lists []string
		for _, prefix := range []string{"id", "src"} {
			err := filepath.WalkDir(filepath.Join(dir, prefix), func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.Type().IsRegular() {
					lists = append(lists, path)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(lists) != 2 {
			t.Fatalf("%q", lists)
		}
		for _, name := range lists {
			if err := lose(name); err != nil && !errors.Is(err, fs.ErrInvalid) {
				t.Fatal(err)
			}
		}
		s, base = again(t, s, nil)
		file := base + "/buildid/" + p.id.String() + "/executable"
		if status, body := fetched(t, file); status != 404 {
			t.Errorf("%s: %d, %d bytes", how, status, len(body))
		}
		h := read[api.Health](t, ask(t, "GET", base+"/v1/health", nil).want(t, 200))
		metrics := ask(t, "GET", base+"/metrics", nil).want(t, 200)
		if gone := how == "removed"; gone != (h.DamagedLists == 0) || gone != bytes.Contains(metrics.body, []byte("\nhallmark_damaged_lists 0\n")) {
			t.Errorf("%s: %d damaged lists", how, h.DamagedLists)
		}
		push(base)
		for path, want := range map[string][]byte{"executable": p.stripped, "debuginfo": p.debug, "source/src/prog.c": []byte("int main;")} {
			if status, body := fetched(t, base+"/buildid/"+p.id.String()+"/"+path); status != 200 || !bytes.Equal(body, want) {
				t.Errorf("%s: %s: %d, %d bytes", how, path, status, len(body))
			}
		}
		if n := s.Store.DamagedLists(); n != 0 {
			t.Errorf("%s: %d damaged lists in the end", how, n)
		}
	}
}

// TestLostFile loses a file of the store in every way. No answer is a wrong one; clients are asked for it, and one that
// sends it mends it, at all servers.
func TestLostFile(t *testing.T) {
	p := program(t)
	for what, lose := range losses {
		t.Run(what, func(t *testing.T) {
			first, base := start(t, nil)
			upload(t, base, p.stripped, "").want(t, 201)
			if err := lose(objectPath(first, p.stripped)); err != nil {
				t.Fatal(err)
			}
			s, base := again(t, first, nil)
			url := base + "/buildid/" + p.id.String() + "/executable"
			if status, body := fetched(t, url); status == 200 {
				t.Fatalf("%d bytes of the %d", len(body), len(p.stripped))
			}
			ask(t, "GET", url, nil).want(t, 404)
			if got := planned(t, base, p, p.stripped); got != api.Upload {
				t.Errorf("a client that has it is to %s", got)
			}
			health := read[api.Health](t, ask(t, "GET", base+"/v1/health", nil).want(t, 200))
			if health.Broken != 1 || len(health.BrokenFiles) != 1 || health.BrokenFiles[0].SHA256 != hashHex(p.stripped) || health.BrokenFiles[0].Missing != (what == "removed") {
				t.Errorf("health: %+v", health)
			}
			if m := string(ask(t, "GET", base+"/metrics", nil).body); !strings.Contains(m, "\nhallmark_broken_objects 1\n") || !strings.Contains(m, "hallmark_broken_total{kind=") {
				t.Error("the metrics do not say so")
			}
			other, otherBase := again(t, first, nil)
			if len(other.Store.Broken()) != 1 || planned(t, otherBase, p, p.stripped) != api.Upload {
				t.Error("another server does not know it")
			}
			upload(t, otherBase, p.stripped, "").want(t, 200)
			if err := s.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, base := range []string{base, otherBase} {
				got := ask(t, "GET", base+"/buildid/"+p.id.String()+"/executable", nil).want(t, 200)
				if !bytes.Equal(got.body, p.stripped) || planned(t, base, p, p.stripped) != api.Skip {
					t.Errorf("%d bytes", len(got.body))
				}
			}
			if len(s.Store.Broken())+len(other.Store.Broken()) != 0 {
				t.Errorf("%v and %v are broken", s.Store.Broken(), other.Store.Broken())
			}
		})
	}
}

// TestLostFileComesFromUpstream has another server bring what the store has lost.
func TestLostFileComesFromUpstream(t *testing.T) {
	p := program(t)
	_, first := start(t, nil)
	upload(t, first, p.debug, "").want(t, 201)
	for what, lose := range losses {
		here, base := start(t, nil)
		upload(t, base, p.debug, "").want(t, 201)
		if err := lose(objectPath(here, p.debug)); err != nil {
			t.Fatal(err)
		}
		_, base = again(t, here, func(c *Config) {
			c.Upstream = &debuginfod.Client{URLs: []string{first}, Dir: filepath.Join(t.TempDir(), "cache")}
		})
		url := base + "/buildid/" + p.id.String() + "/debuginfo"
		fetched(t, url) // it may end in the middle: that it is damaged shows there
		if got := ask(t, "GET", url, nil).want(t, 200); !bytes.Equal(got.body, p.debug) {
			t.Errorf("%s: %d bytes", what, len(got.body))
		}
	}
}

// TestCheckFindsLostFiles has a server check its store: nobody asked for what is lost.
func TestCheckFindsLostFiles(t *testing.T) {
	p := program(t)
	s, base := start(t, func(c *Config) { c.CheckEvery, c.Log = time.Hour, slog.New(slog.DiscardHandler) })
	upload(t, base, p.stripped, "").want(t, 201)
	upload(t, base, p.debug, "").want(t, 201)
	if err := losses["a bit"](objectPath(s, p.debug)); err != nil {
		t.Fatal(err)
	}
	s.check(t.Context())
	if broken := s.Store.Broken(); len(broken) != 1 || broken[0].Object != hashHex(p.debug) || planned(t, base, p, p.debug) != api.Upload {
		t.Errorf("broken: %+v", broken)
	}
	if ok, err := s.Store.TakeTurn(context.Background(), store.CheckTurn, time.Hour); ok || err != nil {
		t.Errorf("another server checks it again: %v", err)
	}
	upload(t, base, p.debug, "").want(t, 200)
	if got := ask(t, "GET", base+"/buildid/"+p.id.String()+"/debuginfo", nil).want(t, 200); !bytes.Equal(got.body, p.debug) {
		t.Errorf("%d bytes", len(got.body))
	}
}

// TestBrokenOff damages the end of a file that is large enough for its answer to have begun: the log has one line about it,
// an error with its cause, and a metric counts it. Lines of answers that are whole name no error.
func TestBrokenOff(t *testing.T) {
	p := program(t)
	big := append(slices.Clone(p.full), make([]byte, 3<<20)...)
	if _, err := rand.NewChaCha8([32]byte{}).Read(big[len(p.full):]); err != nil { // so that compression leaves it long
		t.Fatal(err)
	}
	var log lockedBuffer
	s, base := start(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	upload(t, base, big, "").want(t, 201)
	err := changed(func(b []byte) { b[len(b)/2] ^= 4 })(objectPath(s, big))
	if err != nil {
		t.Fatal(err)
	}
	_, base = again(t, s, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	if status, _ := fetched(t, base+"/buildid/"+p.id.String()+"/executable"); status != 0 {
		t.Fatalf("status %d of a file that is damaged", status)
	}
	metrics := string(ask(t, "GET", base+"/metrics", nil).want(t, 200).body)
	if want := `hallmark_broken_answers_total{kind="buildid"} 1`; !strings.Contains(metrics, want) {
		t.Errorf("no %s in the metrics:\n%s", want, metrics)
	}
	var lines []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "msg=request") && strings.Contains(line, "path=/buildid/") {
			lines = append(lines, line)
		}
		if strings.Contains(line, "error=<nil>") {
			t.Errorf("an error that is none: %s", line)
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "level=ERROR") || !strings.Contains(lines[0], "broken_off=true") || !strings.Contains(lines[0], "the store has lost the bytes of") {
		t.Errorf("lines about the answer: %q", lines)
	}
}

// A lockedBuffer is what several goroutines write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
