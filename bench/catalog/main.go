// Command catalog measures how long 'hallmark serve' takes to know what a bucket with many identities has: when it starts over
// a bucket that servers without a catalogue filled, when it starts again, and when another server takes a file. The bucket
// is one of versitygw, over a directory.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"hallmark/bench/browser"
	"hallmark/bench/internal/process"
	"hallmark/bench/internal/trial"
	"hallmark/buildid"
	"hallmark/internal/elftest"
	"hallmark/server/api"
	"hallmark/server/blob"
	"hallmark/server/blob/s3blob"
	"hallmark/server/store"
)

var (
	identities = flag.Int("identities", 200_000, "identities that the bucket has")
	rounds     = trial.Rounds("rounds", 5, "starts over the bucket that is known")
	pushes     = flag.Int("pushes", 200, "files that another server takes")
	atOnce     = flag.Int("at-once", 16, "objects that are written at a time")
	keep       = flag.String("dir", "", "a directory for the bucket, which stays, and is not filled again if it is there")
)

func main() { trial.Main("catalog", run) }

const user, password = "user", "password"

func run(dir string) error {
	command := filepath.Join(dir, "hallmark")
	build := exec.Command("go", "build", "-o", command, "./cmd/hallmark")
	build.Dir, build.Stderr = "..", os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	data := *keep
	if data == "" {
		data = filepath.Join(dir, "bucket")
	}
	endpoint, stop, err := startS3(data)
	if err != nil {
		return err
	}
	defer stop()
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": user, "AWS_SECRET_ACCESS_KEY": password} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	where := "s3://bucket?region=us-east-1&endpoint=" + endpoint
	if err := fill(where); err != nil {
		return err
	}
	if err := measureStarts(command, dir, where); err != nil {
		return err
	}
	return measurePushes(command, dir, where)
}

