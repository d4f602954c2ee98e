package s3blob_test

import (
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hallmark/server/blob"
	"hallmark/server/blob/blobtest"
	"hallmark/server/blob/s3blob"
	"hallmark/server/store"
)

// startService starts an S3 server, and returns its URL and the environment for it.
func startService(t *testing.T) (endpoint string, getenv func(string) string) {
	t.Helper()
	return blobtest.StartS3(t), func(string) string { return "" }
}

func TestStore(t *testing.T) {
	endpoint, getenv := startService(t)
	n := 0
	blobtest.Run(t, func(t *testing.T) blob.Store {
		n++
		s, err := s3blob.Open(fmt.Sprintf("s3://bucket-%d/some/prefix?endpoint=%s&region=us-east-1", n%2, endpoint+""), getenv)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.MakeBucket(t.Context()); err != nil {
			t.Fatal(err)
		}
		for info, err := range s.List(t.Context(), "") {
			if err == nil {
				err = s.Delete(t.Context(), info.Key)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return s
	})
}

// TestCollect removes an identity from a bucket, and the objects of it a day later.
func TestCollect(t *testing.T) {
	endpoint, getenv := startService(t)
	blobs, err := s3blob.Open("s3://bucket/prefix?region=us-east-1&endpoint="+endpoint, getenv)
	if err != nil {
		t.Fatal(err)
	}
	if err := blobs.MakeBucket(t.Context()); err != nil {
		t.Fatal(err)
	}
	days := 0
	s := &store.Store{Blobs: blobs, Scratch: t.TempDir(), Now: func() time.Time { return time.Now().AddDate(0, 0, days) }}
	file, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	add := func() store.Added {
		t.Helper()
		spool, err := s.Spool(t.Context(), io.NewSectionReader(file, 0, 1<<40))
		if err != nil {
			t.Fatal(err)
		}
		defer spool.Close()
		a, err := s.Add(t.Context(), spool, store.Claim{Origin: store.Origin{Trust: store.CI, Via: "push"}})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := add()
	for _, step := range []struct {
		days int
		want store.Collected
	}{{3, store.Collected{Removed: 1, Marked: 1}}, {6, store.Collected{Objects: 1}}, {9, store.Collected{Leftover: 1}}} {
		days = step.days
		got, err := s.Collect(t.Context(), store.Collection{Retention: store.Retention{Age: time.Hour}})
		got.Freed = 0
		if err != nil || got != step.want {
			t.Errorf("after %d days: %+v, %v", days, got, err)
		}
		if _, err := s.Manifest(t.Context(), a.ID); !errors.Is(err, blob.ErrNotExist) {
			t.Errorf("after %d days: %v", days, err)
		}
	}
	if a := add(); !a.New || a.Manifest.Life == "" {
		t.Errorf("%+v", a.Manifest)
	}
}

func TestNoBucket(t *testing.T) {
	endpoint, getenv := startService(t)
	s, err := s3blob.Open("s3://gone?region=us-east-1&endpoint="+endpoint, getenv)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutIfAbsent(t.Context(), "k", strings.NewReader("x"), 1); !errors.Is(err, blob.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if _, _, err := s.Get(t.Context(), "k", 0, -1); !errors.Is(err, blob.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// TestFailures has a service that answers with failures, and with less than it announced.
func TestFailures(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "user")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "password")
	for name, answer := range map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"503": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"truncated": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.Header().Set("ETag", `"tag"`)
			w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
			fmt.Fprint(w, "few")
		},
		"closed": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { requests.Add(1); answer(w, r) }))
			defer srv.Close()
			s, err := s3blob.Open("s3://bucket?region=us-east-1", func(name string) string {
				if name == "AWS_ENDPOINT_URL" {
					return srv.URL
				}
				return ""
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := blob.Read(t.Context(), s, "k", 1<<20); !errors.Is(err, blob.ErrUnavailable) {
				t.Errorf("%v", err)
			}
			if n := requests.Load(); n == 0 || n > 5 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestBytesOfAnotherTag has a service send the bytes of what was before with the tag of what came, as versitygw does
// while an object is replaced.
func TestBytesOfAnotherTag(t *testing.T) {
	sum := func(text string) string { return fmt.Sprintf("%x", md5.Sum([]byte(text))) }
	for name, c := range map[string]struct {
		torn     int  // answers that have other bytes
		isKnown  bool // that tags are MD5 sums
		header   string
		want     string // "": it fails
		requests int
	}{
		"for a while":                     {6, true, "", "new", 7},
		"for ever":                        {1 << 20, true, "", "", 11},
		"tags are others each time":       {1 << 20, false, "", "old", 4},
		"tags are others, and it says so": {1 << 20, true, "aws:kms", "old", 1},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text := "new"
				if strings.HasSuffix(r.URL.Path, "/k") {
					if requests++; requests <= c.torn {
						text = "old"
					}
					w.Header().Set("X-Amz-Server-Side-Encryption", c.header)
				}
				w.Header().Set("ETag", `"`+sum("new")+`"`)
				w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
				_, _ = io.WriteString(w, text)
			}))
			defer srv.Close()
			s, err := s3blob.Open("s3://bucket?region=us-east-1&endpoint="+srv.URL, func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			if c.isKnown {
				if _, _, err := blob.Read(t.Context(), s, "other", 10); err != nil {
					t.Fatal(err)
				}
			}
			b, _, err := blob.Read(t.Context(), s, "k", 10)
			if string(b) != c.want || c.want == "" && !errors.Is(err, blob.ErrUnavailable) || requests != c.requests {
				t.Errorf("%q after %d requests, %v", b, requests, err)
			}
		})
	}
}

