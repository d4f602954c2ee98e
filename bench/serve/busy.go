package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"hallmark/bench/browser"
	"hallmark/buildid"
)

var busy = flag.String("busy", "", "a large program, whose index is made while files are asked for")

const (
	paced = 5 * time.Millisecond // from one request of a client to the next
	quiet = 10 * time.Second     // in which nothing else is asked for
)

// measureBusy reports how long requests for a small file take while nothing else happens, and while the server makes the
// index of a large program.
func measureBusy(command, dir, small string) error {
	s, err := browser.StartServer(command, filepath.Join(dir, "busy"))
	if err != nil {
		return err
	}
	defer s.Stop()
	for _, name := range []string{small, *busy} {
		push := exec.Command(command, "push", "--server", s.URL, name)
		push.Stderr = os.Stderr
		if err := push.Run(); err != nil {
			return fmt.Errorf("push %s: %w", name, err)
		}
	}
	base := strings.TrimSuffix(s.URL, "/")
	one, err := buildid.ReadFile(small)
	if err != nil {
		return err
	}
	large, err := buildid.ReadFile(*busy)
	if err != nil {
		return err
	}
	url := base + "/buildid/" + one.ID.String() + "/executable"
	ctx, stop := context.WithTimeout(context.Background(), quiet)
	idle, err := latencies(ctx, url)
	stop()
	if err != nil {
		return err
	}
	ctx, stop = context.WithCancel(context.Background())
	defer stop()
	made := make(chan error, 1)
	begun := time.Now()
	var took time.Duration
	go func() {
		made <- awaitIndex(base, large.ID)
		took = time.Since(begun)
		stop()
	}()
	during, err := latencies(ctx, url)
	if err != nil {
		return err
	}
	if err := <-made; err != nil {
		return err
	}
	info, err := os.Stat(*busy)
	if err != nil {
		return err
	}
	at := func(list []time.Duration, share float64) float64 {
		return list[int(share*float64(len(list)-1))].Seconds() * 1e3
	}
	fmt.Printf("\nThe index of a file of %d MB, made in %.0f s. A request for a file meanwhile, and before, in ms:\n\n| | idle | meanwhile | × |\n|---|--:|--:|--:|\n", info.Size()/1e6, took.Seconds())
	for _, share := range []float64{0.5, 0.9, 0.99, 0.999} {
		a, b := at(idle, share), at(during, share)
		fmt.Printf("| p%g (of %d and %d) | %.2f | %.2f | %.1f |\n", 100*share, len(idle), len(during), a, b, b/a)
	}
	return nil
}

// latencies asks for a file by four clients, at a pace that leaves the server idle most of the time, until ctx is done. It
// returns how long each answer took, the shortest first.
func latencies(ctx context.Context, url string) ([]time.Duration, error) {
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4, DisableCompression: true}}
	defer c.CloseIdleConnections()
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			tick := time.NewTicker(paced)
			defer tick.Stop()
			for ctx.Err() == nil {
				begun := time.Now()
				resp, err := c.Get(url)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				took := time.Since(begun)
				mu.Lock()
				all = append(all, took)
				if err == nil && resp.StatusCode != http.StatusOK {
					err = fmt.Errorf("%s", resp.Status)
				}
				if failed == nil {
					failed = err
				}
				mu.Unlock()
				<-tick.C
			}
		})
	}
	clients.Wait()
	slices.Sort(all)
	return all, failed
}

// awaitIndex asks for a symbol of a program until its index is there.
func awaitIndex(base string, id buildid.ID) error {
	question := fmt.Sprintf(`{"files":[{"id":%q,"addresses":[4198400]}],"wait_seconds":30}`, id.String())
	for {
		resp, err := http.Post(base+"/v1/symbolize", "application/json", strings.NewReader(question))
		if err != nil {
			return err
		}
		var b bytes.Buffer
		_, err = b.ReadFrom(resp.Body)
		resp.Body.Close()
		if err != nil {
			return err
		}
		var answer struct {
			Files []struct{ Why string }
		}
		if err := json.Unmarshal(b.Bytes(), &answer); err != nil || len(answer.Files) != 1 {
			return fmt.Errorf("%s: %s", resp.Status, b.Bytes())
		}
		switch why := answer.Files[0].Why; why {
		case "pending":
		case "":
			return nil
		default:
			return fmt.Errorf("no index: %s", why)
		}
	}
}
