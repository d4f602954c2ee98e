package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"hallmark/internal/testenv"
	"hallmark/server/api"
	"hallmark/server/blob"
	"hallmark/server/store"
)

// syncBuffer is a log that several goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// slowMarks is a store in which marks of broken objects take time.
type slowMarks struct {
	blob.Store
	written chan bool
}

func (s *slowMarks) PutIfAbsent(ctx context.Context, key string, r io.Reader, size int64) (blob.Info, error) {
	if strings.HasPrefix(key, "broken/") {
		<-s.written
	}
	return s.Store.PutIfAbsent(ctx, key, r, size)
}

// TestLostOnce has requests ask for a damaged file before its mark is written: it is logged once, and by its name. Then
// another process finds a loss: the next plan wants that file.
func TestLostOnce(t *testing.T) {
	p := program(t)
	for _, readOnly := range []bool{false, true} {
		var text syncBuffer
		blobs, err := blob.OpenDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer blobs.Close()
		marks := &slowMarks{blobs, make(chan bool)}
		s, base := start(t, func(c *Config) { c.Store.Blobs = blobs })
		upload(t, base, p.stripped, "name=/usr/bin/prog&package=prog+1.0").want(t, http.StatusCreated)
		two, other := start(t, func(c *Config) {
			c.Store.Blobs, c.Log, c.ReadOnly = marks, slog.New(slog.NewTextHandler(&text, nil)), readOnly
		})
		if err := losses["its end"](objectPath(s, p.stripped)); err != nil {
			t.Fatal(err)
		}
		get := func() { ask(t, "GET", other+"/buildid/"+p.id.String()+"/executable", nil).want(t, http.StatusNotFound) }
		var first sync.WaitGroup
		first.Go(get)
		if !readOnly {
			testenv.Await(t, "the damage to be found", func() bool { return len(two.Store.Broken()) > 0 })
		}
		for range 3 {
			get()
			if err := two.Store.LoadBroken(t.Context()); err != nil {
				t.Error(err)
			}
		}
		close(marks.written)
		first.Wait()
		get()
		if log := text.String(); strings.Count(log, `msg="the store has lost`) != 1 || strings.Contains(log, "again: cas/") || !strings.Contains(log, "build_id="+p.id.String()+" path=/usr/bin/prog package=\"prog 1.0\"") {
			t.Errorf("read-only: %v: %s", readOnly, log)
		}
	}
}

// TestLossOfAnotherProcess has another process find a loss: the next plan wants that file, without a delay.
func TestLossOfAnotherProcess(t *testing.T) {
	p := program(t)
	blobs, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	s, base := start(t, func(c *Config) { c.Store.Blobs = blobs })
	upload(t, base, p.stripped, "name=/usr/bin/prog").want(t, http.StatusCreated)
	if err := losses["a bit"](objectPath(s, p.stripped)); err != nil {
		t.Fatal(err)
	}
	check := &store.Store{Blobs: blobs, Scratch: t.TempDir()}
	var lost []store.Lost
	if _, err := check.Check(t.Context(), store.Checking{OnDamage: func(l store.Lost) { lost = append(lost, l) }}); err != nil || len(lost) != 1 {
		t.Fatalf("%+v, %v", lost, err)
	}
	if lost[0].ID != p.id.String() || lost[0].Path != "/usr/bin/prog" || strings.HasPrefix(lost[0].Why, ":") {
		t.Errorf("%+v", lost[0])
	}
	plan, err := json.Marshal(api.Plan{Files: []api.PlanFile{{ID: p.id, SHA256: hashHex(p.stripped), Size: int64(len(p.stripped))}}})
	if err != nil {
		t.Fatal(err)
	}
	if out := read[api.Planned](t, ask(t, "POST", base+"/v1/plan", bytes.NewReader(plan)).want(t, http.StatusOK)); out.Files[0].Action != api.Upload {
		t.Errorf("%+v", out)
	}
	upload(t, base, p.stripped, "name=/usr/bin/prog").want(t, http.StatusOK)
	if done, err := check.Check(t.Context(), store.Checking{}); err != nil || done.Broken != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if _, err := os.Stat(fmt.Sprintf("%s/broken/%s/%s", blobs, hashHex(p.stripped)[:2], hashHex(p.stripped))); !os.IsNotExist(err) {
		t.Errorf("its mark: %v", err)
	}
}
