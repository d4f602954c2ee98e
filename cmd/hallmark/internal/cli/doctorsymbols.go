package cli

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/debuginfo/debuginfod"
	"hallmark/internal/cachedir"
)

// symbolDiagnosis is where symbols come from.
type symbolDiagnosis struct {
	IndexDir   string   `json:"index_dir"`
	Indexes    int      `json:"indexes"`
	IndexBytes int64    `json:"index_bytes"`
	IndexWhy   string   `json:"index_problem,omitempty"` // why none is kept, or not where the environment says
	Servers    []string `json:"debuginfod_urls"`
	Problem    string   `json:"debuginfod_problem,omitempty"` // why no server can be asked
	Vmlinux    string   `json:"vmlinux"`                      // of the running kernel; "" if it is not found
}

func diagnoseSymbols() symbolDiagnosis {
	d := symbolDiagnosis{Servers: []string{}}
	indexes := new(debuginfo.Indexes)
	if path, err := indexes.Path(debuginfo.Origin{}); err == nil {
		d.IndexDir = filepath.Dir(path)
	}
	d.IndexWhy = why(cmp.Or(indexes.Check(), cachedir.Refused()))
	kept, _ := indexes.List()
	d.Indexes = len(kept)
	for _, k := range kept {
		d.IndexBytes += k.Size
	}
	client, err := debuginfod.FromEnvironment()
	if err == nil {
		d.Servers = append(d.Servers, client.URLs...)
	}
	if err == nil && len(client.URLs) > 0 {
		err = client.Check()
	}
	d.Problem = why(err)
	if running, err := buildid.ReadKernel(); err == nil {
		d.Vmlinux = findVmlinux(running.ID)
	}
	return d
}

// why returns the text of an error, "" for none.
func why(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// findVmlinux returns where this machine has the ELF file of a kernel, or its debug file.
func findVmlinux(id buildid.ID) string {
	s, _ := new(debuginfo.Finder).Search(context.Background(), debuginfo.Query{ID: id, Kernel: true, Local: true})
	if s == nil {
		return ""
	}
	defer s.Close()
	return s.Name()
}

func (d *symbolDiagnosis) write(e *env) {
	servers := "none, DEBUGINFOD_URLS is not set"
	if len(d.Servers) > 0 {
		servers = strings.Join(d.Servers, " ")
	}
	vmlinux := "not found: kernel frames have names without lines (Debian: linux-image-RELEASE-dbg)"
	indexes := "none in " + d.IndexDir
	if d.Indexes > 0 {
		indexes = fmt.Sprintf("%s in %s, %s", thousands(int64(d.Indexes)), d.IndexDir, quantity(d.IndexBytes, "bytes"))
	}
	t := table{columns: make([]column, 2)}
	t.add("  indexes", indexes)
	if d.IndexWhy != "" {
		t.add("", d.IndexWhy)
	}
	t.add("  debuginfod servers", cmp.Or(d.Problem, servers))
	t.add("  vmlinux", cmp.Or(d.Vmlinux, vmlinux))
	fmt.Fprintln(e.stdout, "\nSymbols come from files and installed debug files, and from:")
	t.write(e.stdout, terminalWidth(e.stdout))
}
