package debuginfod

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hallmark/buildid"
)

// TestSecretsStay has a server redirect to others, which get no header that is for it.
func TestSecretsStay(t *testing.T) {
	id, content := example(t)
	var seen []http.Header
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Clone())
		w.Write(content)
	}))
	defer other.Close()
	var own []string
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		own = append(own, r.Header.Get("X-Secret"))
		to := "/again" + r.URL.Path
		if strings.HasPrefix(r.URL.Path, "/again") {
			to = other.URL + r.URL.Path
		}
		http.Redirect(w, r, to, http.StatusFound)
	})
	c.Header = http.Header{"X-Secret": {"s3cr3t"}, "Authorization": {"Bearer abc"}}
	if _, err := c.Fetch(t.Context(), id, DebugInfo); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(own, []string{"s3cr3t", "s3cr3t"}) {
		t.Errorf("the server itself gets %q", own)
	}
	for _, h := range seen {
		if h.Get("X-Secret") != "" || h.Get("Authorization") != "" || h.Get("Referer") != "" || h.Get("User-Agent") != "hallmark" {
			t.Errorf("another server gets %v", h)
		}
	}
	if len(seen) != 1 {
		t.Errorf("%d requests to another server", len(seen))
	}
}

// TestRedirects wants those followed that lead to a server and take no secret along.
func TestRedirects(t *testing.T) {
	for _, tt := range []struct {
		urls   []string
		secret bool   // the last one gets it
		want   string // of the error
	}{
		{[]string{"https://a/x", "https://a/y"}, true, ""},
		{[]string{"https://a/x", "https://b/y"}, false, ""},
		{[]string{"https://a/x", "https://a:444/y"}, false, ""},
		{[]string{"http://a/x", "https://a/y"}, false, ""},
		{[]string{"https://a/x", "https://b/y", "https://a/z"}, false, ""},
		{[]string{"https://a/x", "http://a/y"}, false, "https to http"},
		{[]string{"https://a/x", "file:///etc/shadow"}, false, `the scheme "file"`},
		{slices.Repeat([]string{"https://a/x"}, 12), false, "more than"},
	} {
		c := &Client{Header: http.Header{"X-Secret": {"s3cr3t"}}}
		var requests []*http.Request
		for _, u := range tt.urls {
			r := httptest.NewRequest("GET", u, nil)
			r.Header = c.Header.Clone()
			requests = append(requests, r)
		}
		last := requests[len(requests)-1]
		err := c.redirect(last, requests[:len(requests)-1])
		var lasting *lastingError
		switch {
		case tt.want == "" && err != nil, tt.want != "" && (!errors.As(err, &lasting) || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%q: %v, want %q", tt.urls, err, tt.want)
		case err == nil && (last.Header.Get("X-Secret") != "") != tt.secret:
			t.Errorf("%q: the last one gets %v", tt.urls, last.Header)
		}
	}
}

// TestSourceElsewhere has a server redirect who asks it for a source to one that only the client reaches.
func TestSourceElsewhere(t *testing.T) {
	id, _ := example(t)
	asked := 0
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		fmt.Fprint(w, "a secret")
	}))
	defer other.Close()
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/moved"):
			fmt.Fprint(w, "a source")
		case strings.HasSuffix(r.URL.Path, "/there.c"):
			http.Redirect(w, r, "/moved", http.StatusFound)
		default:
			http.Redirect(w, r, other.URL+"/latest/meta-data", http.StatusFound)
		}
	})
	if path, err := c.Fetch(t.Context(), id, Source("/there.c")); err != nil {
		t.Errorf("one that the server itself has elsewhere: %v", err)
	} else if b, err := os.ReadFile(path); err != nil || string(b) != "a source" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := c.Fetch(t.Context(), id, Source("/elsewhere.c")); err == nil || !strings.Contains(err.Error(), "redirects a source") || asked > 0 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	for to, same := range map[string]bool{"https://a/x": true, "http://a/x": true, "http://a:81/x": false, "https://a:8443/x": false, "https://b/x": false} {
		first, then := httptest.NewRequest("GET", "http://a/source", nil).URL, httptest.NewRequest("GET", to, nil).URL
		if sameServer(first, then) != same {
			t.Errorf("%s: %v", to, !same)
		}
	}
}

