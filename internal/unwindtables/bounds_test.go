package unwindtables

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"hallmark/internal/objects"
	"hallmark/internal/procfs"
	"hallmark/internal/proctest"
	"hallmark/internal/quota"
	"hallmark/internal/testenv"
)

const stranger = 65534

// copyOf returns a copy of the C library, which a stranger owns.
func copyOf(t *testing.T) string {
	t.Helper()
	testenv.Root(t)
	b, err := os.ReadFile(proctest.LibC(t))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "library")
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(name, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	return name
}

// exhausted are bounds of which a stranger has nothing left.
var exhausted = map[string]func(b *bounds){
	"no time": func(b *bounds) { b.time.Spend(stranger, time.Hour) },
	"no room": func(b *bounds) { b.bytes = quota.New(0, 0) },
}

// TestOwnersHaveShares has no table built of a file whose owner has nothing left, and has that of root's built.
func TestOwnersHaveShares(t *testing.T) {
	foreign, real := copyOf(t), proctest.LibC(t)
	for name, exhaust := range exhausted {
		t.Run(name, func(t *testing.T) {
			set, kernel := objects.New(), newFakeKernel()
			defer set.Stop()
			tables := NewSupply(set, kernel, Cache{})
			defer tables.Stop()
			exhaust(tables.bounds)
			tables.Introduce(7, fileObjectOf(t, set, foreign), nil)
			tables.Introduce(8, fileObjectOf(t, set, real), nil)
			if table := awaitTable(t, tables, 7); table != nil {
				t.Error("the stranger's file has a table")
			}
			if table := awaitTable(t, tables, 8); table == nil {
				t.Error("root's file has no table")
			}
			b := NewBuilder(set, Cache{})
			exhaust(b.bounds)
			for _, file := range []string{foreign, real} {
				o := fileObjectOf(t, set, file)
				b.Table(o)
				b.Wait()
				if table, settled := b.Table(o); !settled || (table != nil) != (file == real) {
					t.Errorf("%s has the table %v, settled: %v", file, table != nil, settled)
				}
			}
			b.Stop()
		})
	}
}

// TestTimeComesBack has the programs ask again for a table that there was no time for.
func TestTimeComesBack(t *testing.T) {
	set, kernel := objects.New(), newFakeKernel()
	defer set.Stop()
	tables := NewSupply(set, kernel, Cache{})
	defer tables.Stop()
	exhausted["no time"](tables.bounds)
	tables.Introduce(7, fileObjectOf(t, set, copyOf(t)), nil)
	awaitTable(t, tables, 7)
	if !kernel.Has(7) {
		t.Error("the programs go on to ask")
	}
	tables.bounds = newBounds()
	tables.refusedAt = time.Now().Add(-2 * retryAfter)
	if tables.Retry(); kernel.Has(7) {
		t.Fatal("the programs do not ask again")
	}
	tables.Missing(7)
	testenv.Await(t, "the table", func() bool { return kernel.Has(7) })
}

// TestRoomComesBack lets go of a table that was kept for samples.
func TestRoomComesBack(t *testing.T) {
	set := objects.New()
	defer set.Stop()
	tables := NewSupply(set, newFakeKernel(), Cache{})
	defer tables.Stop()
	tables.bounds.bytes = quota.New(1, 0)
	foreign := copyOf(t)
	for serial := range uint32(2) {
		tables.Introduce(serial, fileObjectOf(t, set, foreign), nil)
		if awaitTable(t, tables, serial) == nil {
			t.Fatalf("table %d is not kept", serial)
		}
		if tables.bounds.bytes.Has(stranger) {
			t.Errorf("table %d takes no room", serial)
		}
		tables.DropAll()
	}
}

// TestOwnerOf wants a file to be a stranger's that others can write, whoever owns it.
func TestOwnerOf(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for mode, want := range map[os.FileMode]uint32{0o600: 0, 0o622: procfs.NoUser} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		if got := ownerOf(objects.Source{Content: f}); got != want {
			t.Errorf("a file of this user with mode %o is user %d's, want %d", mode, got, want)
		}
	}
	if got := ownerOf(objects.Source{}); got != procfs.NoUser {
		t.Errorf("a file that a helper has open is user %d's", got)
	}
}
