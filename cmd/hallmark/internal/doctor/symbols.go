package doctor

import (
	"cmp"
	"context"
	"path/filepath"

	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/debuginfo/debuginfod"
	"hallmark/internal/cachedir"
)

// SymbolDiagnosis is where symbols come from.
type SymbolDiagnosis struct {
	IndexDir   string   `json:"index_dir"`
	Indexes    int      `json:"indexes"`
	IndexBytes int64    `json:"index_bytes"`
	IndexWhy   string   `json:"index_problem,omitempty"` // why none is kept, or not where the environment says
	Servers    []string `json:"debuginfod_urls"`
	Problem    string   `json:"debuginfod_problem,omitempty"` // why no server can be asked
	Vmlinux    string   `json:"vmlinux"`                      // of the running kernel; "" if it is not found
}

// DiagnoseSymbols finds out where symbols come from. It asks no server.
func DiagnoseSymbols() SymbolDiagnosis {
	d := SymbolDiagnosis{Servers: []string{}}
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
