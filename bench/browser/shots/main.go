// Command shots takes the pictures of the pages that are in docs/viewer:
//
//	seq 4000000 | shuf >numbers
//	hallmark record --timeline -o build.pb.gz -- sh -c 'go build ./buildid & gzip -9k numbers & sort -n numbers -o sorted & wait' # with an empty GOCACHE
//	hallmark record -F 500 -o before.pb.gz -- gzip -k -1 numbers
//	hallmark record -F 500 -o after.pb.gz -- gzip -k -9 numbers
//	cd bench && go run ./browser/shots -o ../docs/viewer build.pb.gz before.pb.gz after.pb.gz
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"hallmark/bench/browser"
)

func main() {
	out := flag.String("o", ".", "write pictures to `DIR`")
	command := flag.String("hallmark", "hallmark", "the `COMMAND`")
	function := flag.String("function", "deflate", "show details of the first function whose name contains `TEXT`")
	flag.Parse()
	if flag.NArg() != 3 {
		fmt.Fprintln(os.Stderr, "usage: shots [flags] BUILD BEFORE AFTER")
		os.Exit(2)
	}
	if err := run(*out, *command, *function, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "shots:", err)
		os.Exit(1)
	}
}

// shot is a picture.
type shot struct {
	name     string
	look     browser.Look
	fragment string
	script   string // runs before
}

var (
	wide = browser.Look{Width: 1280, Height: 760}
	dark = browser.Look{Width: 1280, Height: 760, Dark: true}
)

func run(dir, command, function string, files []string) error {
	if _, err := exec.LookPath(command); err != nil {
		return err
	}
	b, err := browser.Start(context.Background())
	if err != nil {
		return err
	}
	defer b.Stop()
	open := fmt.Sprintf(`(async () => {
		const rows = (await (await fetch("api/functions?limit=2000")).json()).rows;
		const row = rows.find((r) => r.name.includes(%q)) || rows[0];
		const all = [...document.querySelectorAll("#view button")].find((b) => b.textContent === row.name);
		if (all) all.click();
	})()`, function)
	machine := []shot{
		{name: "flame", look: wide},
		{name: "details", look: wide, fragment: "view=functions", script: open},
		{name: "binaries", look: dark, fragment: "view=binaries"},
	}
	return errors.Join(
		take(b, dir, machine, command, files[0]),
		take(b, dir, []shot{{name: "compare", look: wide}}, command, "--diff", files[1], files[2]))
}

func take(b *browser.Browser, dir string, shots []shot, command string, args ...string) error {
	view, err := browser.StartView(command, args...)
	if err != nil {
		return err
	}
	defer view.Stop()
	for _, s := range shots {
		if err := s.take(b, view.URL, filepath.Join(dir, s.name+".png")); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (s *shot) take(b *browser.Browser, url, to string) error {
	page, err := b.Open(s.look)
	if err != nil {
		return err
	}
	defer page.Close()
	if err := page.Go(url); err != nil {
		return err
	}
	if err := page.Show(s.fragment); err != nil {
		return err
	}
	if s.script != "" {
		if err := page.Eval(s.script, nil); err != nil {
			return err
		}
	}
	if err := page.Await("!document.querySelector('.busy')"); err != nil {
		return err
	}
	if err := page.Settle(); err != nil {
		return err
	}
	picture, err := page.Picture()
	if err != nil {
		return err
	}
	if problems := page.Problems(); len(problems) > 0 {
		return fmt.Errorf("the console has %q", problems)
	}
	return os.WriteFile(to, picture, 0o644)
}
