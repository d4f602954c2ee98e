package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// A release is what to build, and where.
type release struct {
	repository    string   // a directory of it
	dist          string   // the directory of the result
	dirty         bool     // leave out changes that are not committed
	architectures []string // by Go's names, which are Debian's
}

// make builds the release and returns the paths of its files. The directory dist changes only when all of
// them are written.
func (r *release) make(ctx context.Context) (paths []string, err error) {
	if !slices.Contains(r.architectures, runtime.GOARCH) || runtime.GOOS != "linux" {
		return nil, fmt.Errorf("the manual pages are written by the command itself, so a release is built on Linux for %s", strings.Join(r.architectures, " or "))
	}
	c, err := r.lastCommit(ctx)
	if err != nil {
		return nil, err
	}
	dist, err := filepath.Abs(r.dist)
	if err != nil {
		return nil, err
	}
	if err := mayReplace(dist); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dist), 0o777); err != nil {
		return nil, err
	}
	// Files that are not whole lie beside dist, in the same file system.
	scratch, err := os.MkdirTemp(filepath.Dir(dist), ".dist-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	names, err := r.fill(ctx, c, scratch)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := replace(dist, filepath.Join(scratch, "new"), filepath.Join(scratch, "old")); err != nil {
		return nil, err
	}
	for _, name := range names {
		paths = append(paths, filepath.Join(r.dist, name))
	}
	return paths, nil
}

// fill writes all files of the release into the directory new of scratch, and returns their names.
func (r *release) fill(ctx context.Context, c commit, scratch string) (names []string, err error) {
	b := &builder{commit: c, source: filepath.Join(scratch, "source"), scratch: scratch}
	if err := c.export(ctx, b.source); err != nil {
		return nil, err
	}
	if b.env, err = buildEnv(ctx, b.source, c); err != nil {
		return nil, err
	}
	binaries := map[string]binary{}
	for _, architecture := range r.architectures {
		if binaries[architecture], err = b.build(ctx, architecture); err != nil {
			return nil, err
		}
	}
	common, err := b.common(ctx, binaries[runtime.GOARCH].path)
	if err != nil {
		return nil, err
	}
	outputs := map[string][]byte{}
	write := func(name string, write func(*bytes.Buffer) error) error {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		outputs[name] = out.Bytes()
		return nil
	}
	for _, architecture := range r.architectures {
		licenses, err := b.licenses(ctx, architecture)
		if err != nil {
			return nil, err
		}
		program, err := os.ReadFile(binaries[architecture].path)
		if err != nil {
			return nil, err
		}
		p := pack{commit: c, version: binaries[architecture].version, architecture: architecture, program: program, contents: common, licenses: licenses}
		// The package of the service is the same for each of them.
		if err := errors.Join(write(p.archiveName(), p.writeArchive), write(p.debName(), p.writeDeb), write(p.serverDebName(), p.writeServerDeb)); err != nil {
			return nil, err
		}
	}
	return writeAll(filepath.Join(scratch, "new"), outputs)
}