func TestURLs(t *testing.T) {
	none := func(string) string { return "" }
	for _, bad := range []string{"", "bucket", "http://x/", "s3:///x", "s3://b/../c", "s3://b?x=1", "s3://b?endpoint=nonsense", "s3://b?endpoint=ftp://x", "s3://user:secret@b"} {
		if s, err := s3blob.Open(bad, none); err == nil {
			t.Errorf("%q: %v", bad, s)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	}
}

// TestProfiles keeps profiles in a bucket: one that comes twice, is removed, and comes again.
func TestProfiles(t *testing.T) {
	endpoint, getenv := startService(t)
	blobs, err := s3blob.Open("s3://profiles/prefix?endpoint="+endpoint+"&region=us-east-1", getenv)
	if err != nil {
		t.Fatal(err)
	}
	if err := blobs.MakeBucket(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &store.Store{Blobs: blobs, Scratch: t.TempDir()}
	defer s.Close()
	add := func(text string, wantNew bool) *store.Profile {
		t.Helper()
		spool, err := s.Spool(t.Context(), strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		defer spool.Close()
		p, isNew, err := s.AddProfile(t.Context(), spool, store.Profile{Role: store.CI, Kind: "test"})
		if err != nil || isNew != wantNew {
			t.Fatalf("%+v new: %v, %v", p, isNew, err)
		}
		return p
	}
	content := func(id string) string {
		t.Helper()
		p, err := s.Profile(t.Context(), id)
		if errors.Is(err, blob.ErrNotExist) {
			return ""
		}
		if err != nil {
			t.Fatal(err)
		}
		o, err := s.OpenProfile(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		b, err := io.ReadAll(o.Stream())
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	one, two := add("one", true), add("two", true)
	add("one", false)
	if content(one.ID) != "one" || content(two.ID) != "two" {
		t.Error("other bytes came back")
	}
	known, err := s.Profiles(t.Context(), nil)
	if err != nil || len(known) != 2 {
		t.Fatal(known, err)
	}
	if ok, err := s.RemoveProfile(t.Context(), one); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if now, err := s.Profiles(t.Context(), known); err != nil || now[one.ID] != nil && now[one.ID].Object != "" || now[two.ID] == nil {
		t.Errorf("%+v %v", now, err)
	}
	if content(one.ID) != "" {
		t.Error("a profile that was removed is there")
	}
	add("one", true)
	done, err := s.Collect(t.Context(), store.Collection{Retention: store.Retention{Profiles: store.ProfileRetention{Count: 1}}})
	if err != nil || done.Profiles != 1 {
		t.Errorf("%+v %v", done, err)
	}
	if left := content(one.ID) + content(two.ID); left != "one" && left != "two" {
		t.Errorf("%q is left of one profile", left)
	}
}
