package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"hallmark/bench/browser"
	"hallmark/bench/internal/process"
	"hallmark/buildid"
)

// measureFirst asks servers that have found a large program, which nobody has asked for, for its first bytes.
func measureFirst(command, dir, small string) error {
	filler, files := filepath.Join(dir, "filler"), filepath.Join(dir, "first")
	if err := os.Mkdir(files, 0o755); err != nil {
		return err
	}
	if err := writeNoise(filler, int64(*first)<<20); err != nil {
		return err
	}
	name := filepath.Join(files, "large")
	if out, err := exec.Command("objcopy", "--add-section", ".filler="+filler, small, name).CombinedOutput(); err != nil {
		return fmt.Errorf("objcopy: %w\n%s", err, out)
	}
	info, err := buildid.ReadFile(name)
	if err != nil {
		return err
	}
	path := "/buildid/" + info.ID.String() + "/executable"
	fmt.Printf("| a scanned file of %d MiB that nobody has asked for | first byte, ms | all of it, s | CPU s | MiB at most |\n|---|--:|--:|--:|--:|\n", *first)
	for i := range *rounds {
		s, err := browser.StartServer(command, filepath.Join(dir, fmt.Sprintf("first%d", i)), "--scan", files)
		if err != nil {
			return err
		}
		url := strings.TrimSuffix(s.URL, "/")
		if err := await(url + "/metadata?key=buildid&value=" + info.ID.String()); err != nil {
			s.Stop()
			return err
		}
		err = firstOf("hallmark serve --scan", url+path, s.PID())
		s.Stop()
		if err != nil {
			return err
		}
	}
	for i, peer := range strings.Split(*peers, ",") {
		// It is asked for the section headers of the file first: it says in no other way that it has it.
		s, stop, err := debuginfod(peer, filepath.Join(dir, fmt.Sprintf("first%d.sqlite", i)), files, "/buildid/"+info.ID.String()+"/section/.comment")
		if err != nil {
			return err
		}
		err = firstOf(s.name, strings.TrimSuffix(s.url, "section/.comment")+"executable", s.pid)
		stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// await waits until a scan has found something.
func await(url string) error {
	for range 300 {
		resp, err := http.Get(url)
		if err != nil {
			return err
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return err
		}
		if strings.Contains(string(b), "executable") {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("%s: not found after 30 s", url)
}

// firstOf asks for a file, and prints how long the first byte and all of them took.
func firstOf(name, url string, pid int) error {
	before := process.CPU(pid)
	begun := time.Now()
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s, %w", url, resp.Status, err)
	}
	first := time.Since(begun)
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	fmt.Printf("| %s | %.1f | %.1f | %.1f | %.0f |\n", name, first.Seconds()*1e3, time.Since(begun).Seconds(), process.CPU(pid)-before, process.Peak(pid))
	return nil
}
