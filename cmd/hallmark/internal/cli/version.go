package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"hallmark/cmd/hallmark/internal/verb"
)

func newVersionCommand(e *verb.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the toolchain of this program",
		Args:  verb.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(e.Stdout, "hallmark %s\n", version())
			return err
		},
	}
}