// TestSourceFails has a server fail for a path of a source, which whoever asks chooses. It is asked for files all the same.
func TestSourceFails(t *testing.T) {
	id, content := example(t)
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/slow.c"):
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, ".c"):
			w.WriteHeader(http.StatusInternalServerError)
		default:
			w.Write(content)
		}
	})
	c.Timeout = 100 * time.Millisecond
	for _, name := range []string{"/fails.c", "/slow.c"} {
		var failed *Error
		if _, err := c.Fetch(t.Context(), id, Source(name)); !errors.As(err, &failed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Fetch(t.Context(), id, DebugInfo); err != nil {
		t.Error(err)
	}
}

// TestSourceCut has a server, or a proxy before it, end a source early.
func TestSourceCut(t *testing.T) {
	id, _ := example(t)
	for sent, want := range map[string]bool{"int main(": false, "int main() {}\n": true} {
		c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			h, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer h.Close()
			fmt.Fprintf(h, "HTTP/1.0 200 OK\r\nX-DEBUGINFOD-SIZE: 14\r\n\r\n%s", sent)
		})
		if _, err := c.Fetch(t.Context(), id, Source("/main.c")); (err == nil) != want {
			t.Errorf("%q: %v", sent, err)
		}
	}
}

// trickle is a body of which some bytes come each second.
type trickle struct {
	ctx      context.Context
	each     int
	content  []byte
	anything bool // without end
}

func (r *trickle) Read(b []byte) (int, error) {
	select {
	case <-time.After(time.Second):
	case <-r.ctx.Done():
		return 0, r.ctx.Err()
	}
	if len(r.content) == 0 && !r.anything {
		return 0, io.EOF
	}
	n := copy(b[:min(r.each, len(b))], r.content)
	r.content = r.content[n:]
	return max(n, 1), nil
}

func (r *trickle) Close() error { return nil }

// TestSlowServer gives up a server that sends a byte a second, and no large file that comes at
// 8 KiB a second.
func TestSlowServer(t *testing.T) {
	id, _ := example(t)
	large := make([]byte, 8<<20)
	copy(large, elfMagic)
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		body trickle
		most time.Duration
		want string
	}{
		"a byte a second": {trickle{each: 1, content: []byte(elfMagic), anything: true}, time.Minute, "less than 100 KiB of a file in 15s"},
		"slow and large":  {trickle{each: 8 << 10, content: large}, time.Hour, "what it sent"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			c := &Client{Dir: filepath.Join(dir, "cache"), Timeout: defaultTimeout}
			began := time.Now()
			stop := time.AfterFunc(tt.most, func() { cancel(errors.New("the watchdog of the test")) })
			defer stop.Stop()
			tt.body.ctx = ctx
			err := c.receive(ctx, cancel, &http.Response{Body: &tt.body, ContentLength: -1}, key{id: id, file: DebugInfo})
			if err == nil || !strings.Contains(errors.Join(causeOf(ctx), err).Error(), tt.want) {
				t.Errorf("%s: %v, %v after %v; want %q", name, err, context.Cause(ctx), time.Since(began), tt.want)
			}
		})
	}
}

// TestBomb sends few bytes that become many, and wants nothing of them in the cache.
func TestBomb(t *testing.T) {
	id, _ := example(t)
	const most = 256 << 20
	sent := 0
	c, requests := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		io.WriteString(z, elfMagic)
		for block := make([]byte, 1<<20); sent < most; sent += len(block) {
			if _, err := z.Write(block); err != nil {
				return
			}
		}
		z.Close()
	})
	c.Retries = 2
	var largest int64
	c.Progress = func(_ buildid.ID, _ File, n, _ int64) { largest = n }
	_, err := c.Fetch(t.Context(), id, DebugInfo)
	if err == nil || !strings.Contains(err.Error(), "100 times as many") || largest > 2*freeSize || requests.Load() != 1 {
		t.Errorf("%v after %d bytes and %d requests", err, largest, requests.Load())
	}
	onlyFiles(t, c, id)
}

