package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/testenv"
)

// TestManFollowsNoLinkOfOthers writes the pages into a directory for all, where another user has
// made a link with the name of one of them. The kernel may allow to follow it.
func TestManFollowsNoLinkOfOthers(t *testing.T) {
	testenv.Root(t)
	top := t.TempDir()
	shared, made := filepath.Join(top, "tmp"), filepath.Join(top, "made")
	const nobody = 65534
	if err := errors.Join(os.Mkdir(shared, 0o777), os.Chmod(shared, 0o777|os.ModeSticky),
		os.Symlink(made, filepath.Join(shared, "hallmark.1")), os.Lchown(filepath.Join(shared, "hallmark.1"), nobody, nobody),
		os.Symlink(top, filepath.Join(shared, "dir")), os.Lchown(filepath.Join(shared, "dir"), nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{shared, filepath.Join(shared, "dir", "made")} {
		var out strings.Builder
		if status := run(t.Context(), &verb.Env{Stdout: &out, Stderr: &out, Stdin: strings.NewReader("")}, []string{"man", dir}); status == 0 {
			t.Errorf("%s: no error", dir)
		}
		if _, err := os.Lstat(made); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a link of another user was followed: %v", dir, err)
			os.RemoveAll(made)
		}
	}
}
