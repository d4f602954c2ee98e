package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/plaintext"
	"hallmark/server/store"
	symbolindex "hallmark/server/symbols"
)

// keepFlags say which identities a store keeps.
type keepFlags struct {
	days int64
	size int64 // MiB
}

func (k *keepFlags) addFlags(f *pflag.FlagSet) {
	f.Int64Var(&k.days, "keep-age", 0, "remove identities that nobody used for this many `DAYS`; 0 keeps all")
	f.Int64Var(&k.size, "keep-size", 0, "remove the identities unused for longest until the store fits into this many `MiB`; 0 keeps all")
}

func (k *keepFlags) check() error {
	const most = 100000 // days
	if k.days < 0 || k.days > most || k.size < 0 || k.size > 1<<40 {
		return verb.Usagef("--keep-age is a number of days, and --keep-size of MiB, of 0 or more")
	}
	return nil
}

func (k *keepFlags) retention() store.Retention {
	return store.Retention{Age: time.Duration(k.days) * 24 * time.Hour, Size: k.size << 20}
}

// profileFlags say which profiles a store keeps.
type profileFlags struct {
	days  int64
	size  int64 // MiB
	count int64
}

// Profiles that a store keeps unless flags say otherwise.
const (
	defaultProfiles    = 10000
	defaultProfileSize = 10 << 10 // MiB
)

func (k *profileFlags) addFlags(f *pflag.FlagSet) {
	f.Int64Var(&k.days, "profile-age", 0, "remove profiles that came this many `DAYS` ago; 0 keeps all")
	f.Int64Var(&k.size, "profile-size", defaultProfileSize, "remove the oldest profiles until all fit into this many `MiB`; 0 keeps all")
	f.Int64Var(&k.count, "profile-count", defaultProfiles, "remove the oldest profiles where there are more than this `NUMBER`; 0 keeps all")
}

func (k *profileFlags) check() error {
	const most = 100000 // days
	if k.days < 0 || k.days > most || k.size < 0 || k.size > 1<<40 || k.count < 0 || k.count > 1<<20 {
		return verb.Usagef("--profile-age is a number of days, --profile-size of MiB, and --profile-count of profiles, of 0 or more")
	}
	return nil
}

func (k *profileFlags) retention() store.ProfileRetention {
	return store.ProfileRetention{Age: time.Duration(k.days) * 24 * time.Hour, Size: k.size << 20, Count: k.count}
}

const serveGCLong = `Gc removes from the store of a server what need not be kept: identities that
nobody used for --keep-age days, or for longest while the store has more than
--keep-size, then files and indexes that nothing needs any more. A server does
the same once a day, with the flags of these names. Without them all identities
are kept. Of profiles it removes those that came --profile-age days ago, and the
oldest while there are more than --profile-count or --profile-size.

A use is a request for a file, a source or symbols, and a push. It is known to
the day. 'hallmark serve pin' has an identity kept for ever.

Gc may run beside servers, and may be ended at any time. The bytes of a file
go one to two days after the identity: docs/server.md says why. Run gc as the
user whom the store belongs to.`

// gcRecord is an identity that is removed, in the output of --json.
type gcRecord struct {
	ID        string `json:"build_id"`
	Retention string `json:"retention"` // age, size
	LastUse   string `json:"last_used"`
	Size      int64  `json:"stored_bytes"`
	DryRun    bool   `json:"dry_run,omitempty"`
}

// gcSum is the last object of the output of --json.
type gcSum struct {
	DryRun  bool  `json:"dry_run,omitempty"`
	Removed int64 `json:"removed_identities"`
	Objects int64 `json:"removed_objects"`
	Marked  int64 `json:"marked_objects"`
	Indexes int64 `json:"removed_indexes"`
	Sources int64 `json:"removed_sources"`
	Others  int64 `json:"removed_leftovers"`
	Profile int64 `json:"removed_profiles"`
	Freed   int64 `json:"freed_bytes"`
	Kept    int64 `json:"kept_identities"`
	Pinned  int64 `json:"pinned_identities"`
	Size    int64 `json:"stored_bytes"`
}

