package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A commit is the one that a release is built from.
type commit struct {
	repository string // its top directory
	hash       string
	at         time.Time // when it was committed
	committer  string    // NAME <ADDRESS>
}

// lastCommit returns the commit that is checked out. Changes that are in none, and files that git
// neither tracks nor ignores, are refused unless r.dirty.
func (r *release) lastCommit(ctx context.Context) (commit, error) {
	top, err := git(ctx, r.repository, "rev-parse", "--show-toplevel")
	if err != nil {
		return commit{}, err
	}
	c := commit{repository: strings.TrimSuffix(top, "\n")}
	text, err := git(ctx, c.repository, "-c", "log.showSignature=false", "log", "-1", "--format=%H%n%ct%n%cn <%ce>", "HEAD")
	if err != nil {
		return commit{}, err
	}
	lines := strings.SplitN(strings.TrimSpace(text), "\n", 3)
	if len(lines) != 3 {
		return commit{}, fmt.Errorf("git log prints %q", text)
	}
	seconds, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		return commit{}, fmt.Errorf("git log: %w", err)
	}
	c.hash, c.at, c.committer = lines[0], time.Unix(seconds, 0).UTC(), lines[2]
	changes, err := git(ctx, c.repository, "status", "--porcelain", "--untracked-files=normal")
	if err != nil {
		return commit{}, err
	}
	if changes != "" && !r.dirty {
		return commit{}, fmt.Errorf("these changes are in no commit; commit them, or leave them out with -dirty:\n%s", strings.TrimSuffix(changes, "\n"))
	}
	return c, nil
}

// export clones the repository into a new directory and checks the commit out. The files of a clone are
// those of the commit, and the Go command finds the version in its history.
func (c commit) export(ctx context.Context, dir string) error {
	if _, err := git(ctx, ".", "clone", "--quiet", "--shared", "--no-checkout", "--template=", c.repository, dir); err != nil {
		return err
	}
	// Ends of lines, filters and hooks are the user's, and would change files.
	_, err := run(ctx, dir, append(withoutGit(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1"), "git", "checkout", "--quiet", "--detach", c.hash)
	return err
}

// git runs git in a directory and returns what it prints.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	return run(ctx, dir, withoutGit(), "git", args...)
}

// elsewhere are the variables by which git looks at another repository than that of its directory. It
// sets them for its hooks.
var elsewhere = []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY",
	"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX"}

// withoutGit returns the environment without the variables of elsewhere.
func withoutGit() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(elsewhere, name)
	})
}

// run runs a command in a directory and returns what it prints to standard output. An error has what it
// prints to standard error.
func run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, messages bytes.Buffer
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // the Go command removes its files
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, &out, &messages
	if err := cmd.Run(); err != nil {
		if said := strings.TrimSpace(messages.String()); said != "" {
			err = errors.New(said)
		}
		return "", fmt.Errorf("%s %s: %w", name, args[0], err)
	}
	return out.String(), nil
}
