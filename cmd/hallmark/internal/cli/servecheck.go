package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/plaintext"
	"hallmark/server/store"
)

const serveCheckLong = `Check reads the store of a server and prints which files it has lost: those
that are missing, and those whose bytes are not the ones that were stored. A
disk that fails has this effect, or an incomplete copy. Servers of the store
then take such a file again from 'hallmark push', from --scan and from
--upstream, and serve it as before. A server does the same once a week, in idle
time.

The exit status is 1 if something is lost. Check may run beside servers, and
may be ended at any time. Run it as the user whom the store belongs to.`

// checkRecord is a file that is lost, in the output of --json.
type checkRecord struct {
	Key    string `json:"key"`
	Reason string `json:"reason"`
	store.Named
}

func newServeCheckCommand(e *verb.Env) *cobra.Command {
	var at string
	var quick, asJSON bool
	cmd := &cobra.Command{
		Use:   "check [flags]",
		Short: "Find files that a store has lost",
		Long:  serveCheckLong,
		Example: `  hallmark serve check --quick                  # what is missing
  hallmark serve check --store s3://symbols/prod # and what is damaged`,
		Args: verb.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			ctx, over := verb.Interruptible()
			defer over()
			s, done, err := existingStore(at)
			if err != nil {
				return err
			}
			defer done()
			err = runServeCheck(ctx, e, s, quick, asJSON)
			if err != nil && ctx.Err() != nil {
				return verb.WithStatus(130, errInterrupted)
			}
			return err
		},
	}
	f := cmd.Flags()
	addStoreFlag(f, &at)
	f.BoolVar(&quick, "quick", false, "look for missing files alone, and read none")
	f.BoolVar(&asJSON, "json", false, "print a JSON object for each file that is lost, and one for the whole")
	return cmd
}

func runServeCheck(ctx context.Context, e *verb.Env, s *store.Store, quick, asJSON bool) error {
	out := verb.NewObjectWriter(e.Stdout)
	s.OnStray = reportStrays(e, out, asJSON)
	done, err := s.Check(ctx, store.Checking{Quick: quick, OnDamage: func(l store.Lost) {
		if asJSON {
			_ = out.Write(checkRecord{l.Key, l.Why, l.Named}) // Main reports that it cannot be written
			return
		}
		of := l.Named.String()
		if of != "" {
			of = " (" + plaintext.Line(of) + ")"
		}
		fmt.Fprintf(e.Stdout, "lost: %s%s: %s\n", plaintext.Name(l.Key), of, plaintext.Line(l.Why))
	}})
	if err != nil {
		return err
	}
	switch {
	case asJSON:
		err = out.Write(done)
	case quick:
		_, err = fmt.Fprintf(e.Stdout, "%s lost\n", plaintext.Plural(done.Broken, "file"))
	default:
		_, err = fmt.Fprintf(e.Stdout, "whole: %s (%s), %s; lost: %s\n", plaintext.Plural(done.Objects, "file"), terminal.Quantity(done.Bytes, "bytes"),
			plaintext.Plural(done.Profiles, "profile"), plaintext.Plural(done.Broken, "file"))
	}
	if err == nil && done.Broken > 0 {
		return verb.ExitStatus(1)
	}
	return err
}