func newServeGCCommand(e *verb.Env) *cobra.Command {
	var at string
	var keep keepFlags
	var profiles profileFlags
	var dry, asJSON bool
	cmd := &cobra.Command{
		Use:   "gc [flags]",
		Short: "Remove from a store what need not be kept",
		Long:  serveGCLong,
		Example: `  hallmark serve gc --keep-age 180 --dry-run       # what would go
  hallmark serve gc --store s3://symbols/prod --keep-size 500000`,
		Args: verb.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			if err := errors.Join(keep.check(), profiles.check()); err != nil {
				return err
			}
			ctx, over := verb.Interruptible()
			defer over()
			s, done, err := existingStore(at)
			if err != nil {
				return err
			}
			defer done()
			retention := keep.retention()
			retention.Profiles = profiles.retention()
			err = runServeGC(ctx, e, s, store.Collection{Retention: retention, DryRun: dry, IndexVersion: symbolindex.IndexVersion}, asJSON)
			if err != nil && ctx.Err() != nil {
				return verb.WithStatus(130, errInterrupted)
			}
			return err
		},
	}
	f := cmd.Flags()
	addStoreFlag(f, &at)
	keep.addFlags(f)
	profiles.addFlags(f)
	f.BoolVar(&dry, "dry-run", false, "print what would be removed, and change nothing")
	f.BoolVar(&asJSON, "json", false, "print a JSON object for each identity that is removed, and one for the whole")
	return cmd
}

func addStoreFlag(f *pflag.FlagSet, at *string) {
	f.StringVar(at, "store", "", "the `DIR` or bucket of the server (default: hallmark/server in $XDG_DATA_HOME)")
}

func runServeGC(ctx context.Context, e *verb.Env, s *store.Store, c store.Collection, asJSON bool) error {
	how, freed := "removed", "freed now"
	if c.DryRun {
		how, freed = "would be removed", "would be freed now"
	}
	var own int64 // bytes of the identities that are removed
	out := verb.NewObjectWriter(e.Stdout)
	s.OnStray = reportStrays(e, out, asJSON)
	c.OnRemove = func(r store.Removed) {
		day := r.LastDay()
		own += r.Size
		if asJSON {
			_ = out.Write(gcRecord{r.ID.String(), r.Reason, day, r.Size, c.DryRun}) // Main reports that it cannot be written
			return
		}
		fmt.Fprintf(e.Stdout, "%s: %s, last used %s, %s\n", how, plaintext.Name(r.ID.String()), day, terminal.Quantity(r.Size, "bytes"))
	}
	done, err := s.Collect(ctx, c)
	if err != nil {
		return err
	}
	if asJSON {
		return out.Write(gcSum{c.DryRun, done.Removed, done.Objects, done.Marked, done.Indexes, done.Sources, done.Leftover, done.Profiles, done.Freed, done.Kept, done.Pinned, done.Size})
	}
	var parts []string
	for _, p := range []struct {
		n         int64
		one, more string
	}{
		{done.Removed, "identity", "identities"}, {done.Objects, "file", "files"}, {done.Indexes, "index", "indexes"},
		{done.Sources, "source", "sources"}, {done.Profiles, "profile", "profiles"}, {done.Leftover, "leftover", "leftovers"},
	} {
		if p.n > 0 {
			parts = append(parts, plaintext.Thousands(p.n)+" "+forms(p.n, p.one, p.more))
		}
	}
	if done.Removed > 0 { // their files go later
		parts[0] += fmt.Sprintf(" (%s)", terminal.Quantity(own, "bytes"))
	}
	if len(parts) == 0 {
		fmt.Fprintf(e.Stdout, "nothing %s\n", how)
	} else {
		fmt.Fprintf(e.Stdout, "%s: %s; %s: %s\n", how, strings.Join(parts, ", "), freed, terminal.Quantity(done.Freed, "bytes"))
	}
	if done.Marked > 0 {
		fmt.Fprintf(e.Stdout, "%s that nothing lists can go in a day\n", plaintext.Plural(done.Marked, "file"))
	}
	fmt.Fprintf(e.Stdout, "kept: %s %s (%s), %s pinned\n", plaintext.Thousands(done.Kept), forms(done.Kept, "identity", "identities"), terminal.Quantity(done.Size, "bytes"), plaintext.Thousands(done.Pinned))
	return nil
}

