package trust

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"hallmark/internal/fusetest"
	"hallmark/internal/testenv"
)

// TestSilentServer asks about files of a file system whose server does not answer: nothing
// there is trusted, and nobody waits.
func TestSilentServer(t *testing.T) {
	for _, o := range []fusetest.Options{{}, fusetest.SSHFS} {
		s := fusetest.Mount(t, o)
		write(t, s.Behind("a"), 0o755, 0)
		served, err := os.Open(s.Path("a"))
		if err != nil {
			t.Fatal(err)
		}
		local, err := os.Open(write(t, filepath.Join(t.TempDir(), "local"), 0o755, 0))
		if err != nil {
			t.Fatal(err)
		}
		s.Silence()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for what, level := range map[string]Level{
				"a served file":                        LevelOf(served, ""),
				"a served file by its path":            LevelOf(served, s.Path("a")),
				"a local file by the path of a served": LevelOf(local, s.Path("a")),
				"a local file by a path through it":    LevelOf(local, s.Path("a/../../local")),
			} {
				if level != Others {
					t.Errorf("%s: %v, want %v", what, level, Others)
				}
			}
			if TrustedFile(served) {
				t.Error("a served file is trusted")
			}
			if PrivateDir(s.Dir) || PrivateDir(s.Path("b")) {
				t.Error("a served directory is private to root")
			}
		}()
		select {
		case <-done:
		case <-time.After(testenv.Patience): // for nothing that takes time
			t.Error("somebody waits for the server")
		}
		s.Close() // which ends all waiting
		<-done
		served.Close()
		local.Close()
	}
}
