package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"hallmark/capture"
	"hallmark/cmd/hallmark/internal/doctor"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/plaintext"
)

const doctorLong = `Try everything that recording depends on, and say what each missing thing costs
and how to get it; and say where symbols come from. Nothing is changed on the
machine, and no server is asked.

Exit status 1 means that nothing at all can be recorded.`

func newDoctorCommand(e *verb.Env) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what works on this machine, and how to get what does not",
		Long:  doctorLong,
		Example: `  hallmark doctor
  hallmark doctor --json | jq '.features[] | select(.answer != "yes")'`,
		Args: verb.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			d := diagnose()
			if !asJSON {
				d.write(e)
			} else if err := verb.WriteObject(e.Stdout, d); err != nil {
				return err
			}
			if d.Features[0].Answer == doctor.No {
				return verb.ExitStatus(1)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// diagnosis is what doctor found.
type diagnosis struct {
	Kernel       string                 `json:"kernel"`
	Architecture string                 `json:"architecture"`
	User         int                    `json:"uid"`
	Backend      string                 `json:"backend"`
	BackendWhy   string                 `json:"backend_reason"`
	Features     []doctor.Feature       `json:"features"`
	Symbols      doctor.SymbolDiagnosis `json:"symbols"`
}

func diagnose() diagnosis {
	var name unix.Utsname
	// It fails only for an invalid pointer.
	_ = unix.Uname(&name)
	d := diagnosis{
		Kernel:       unix.ByteSliceToString(name.Release[:]),
		Architecture: runtime.GOARCH,
		User:         unix.Geteuid(),
		Features:     doctor.Features(),
		Symbols:      doctor.DiagnoseSymbols(),
	}
	backend, why := capture.DefaultBackend()
	d.Backend, d.BackendWhy = backend.String(), why
	return d
}

func (d *diagnosis) write(e *verb.Env) {
	fmt.Fprintf(e.Stdout, "Linux %s on %s, as user %d\n\n", d.Kernel, d.Architecture, d.User)
	t := terminal.Grid{Columns: make([]terminal.Column, 3)}
	for _, f := range d.Features {
		t.Add("  "+f.Answer.String(), f.Name, f.Detail)
	}
	t.Write(e.Stdout, terminal.Width(e.Stdout))
	d.writeMissing(e)
	fmt.Fprintf(e.Stdout, "\nrecord takes the backend %q: %s.\n", d.Backend, d.BackendWhy)
	writeSymbols(e, &d.Symbols)
}

func (d *diagnosis) writeMissing(e *verb.Env) {
	for _, f := range d.Features {
		if f.Answer == doctor.Yes {
			continue
		}
		fmt.Fprintf(e.Stdout, "\nWithout %q: %s.\n  To get it: %s.\n", f.Name, f.Cost, strings.TrimSuffix(f.Remedy, "."))
	}
}

func writeSymbols(e *verb.Env, d *doctor.SymbolDiagnosis) {
	servers := "none, DEBUGINFOD_URLS is not set"
	if len(d.Servers) > 0 {
		servers = strings.Join(d.Servers, " ")
	}
	vmlinux := "not found: kernel frames have names without lines (Debian: linux-image-RELEASE-dbg)"
	indexes := "none in " + d.IndexDir
	if d.Indexes > 0 {
		indexes = fmt.Sprintf("%s in %s, %s", plaintext.Thousands(int64(d.Indexes)), d.IndexDir, terminal.Quantity(d.IndexBytes, "bytes"))
	}
	t := terminal.Grid{Columns: make([]terminal.Column, 2)}
	t.Add("  indexes", indexes)
	if d.IndexWhy != "" {
		t.Add("", d.IndexWhy)
	}
	t.Add("  debuginfod servers", cmp.Or(d.Problem, servers))
	t.Add("  vmlinux", cmp.Or(d.Vmlinux, vmlinux))
	fmt.Fprintln(e.Stdout, "\nSymbols come from files and installed debug files, and from:")
	t.Write(e.Stdout, terminal.Width(e.Stdout))
}