// repeated is a body that begins with head and goes on with tail, up to a size that no client
// should receive. It comes at once, or so many bytes a second.
type repeated struct {
	head, tail []byte
	each, sent int
}

var errTooLong = errors.New("the client receives without end")

func (r *repeated) Read(b []byte) (int, error) {
	if r.sent > 8<<20 {
		return 0, errTooLong
	}
	if r.each > 0 {
		time.Sleep(time.Second * time.Duration(len(b)) / time.Duration(r.each))
	}
	for i := range b {
		if r.sent < len(r.head) {
			b[i] = r.head[r.sent]
		} else {
			b[i] = r.tail[(r.sent-len(r.head))%len(r.tail)]
		}
		r.sent++
	}
	return len(b), nil
}

func (r *repeated) Close() error { return nil }

// packed returns a member of gzip.
func packed(t *testing.T, content string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestMuchForNothing has servers send without end what unpacks to nothing, or to next to nothing.
func TestMuchForNothing(t *testing.T) {
	id, _ := example(t)
	dir := t.TempDir()
	empty := packed(t, "")
	for name, body := range map[string]repeated{
		"members":            {tail: empty},
		"stored blocks":      {head: empty[:10], tail: []byte{0, 0, 0, 0xff, 0xff}},
		"a file, and then":   {head: packed(t, elfMagic), tail: empty},
		"a byte in 100 ones": {head: packed(t, elfMagic), tail: slices.Concat(packed(t, "x"), bytes.Repeat(empty, 99))},
	} {
		for _, each := range []int{0, 1 << 10, 8 << 10, 24 << 10} {
			t.Run(fmt.Sprintf("%s, %d bytes a second", name, each), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					c := &Client{Dir: filepath.Join(dir, "cache"), Timeout: defaultTimeout}
					body := body
					body.each = each
					began := time.Now()
					answer := &http.Response{Body: until{ctx, &body}, ContentLength: -1, Header: http.Header{"Content-Encoding": {"gzip"}}}
					err := c.receive(ctx, cancel, answer, key{id: id, file: DebugInfo})
					if err == nil || errors.Is(err, errTooLong) || body.sent > 2*wasteFree || time.Since(began) > time.Minute {
						t.Errorf("%v after %d bytes and %v", errors.Join(causeOf(ctx), err), body.sent, time.Since(began))
					}
				})
			})
		}
	}
}

// until is a body that ends with the request.
type until struct {
	ctx context.Context
	io.ReadCloser
}

func (u until) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, u.ctx.Err()
	}
	return u.ReadCloser.Read(b)
}

// TestWhatDoesNotPack receives a large file that gzip makes larger, in small blocks.
func TestWhatDoesNotPack(t *testing.T) {
	id, _ := example(t)
	file := make([]byte, 1<<20)
	if _, err := rand.Read(file); err != nil {
		t.Fatal(err)
	}
	copy(file, elfMagic)
	var progress int64
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		for block := range slices.Chunk(file, 100) {
			if _, err := z.Write(block); err != nil {
				return
			}
			if err := z.Flush(); err != nil {
				return
			}
		}
	})
	c.Progress = func(_ buildid.ID, _ File, n, _ int64) { progress = n }
	_, err := c.Fetch(t.Context(), id, DebugInfo)
	if err == nil || !strings.Contains(err.Error(), "what it sent") || progress != int64(len(file)) {
		t.Errorf("%v after %d bytes", err, progress)
	}
}

// TestNoELF ends a download by its first bytes.
func TestNoELF(t *testing.T) {
	id, _ := example(t)
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for range 4 << 10 {
			if _, err := w.Write([]byte(strings.Repeat("MZ no ELF file", 100))); err != nil {
				return
			}
		}
	})
	_, err := c.Fetch(t.Context(), id, DebugInfo)
	if err == nil || !strings.Contains(err.Error(), "no ELF file") {
		t.Error(err)
	}
	onlyFiles(t, c, id)
}