// startS3 starts versitygw over a directory.
func startS3(dir string) (endpoint string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address := l.Addr().String()
	l.Close()
	for _, sub := range []string{"objects", "sidecar"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return "", nil, err
		}
	}
	cmd := exec.Command("versitygw", "--quiet", "--access", user, "--secret", password, "--port", address, "posix", "--sidecar", filepath.Join(dir, "sidecar"), filepath.Join(dir, "objects"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("%w (go install github.com/versity/versitygw/cmd/versitygw@v1.8.0)", err)
	}
	stop = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	for range 100 {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return "http://" + address, stop, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	return "", nil, errors.New("versitygw does not listen")
}

// fill writes manifests as servers without a catalogue do. Each identity has a program or library, and its debug file, of
// packages as Debian names them.
func fill(where string) error {
	blobs, err := s3blob.Open(where, os.Getenv)
	if err != nil {
		return err
	}
	if err := blobs.MakeBucket(context.Background()); err != nil {
		return err
	}
	_, err = blobs.Head(context.Background(), "filled")
	if err == nil {
		return nil
	}
	begun := time.Now()
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	for range *atOnce {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < *identities && failed.Load() == nil; i = int(next.Add(1)) - 1 {
				if err := put(blobs, manifest(i)); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	fmt.Printf("%d identities were written in %.0f s\n", *identities, time.Since(begun).Seconds())
	_, err = blobs.PutIfAbsent(context.Background(), "filled", strings.NewReader(""), 0)
	return err
}

func put(blobs blob.Store, m *store.Manifest) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	id := m.ID.String()
	_, err = blobs.PutIfAbsent(context.Background(), "id/gnu/"+id[:2]+"/"+id[2:]+"/manifest.json", bytes.NewReader(b), int64(len(b)))
	if errors.Is(err, blob.ErrExist) {
		return nil
	}
	return err
}

var words = strings.Fields("gtk qt5 boost python3 perl ruby gnome kde x11 ssl crypto json xml yaml http net math linear image audio video font text parse graph tree index cache store sync async event signal thread atomic")

// manifest returns the manifest of identity i.
func manifest(i int) *store.Manifest {
	r := rand.New(rand.NewPCG(uint64(i), 36))
	random := func(n int) []byte {
		b := make([]byte, (n+7)/8*8)
		for at := 0; at < n; at += 8 {
			binary.LittleEndian.PutUint64(b[at:], r.Uint64())
		}
		return b[:n]
	}
	id, err := buildid.New(buildid.GNU, random(20))
	if err != nil {
		panic(err) // of 20 bytes
	}
	word := func() string { return words[r.IntN(len(words))] }
	source := word() + "-" + word()
	version := fmt.Sprintf("%d.%d.%d-%d", r.IntN(9), r.IntN(20), r.IntN(10), r.IntN(4))
	pool := "/srv/mirror/pool/main/" + source[:1] + "/" + source + "/"
	name := fmt.Sprintf("/usr/lib/x86_64-linux-gnu/lib%s%s%d.so.%d.%d", word(), word(), r.IntN(1000), r.IntN(9), r.IntN(20))
	when := time.Date(2026, 1, 1, 0, 0, r.IntN(1<<24), 0, time.UTC)
	file := func(path, archive string, facts store.Facts, size int64) store.File {
		facts.ID, facts.Machine, facts.Segments = id, uint16(elf.EM_X86_64), fmt.Sprintf("1000+%x", r.IntN(1<<20))
		return store.File{Object: hex.EncodeToString(random(32)), Size: size, Facts: facts, Origins: []store.Origin{{Trust: store.Operator, Via: "scan", Path: path, Archive: archive, Package: source + " " + version + " amd64", Build: source + " " + version, Time: when}}}
	}
	hexID := id.String()
	return &store.Manifest{Version: 1, ID: id, Life: fmt.Sprint(i), Files: []store.File{
		file(name, pool+"lib"+source+"_"+version+"_amd64.deb", store.Facts{Executable: true, Symbols: store.Exported}, 100_000),
		file("/usr/lib/debug/.build-id/"+hexID[:2]+"/"+hexID[2:]+".debug", pool+"lib"+source+"-dbgsym_"+version+"_amd64.deb", store.Facts{Debug: true, Symbols: store.Lines, DebugSize: 1 << 20}, 400_000),
	}}
}

// health returns what a server says of itself.
func health(base string) (h api.Health, err error) {
	return h, get(base+"/v1/health", &h)
}

func get(url string, v any) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(v)
}

// waitTime is how long a server may take to be complete.
const waitTime = time.Hour

// complete waits until a server is complete.
func complete(base string) error {
	for begun := time.Now(); time.Since(begun) < waitTime; time.Sleep(20 * time.Millisecond) {
		h, err := health(base)
		if err != nil {
			return err
		}
		if h.Complete && h.Identities >= int64(*identities) {
			return nil
		}
	}
	return fmt.Errorf("%s is not complete after %v", base, waitTime)
}

func start(command, dir, cache, where string) (*browser.View, error) {
	return browser.StartServer(command, filepath.Join(dir, cache), "--store", where, "--gc-every", "0", "--check-every", "0")
}

// measureStarts starts a server, which looks at all manifests where nobody did before, and then again.
func measureStarts(command, dir, where string) error {
	fmt.Println("| start | ready s | complete s | CPU s | MiB | peak MiB | search ms |")
	fmt.Println("|---|--:|--:|--:|--:|--:|--:|")
	for i := range *rounds + 1 {
		begun := time.Now()
		s, err := start(command, dir, "one", where)
		if err != nil {
			return err
		}
		ready := time.Since(begun)
		err = complete(strings.TrimSuffix(s.URL, "/"))
		done := time.Since(begun)
		var found api.SearchAnswer
		searching := time.Now()
		if err == nil {
			err = get(strings.TrimSuffix(s.URL, "/")+"/v1/search?q=libgtkqt5", &found)
		}
		search := time.Since(searching)
		if err == nil && found.Total == 0 {
			err = errors.New("the search found nothing")
		}
		if i == 0 { // what others do is followed, and merged
			time.Sleep(10 * time.Second)
		}
		fmt.Printf("| %d | %.2f | %.2f | %.2f | %.0f | %.0f | %.0f |\n", i, ready.Seconds(), done.Seconds(), process.CPU(s.PID()), process.Resident(s.PID()), process.Peak(s.PID()), search.Seconds()*1000)
		s.Stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// measurePushes has one server take files, and asks another one for these until it knows them.
func measurePushes(command, dir, where string) error {
	one, err := start(command, dir, "one", where)
	if err != nil {
		return err
	}
	defer one.Stop()
	two, err := start(command, dir, "two", where)
	if err != nil {
		return err
	}
	defer two.Stop()
	from, to := strings.TrimSuffix(one.URL, "/"), strings.TrimSuffix(two.URL, "/")
	if err := errors.Join(complete(from), complete(to)); err != nil {
		return err
	}
	var mu sync.Mutex
	var late []time.Duration
	var failed error
	var waiting sync.WaitGroup
	for range *pushes {
		waiting.Go(func() {
			time.Sleep(rand.N(time.Duration(*pushes) * 500 * time.Millisecond))
			d, err := pushed(from, to)
			mu.Lock()
			defer mu.Unlock()
			late, failed = append(late, d), errors.Join(failed, err)
		})
	}
	waiting.Wait()
	if failed != nil {
		return failed
	}
	slices.Sort(late)
	at := func(q float64) float64 { return late[int(q*float64(len(late)-1))].Seconds() }
	fmt.Printf("\n%d files that one server took, until another one finds them: median %.1f s, p99 %.1f s, at most %.1f s\n", len(late), at(0.5), at(0.99), at(1))
	for _, s := range []*browser.View{one, two} {
		h, err := health(strings.TrimSuffix(s.URL, "/"))
		if err != nil {
			return err
		}
		fmt.Printf("afterwards: %d identities, complete: %v, %.0f MiB, at most %.0f MiB, %.1f s of CPU time\n", h.Identities, h.Complete, process.Resident(s.PID()), process.Peak(s.PID()), process.CPU(s.PID()))
	}
	return nil
}

// pushed sends a program to one server, and returns how long after the answer another one finds it by its name.
func pushed(from, to string) (time.Duration, error) {
	id := make([]byte, 20)
	binary.LittleEndian.PutUint64(id, rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	b := elftest.File{
		Segments: []elftest.Segment{{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, From: ".text", Vaddr: 0x1000}},
		Sections: []elftest.Section{
			{Name: ".note.gnu.build-id", Type: elf.SHT_NOTE, Flags: elf.SHF_ALLOC, Data: elftest.Notes(nil, 4, elftest.GNU(id))},
			{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 0x1000, Data: id},
		},
	}.Build()
	sum := sha256.Sum256(b)
	name := "/usr/bin/" + hex.EncodeToString(id)
	r, err := http.NewRequest("PUT", from+"/v1/files/"+hex.EncodeToString(sum[:])+"?name="+url.QueryEscape(name), bytes.NewReader(b))
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return 0, fmt.Errorf("push: %s: %s", resp.Status, text)
	}
	for begun := time.Now(); time.Since(begun) < waitTime; time.Sleep(200 * time.Millisecond) {
		var found struct{ Results []struct{ File string } }
		if err := get(to+"/metadata?key=buildid&value="+hex.EncodeToString(id), &found); err != nil {
			return 0, err
		}
		if len(found.Results) > 0 && found.Results[0].File == name {
			return time.Since(begun), nil
		}
	}
	return 0, fmt.Errorf("%s is not found after %v", name, waitTime)
}