// strayRecord is a file in a store that is none of it, in the output of --json.
type strayRecord struct {
	Unknown string `json:"unknown"` // its path in the store
}

// reportStrays returns what prints files in a store that are none of it.
func reportStrays(e *verb.Env, out *verb.ObjectWriter, asJSON bool) func(key string) {
	return func(key string) {
		if asJSON {
			_ = out.Write(strayRecord{key}) // Main reports that it cannot be written
			return
		}
		fmt.Fprintf(e.Stdout, "unknown: %s: no file of a store\n", plaintext.Name(key))
	}
}

// forms returns the form of a noun for a number.
func forms(n int64, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// storeInfo returns the path of a store, "" for that of this user, and what is known of its directory, nil for a
// bucket. An error says that it is not there.
func storeInfo(at string) (path string, info os.FileInfo, err error) {
	if strings.Contains(at, "://") {
		return at, nil, nil
	}
	if at == "" {
		if at, err = dataDir(); err != nil {
			return "", nil, err
		}
	}
	info, err = os.Stat(at)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return "", nil, fmt.Errorf("--store %s: %w", plaintext.Name(at), verb.ReasonOf(err))
	}
	return at, info, nil
}

// existingStore opens the store of a server. A directory has to belong to this user: the server of another
// one could not read the files that this one would write there.
func existingStore(at string) (*store.Store, func(), error) {
	at, info, err := storeInfo(at)
	if err != nil {
		return nil, nil, err
	}
	if info != nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
			return nil, nil, fmt.Errorf("--store %s: it belongs to user %d: run this as that user", plaintext.Name(at), st.Uid)
		}
		ok, err := store.Recognize(at)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("--store %s: %w", plaintext.Name(at), verb.ReasonOf(err))
		case !ok:
			return nil, nil, fmt.Errorf("--store %s: it is no store: no server has used this directory", plaintext.Name(at))
		}
	}
	blobs, done, err := openBlobs(at)
	if err != nil {
		return nil, nil, err
	}
	return &store.Store{Blobs: blobs}, done, nil
}

// newServePinCommand returns the command that pins identities, or the one that unpins them.
func newServePinCommand(pin bool) *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use:   "pin [flags] ID...",
		Short: "Have a store keep identities for ever",
		Long: `Pin has the store of a server keep identities, however long nobody uses them and
however large the store is. Servers of the store know it within seconds. Run it
as the user whom the store belongs to.`,
		Example: `  hallmark serve pin 5dc767c02e183bb92c91cd56be96c493d8255f86`,
		Args:    verb.Takes("ID..."),
		RunE: func(_ *cobra.Command, args []string) error {
			var ids []buildid.ID
			for _, arg := range args {
				id, err := buildid.Parse(arg)
				if err != nil {
					return verb.Usagef("%q is no identity: %w", arg, err)
				}
				ids = append(ids, id)
			}
			ctx, over := verb.Interruptible()
			defer over()
			s, done, err := existingStore(at)
			if err != nil {
				return err
			}
			defer done()
			for _, id := range ids {
				if err := s.Pin(ctx, id, pin); err != nil {
					return err
				}
			}
			return nil
		},
	}
	if !pin {
		cmd.Use, cmd.Short = "unpin [flags] ID...", "Have a store keep identities no longer than others"
		cmd.Long = `Unpin takes back what 'hallmark serve pin' did.`
		cmd.Example = strings.Replace(cmd.Example, "pin", "unpin", 1)
	}
	addStoreFlag(cmd.Flags(), &at)
	return cmd
}
