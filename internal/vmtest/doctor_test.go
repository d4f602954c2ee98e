package vmtest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// checkDoctor compares what the doctor finds on a kernel with the golden.
func checkDoctor(t *testing.T, series string, r Result) (ok bool) {
	t.Helper()
	var d struct {
		Kernel, Backend string
		Reason          string `json:"backend_reason"`
		Features        []struct{ Name, Answer, Detail string }
	}
	if err := json.Unmarshal(r.Output, &d); err != nil {
		t.Errorf("hallmark doctor ends with status %d, %v\n%s", r.Status, err, r.Output)
		return false
	}
	var b strings.Builder
	fmt.Fprintf(&b, "backend %s: %s\n", d.Backend, d.Reason)
	for _, f := range d.Features {
		if f.Answer == "yes" {
			f.Detail = "" // numbers of this boot
		}
		fmt.Fprintln(&b, strings.TrimSpace(fmt.Sprintf("%-7s %s: %s", f.Answer, f.Name, f.Detail)))
	}
	return golden(t, filepath.Join("testdata", "doctor-"+series+".txt"), b.String())
}

func golden(t *testing.T, name, got string) (ok bool) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Error(err)
			return false
		}
		return true
	}
	want, err := os.ReadFile(name)
	if err != nil || string(want) != got {
		t.Errorf("%s (go test -update rewrites it): %v\nhave:\n%s\nwant:\n%s", name, err, got, want)
		return false
	}
	return true
}
