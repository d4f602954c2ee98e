package cli

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"hallmark/capture"
	"hallmark/cmd/hallmark/internal/doctor"
)

const doctorLong = `Try everything that recording depends on, and say what each missing thing costs
and how to get it; and say where symbols come from. Nothing is changed on the
machine, and no server is asked.

Exit status 1 means that nothing at all can be recorded.`

func newDoctorCommand(e *env) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what works on this machine, and how to get what does not",
		Long:  doctorLong,
		Example: `  hallmark doctor
  hallmark doctor --json | jq '.features[] | select(.answer != "yes")'`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			d := diagnose()
			if !asJSON {
				d.write(e)
			} else if err := writeObject(e.stdout, d); err != nil {
				return err
			}
			if d.Features[0].Answer == doctor.No {
				return exitStatus(1)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// diagnosis is what doctor found.
type diagnosis struct {
	Kernel       string           `json:"kernel"`
	Architecture string           `json:"architecture"`
	User         int              `json:"uid"`
	Backend      string           `json:"backend"`
	BackendWhy   string           `json:"backend_reason"`
	Features     []doctor.Feature `json:"features"`
	Symbols      symbolDiagnosis  `json:"symbols"`
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
		Symbols:      diagnoseSymbols(),
	}
	backend, why := capture.DefaultBackend()
	d.Backend, d.BackendWhy = backend.String(), why
	return d
}

func (d *diagnosis) write(e *env) {
	fmt.Fprintf(e.stdout, "Linux %s on %s, as user %d\n\n", d.Kernel, d.Architecture, d.User)
	t := table{columns: make([]column, 3)}
	for _, f := range d.Features {
		t.add("  "+f.Answer.String(), f.Name, f.Detail)
	}
	t.write(e.stdout, terminalWidth(e.stdout))
	d.writeMissing(e)
	fmt.Fprintf(e.stdout, "\nrecord takes the backend %q: %s.\n", d.Backend, d.BackendWhy)
	d.Symbols.write(e)
}

func (d *diagnosis) writeMissing(e *env) {
	for _, f := range d.Features {
		if f.Answer == doctor.Yes {
			continue
		}
		fmt.Fprintf(e.stdout, "\nWithout %q: %s.\n  To get it: %s.\n", f.Name, f.Cost, strings.TrimSuffix(f.Remedy, "."))
	}
}
