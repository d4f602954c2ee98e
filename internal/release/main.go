// Release builds what users install, from the last commit: static binaries with manual pages,
// completions and licenses as .tar.gz archives, the same as Debian packages, and SHA256SUMS.
//
//	go run ./internal/release [-C DIRECTORY] [-o DIRECTORY] [-dirty]
//
// A commit gives the same bytes in each directory and on each machine, with one version of Go. So
// all files come from a clone of the commit and from the modules that its go.sum names. No setting
// of the user for Go's builds is in force, times are the commit's, and lists are sorted.
//
// A .deb is an ar of two tar archives (deb(5)), so this package writes it itself, in some 150 lines.
// nfpm, the library for it, would bring the clients of git hosts, the ciphers for signatures and the
// formats of four other package managers into a go.mod.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	r := release{architectures: []string{"amd64", "arm64"}}
	flag.StringVar(&r.repository, "C", ".", "the `DIRECTORY` of the repository")
	flag.StringVar(&r.dist, "o", "dist", "the `DIRECTORY` for the release, in place of the one that is there")
	flag.BoolVar(&r.dirty, "dirty", false, "leave out changes that are not committed, rather than refuse")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: release [-C DIRECTORY] [-o DIRECTORY] [-dirty]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	names, err := r.make(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
	for _, name := range names {
		fmt.Println(name)
	}
}
