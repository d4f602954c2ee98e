package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newVersionCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the toolchain of this program",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(e.stdout, "hallmark %s\n", version())
			return err
		},
	}
}
