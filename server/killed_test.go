package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/testenv"
	"hallmark/server/api"
	"hallmark/server/blob"
	"hallmark/server/client"
	"hallmark/server/columns"
	"hallmark/server/store"
	"hallmark/server/symbols"
)

// servedVar makes the test binary a server over the directory that it names.
const servedVar = "HALLMARK_TEST_SERVED"

// serveIfChild serves until it is killed, and prints where.
func serveIfChild() {
	dir := os.Getenv(servedVar)
	if dir == "" {
		return
	}
	blobs, err := blob.OpenDir(filepath.Join(dir, "store"))
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, "scratch"), 0o700)
	}
	c := Config{Store: &store.Store{Blobs: blobs, Scratch: filepath.Join(dir, "scratch")}}
	c.Symbols = &symbols.Indexes{Store: c.Store, Dir: filepath.Join(dir, "index"), Log: slog.Default(), Lease: 2 * time.Second}
	s := New(c)
	if err == nil {
		err = s.Load(context.Background())
	}
	l, listened := net.Listen("tcp", "127.0.0.1:0")
	if err != nil || listened != nil {
		fmt.Println("error:", err, listened)
		os.Exit(1)
	}
	fmt.Println("http://" + l.Addr().String())
	fmt.Println("error:", s.Serve(context.Background(), l))
	os.Exit(1)
}

// served is a server in a process of its own.
type served struct {
	cmd *exec.Cmd
	url string
}

func startProcess(t *testing.T, dir string) served {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), servedVar+"="+dir)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	s := served{cmd, strings.TrimSpace(line)}
	if !strings.HasPrefix(s.url, "http://") {
		s.kill()
		t.Fatalf("the server says %q", line)
	}
	return s
}

func (s served) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// copyOf returns a program like p with an identity of its own.
func copyOf(p built, rng *rand.Rand) sent {
	id := make([]byte, len(p.id.Bytes()))
	for i := range id {
		id[i] = byte(rng.Uint32())
	}
	of, err := buildid.New(buildid.GNU, id)
	if err != nil {
		panic(err)
	}
	return sent{id: of, bytes: bytes.ReplaceAll(p.full, p.id.Bytes(), id)}
}

// sent is a file that was sent to a server, and what became of it.
type sent struct {
	id           buildid.ID
	bytes        []byte
	acknowledged bool
}

// send sends the whole file, or two parts of it, and notes whether the server acknowledged it.
func (f *sent) send(base string, inParts bool) {
	if !inParts {
		f.acknowledged = status("PUT", base+"/v1/files/"+hashHex(f.bytes), f.bytes) == http.StatusCreated
		return
	}
	url := base + "/v1/uploads/" + hashHex(f.bytes)
	half := len(f.bytes) / 2
	if status("PUT", url+"/0", f.bytes[:half])/100 == 2 && status("PUT", fmt.Sprint(url, "/", half), f.bytes[half:])/100 == 2 {
		f.acknowledged = status("POST", url, nil) == http.StatusCreated
	}
}

// status returns the status of a whole answer, 0 where the connection ended before.
func status(method, url string, body []byte) int {
	r, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// TestKilled kills a server again and again while files come in, are published and are indexed. The next one over
// the same directory has all that was acknowledged, and serves nothing that is not whole.
func TestKilled(t *testing.T) {
	t.Parallel()
	p := program(t)
	rounds := 12
	if testenv.Thorough() {
		rounds = 1000
	}
	f, err := strconv.ParseUint(addressOf(t, p, "f"), 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	rng := testenv.Rand(t)
	dir := t.TempDir()
	var files []*sent
	for range rounds {
		s := startProcess(t, dir)
		checkAll(t, s.url, lastOf(files, 60), f, false)
		var senders sync.WaitGroup
		fresh := make([][]*sent, 3)
		for i := range fresh {
			for range 20 {
				c := copyOf(p, rng)
				fresh[i] = append(fresh[i], &c)
			}
			senders.Go(func() {
				for n, c := range fresh[i] {
					c.send(s.url, n%2 == 1)
					if !c.acknowledged {
						continue
					}
					if c, err := client.New(s.url, ""); err == nil && n%4 < 2 { // which has an index built
						_, _ = c.Symbolize(t.Context(), question(fresh[i][n].id, f))
					}
				}
			})
		}
		time.Sleep(time.Duration(rng.IntN(int(300 * time.Millisecond))))
		s.kill()
		senders.Wait()
		for _, list := range fresh {
			files = append(files, list...)
		}
	}
	s := startProcess(t, dir)
	defer s.kill()
	acknowledged, served := checkAll(t, s.url, files, f, true)
	checkSearch(t, s.url, files)
	t.Logf("%d files were sent, %d acknowledged, %d are served", len(files), acknowledged, served)
	if acknowledged == 0 || acknowledged == len(files) {
		testenv.Lack(t, "%d of %d files were acknowledged", acknowledged, len(files))
	}
}

// checkSearch wants each file that was acknowledged to be found, in an answer that is complete.
func checkSearch(t *testing.T, base string, files []*sent) {
	t.Helper()
	for i, file := range files {
		a := read[api.SearchAnswer](t, ask(t, "GET", base+"/v1/search?q="+file.id.String(), nil).want(t, http.StatusOK))
		if file.acknowledged && len(a.Results) != 1 || !a.Complete {
			t.Errorf("file %d, acknowledged %v: %+v", i, file.acknowledged, a)
		}
	}
}

func lastOf(files []*sent, n int) []*sent { return files[max(0, len(files)-n):] }

func question(id buildid.ID, address uint64) *columns.Question {
	return &columns.Question{Files: []columns.File{{ID: id.String(), Virtual: true, Addresses: []uint64{address}}}}
}

// checkAll wants each file that was acknowledged, and of the others all or nothing; and symbols at the end.
func checkAll(t *testing.T, base string, files []*sent, f uint64, atEnd bool) (acknowledged, served int) {
	t.Helper()
	c, err := client.New(base, "")
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range files {
		got := ask(t, "GET", base+"/buildid/"+file.id.String()+"/executable", nil)
		switch {
		case got.StatusCode == http.StatusNotFound && !file.acknowledged:
			continue
		case got.StatusCode != http.StatusOK:
			t.Errorf("file %d, acknowledged %v: status %d", i, file.acknowledged, got.StatusCode)
			continue
		case !bytes.Equal(got.body, file.bytes):
			t.Errorf("file %d, acknowledged %v: %d bytes that nobody sent", i, file.acknowledged, len(got.body))
		}
		served++
		if file.acknowledged {
			acknowledged++
		}
		if !atEnd || i%10 != 0 {
			continue
		}
		testenv.Await(t, "a symbol, or for the lease of a server that was killed to expire", func() bool {
			a, err := c.Symbolize(t.Context(), question(file.id, f))
			if err != nil {
				t.Fatal(err)
			}
			if a.Files[0].Why == string(symbols.Pending) {
				return false
			}
			if r := a.Results(0); a.Files[0].Why != "" || len(r[0].Frames) == 0 || r[0].Frames[len(r[0].Frames)-1].Func != "f" {
				t.Errorf("file %d: %q, %+v", i, a.Files[0].Why, r)
			}
			return true
		})
	}
	return acknowledged, served
}
