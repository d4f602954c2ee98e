package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"hallmark/internal/testenv"
)

// kernels runs on other kernels what has changed since it passed there.
func (r *runner) kernels(ctx context.Context, p *plan) {
	if len(p.stale) == 0 {
		return
	}
	i := slices.IndexFunc(p.packages, func(f pkg) bool { return f.name() == vmPackage })
	if i < 0 {
		return
	}
	dir, err := r.fetchKernels(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.console.printf("%v\n", err)
		if testenv.CI() {
			r.results.failure("kernels", "they cannot be fetched")
		} else {
			for _, suite := range p.stale {
				r.results.skip("on Linux "+suite, "kernels that cannot be fetched now: "+firstLine(err.Error()))
			}
		}
		return
	}
	r.console.setStatus(func() string { return fmt.Sprintf("%s  %s", elapsed(r.begun), r.results.doing()) })
	defer r.console.setStatus(nil)
	r.execute(ctx, execution{
		pkg:  p.packages[i],
		args: []string{"-test.timeout=120m", "-test.run=^TestKernels$"},
		env:  []string{"HALLMARK_KERNELS=" + dir},
	})
}

// fetchKernels fetches the kernels, if they are not there.
func (r *runner) fetchKernels(ctx context.Context) (dir string, err error) {
	dir = os.Getenv("HALLMARK_KERNELS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(cache, "hallmark", "kernels")
	}
	end := r.results.begin("fetching kernels")
	r.console.setStatus(func() string { return fmt.Sprintf("%s  %s", elapsed(r.begun), r.results.doing()) })
	defer r.console.setStatus(nil)
	fetching, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	for range 2 {
		var out string
		out, err = r.procs.output(r.procs.command(fetching, filepath.Join(r.root, vmPackage, "getkernels.sh"), dir))
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if err == nil {
			break
		}
		err = fmt.Errorf("%s (%w)", lastLines(out, 3), err)
		select {
		case <-fetching.Done():
		case <-time.After(10 * time.Second):
		}
	}
	end()
	return dir, err
}
