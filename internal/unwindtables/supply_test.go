package unwindtables

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/objects"
	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/procmap"
	"hallmark/unwind"
)

// fakeKernel takes tables as the programs do.
type fakeKernel struct {
	mu          sync.Mutex
	tables      map[uint32]*unwind.Table
	none        map[uint32]bool
	unavailable map[uint32]bool
	full        bool
	room        bpf.TablesStats
}

func (k *fakeKernel) Stats() bpf.TablesStats {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.room
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{tables: map[uint32]*unwind.Table{}, none: map[uint32]bool{}, unavailable: map[uint32]bool{}, room: bpf.TablesStats{Capacity: 1 << 20}}
}

func (k *fakeKernel) Put(serial uint32, t *unwind.Table) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.full {
		return bpf.ErrNoRoom
	}
	delete(k.unavailable, serial)
	k.tables[serial] = t
	return nil
}

func (k *fakeKernel) PutNone(serial uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.none[serial] = true
	return nil
}

func (k *fakeKernel) PutUnavailable(serial uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unavailable[serial] = true
	return nil
}

func (k *fakeKernel) Has(serial uint32) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tables[serial] != nil || k.none[serial] || k.unavailable[serial]
}

func (k *fakeKernel) Remove(serial uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.tables, serial)
	delete(k.none, serial)
	delete(k.unavailable, serial)
	return nil
}

// fileObject returns an object of a file that was reached already.
func fileObjectOf(t *testing.T, s *objects.Set, name string) *objects.Object {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := buildid.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return s.OfOpened(objects.Opened{Path: name, ID: info.ID, Content: f, Seen: reach.StampOf(f)})
}

// awaitTable waits until the outcome of a file is known that a sample wants.
func awaitTable(t *testing.T, tables *Supply, serial uint32) *unwind.Table {
	t.Helper()
	for {
		table, wait := tables.Want(serial)
		if !wait {
			return table
		}
		if len(tables.TakeFinished(true)) == 0 {
			t.Fatalf("nothing comes of file %d", serial)
		}
	}
}

// TestTablesAreGiven has the table of a file given under two serial numbers, and in a
// second recording taken from the cache: the same one.
func TestTablesAreGiven(t *testing.T) {
	dir, name := t.TempDir(), proctest.LibC(t)
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := unwind.Build(f, unwind.BuildOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, cached := range []bool{false, true} {
		set, kernel := objects.New(), newFakeKernel()
		tables := NewSupply(set, kernel, NewCache(dir))
		o := fileObjectOf(t, set, name)
		tables.Introduce(7, o, nil)
		tables.Introduce(8, o, nil)
		for _, serial := range []uint32{7, 8} {
			if got := awaitTable(t, tables, serial); got == nil || !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Fatalf("serial number %d: another table", serial)
			}
			if given := kernel.tables[serial]; given == nil || !bytes.Equal(given.Bytes(), want.Bytes()) {
				t.Errorf("serial number %d: the kernel has another table, or none", serial)
			}
		}
		tables.Stop()
		set.Stop()
		if n := tables.Counts(); n.Cached != 0 != cached || n.Built != 0 == cached || n.Built+n.Cached != 1 {
			t.Errorf("%+v in a recording with the cache filled: %v", n, cached)
		}
	}
}

// TestTablesThatDoNotCome wants an answer for files that cannot be reached, that are no
// ELF files, and for which there is no room.
func TestTablesThatDoNotCome(t *testing.T) {
	set, kernel := objects.New(), newFakeKernel()
	defer set.Stop()
	tables := NewSupply(set, kernel, Cache{})
	defer tables.Stop()

	lost := set.File(reach.Key{Inode: 1}, reach.VMAOf(&bpf.File{Path: "/no/such/file"}), 0)
	tables.Expect(lost)
	set.Reach(objects.Job{Request: reach.Request{VMA: reach.VMAOf(&bpf.File{Path: "/no/such/file"}), PID: ^uint32(0) >> 1}, Object: lost})
	tables.Introduce(1, lost, nil)
	if table := awaitTable(t, tables, 1); table != nil || !kernel.unavailable[1] {
		t.Errorf("a file out of reach has the table %v, the kernel knows: %v", table, kernel.unavailable[1])
	}

	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	tables.Introduce(2, fileObjectOf(t, set, script), nil)
	if table := awaitTable(t, tables, 2); table == nil || table.Rows() != 0 || !kernel.none[2] {
		t.Errorf("what is no ELF file has the table %v, the kernel knows: %v", table, kernel.none[2])
	}

	kernel.mu.Lock()
	kernel.full = true
	kernel.mu.Unlock()
	tables.Introduce(3, fileObjectOf(t, set, proctest.LibC(t)), nil)
	if table := awaitTable(t, tables, 3); table == nil || !kernel.unavailable[3] {
		t.Errorf("where the kernel is full, the table is %v, the kernel knows: %v", table, kernel.unavailable[3])
	}
	if n := tables.Counts(); n.NoRoom != 1 || n.Unavailable != 1 {
		t.Errorf("%+v", n)
	}
	if _, wait := tables.Want(99); wait {
		t.Error("a serial number that nobody introduced is waited for")
	}
}

// TestTableOfAnOverwrittenFile has a file change after its identity was read: neither is its
// table used, nor kept under that identity.
func TestTableOfAnOverwrittenFile(t *testing.T) {
	set, kernel := objects.New(), newFakeKernel()
	defer set.Stop()
	cache := NewCache(t.TempDir())
	tables := NewSupply(set, kernel, cache)
	defer tables.Stop()
	name := filepath.Join(t.TempDir(), "library")
	b, err := os.ReadFile(proctest.LibC(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o666); err != nil {
		t.Fatal(err)
	}
	o := fileObjectOf(t, set, name)
	if err := os.WriteFile(name, b[:len(b)/2], 0o666); err != nil {
		t.Fatal(err)
	}
	tables.Introduce(1, o, nil)
	if table := awaitTable(t, tables, 1); table != nil || !kernel.unavailable[1] {
		t.Errorf("it has the table %v, the kernel knows: %v", table, kernel.unavailable[1])
	}
	copied := NewBuilder(set, cache)
	copied.Table(o)
	copied.Wait()
	if table, settled := copied.Table(o); table != nil || !settled {
		t.Errorf("copied stacks are walked by the table %v, settled: %v", table, settled)
	}
	if kept, err := cache.dir.List(); err != nil || len(kept) > 0 {
		t.Errorf("%v are kept, %v", kept, err)
	}
}

// TestForeseenFilesAreClosed has the table of a file built that no sample is in, through a
// process that has it mapped. It is not kept open; when a sample is in it, it is again.
func TestForeseenFilesAreClosed(t *testing.T) {
	set, kernel := objects.New(), newFakeKernel()
	defer set.Close()
	tables := NewSupply(set, kernel, NewCache(t.TempDir()))
	defer tables.Stop()
	o, j := ownProgram(t, set)
	tables.Introduce(1, o, &j.Request)
	testenv.Await(t, "the table", func() bool { return kernel.Has(1) })
	tables.Stop()
	if o.Content != nil {
		t.Errorf("it is open: %v", o.Content)
	}
	tables.Expect(o)
	if !set.Reach(j) {
		t.Error("it is not reached again")
	}
	set.Stop()
	if o.Content == nil {
		t.Error("it is not open")
	}
}

// ownProgram returns the object of this program, and the way to reach it.
func ownProgram(t *testing.T, s *objects.Set) (*objects.Object, objects.Job) {
	t.Helper()
	vmas, err := reach.Mappings(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vmas {
		if v.Name == exe && v.Perm&procmap.Exec != 0 {
			o := s.File(reach.Key{FromProc: true, Inode: v.Inode}, v, 0)
			return o, objects.Job{Request: reach.Request{VMA: v, PID: uint32(os.Getpid()), Mapped: time.Now()}, Object: o}
		}
	}
	t.Fatal("this program is not mapped")
	return nil, objects.Job{}
}

// TestMemoryHasNoTable introduces memory that looks like a file, and takes it out.
func TestMemoryHasNoTable(t *testing.T) {
	set, kernel := objects.New(), newFakeKernel()
	defer set.Stop()
	tables := NewSupply(set, kernel, Cache{})
	defer tables.Stop()
	tables.IntroduceMemory(1)
	if err := kernel.Remove(1); err != nil {
		t.Fatal(err)
	}
	tables.DropAll()
	tables.Missing(1)
	if table := awaitTable(t, tables, 1); table == nil || table.Rows() != 0 || !kernel.none[1] {
		t.Errorf("it has the table %v, the kernel knows: %v", table, kernel.none[1])
	}
}

// TestRoomIsForSamples has little room left: what no sample was in is left alone until
// one is, and what found no room is tried again.
func TestRoomIsForSamples(t *testing.T) {
	set, kernel := objects.New(), newFakeKernel()
	defer set.Stop()
	tables := NewSupply(set, kernel, Cache{})
	defer tables.Stop()
	kernel.mu.Lock()
	kernel.room.Bytes = kernel.room.Capacity
	kernel.mu.Unlock()
	o := fileObjectOf(t, set, proctest.LibC(t))
	tables.Introduce(1, o, &reach.Request{})
	testenv.Await(t, "the table", func() bool { return len(tables.TakeFinished(false)) > 0 })
	if kernel.Has(1) {
		t.Fatal("the kernel has a table that nobody was in, and little room")
	}

	kernel.mu.Lock()
	kernel.full = true
	kernel.mu.Unlock()
	tables.Missing(1)
	awaitTable(t, tables, 1)
	if !kernel.unavailable[1] {
		t.Error("a table without room is not said to be unavailable")
	}
	tables.Retry() // too early
	if !kernel.Has(1) {
		t.Error("it is tried again at once")
	}
	kernel.mu.Lock()
	kernel.full = false
	kernel.mu.Unlock()
	tables.mu.Lock()
	tables.refusedAt = tables.refusedAt.Add(-retryAfter)
	tables.mu.Unlock()
	tables.Retry()
	tables.DropAll()
	tables.Missing(1)
	if table := awaitTable(t, tables, 1); table == nil || kernel.tables[1] == nil {
		t.Error("it is not given when there is room")
	}
}

// TestEvictedTableComesAgain has a table taken out, and asked for by a sample again.
func TestEvictedTableComesAgain(t *testing.T) {
	set, kernel := objects.New(), newFakeKernel()
	defer set.Stop()
	tables := NewSupply(set, kernel, Cache{})
	defer tables.Stop()
	tables.Introduce(5, fileObjectOf(t, set, proctest.LibC(t)), nil)
	first := awaitTable(t, tables, 5)
	tables.DropAll()
	if err := kernel.Remove(5); err != nil {
		t.Fatal(err)
	}
	tables.Missing(5)
	if again := awaitTable(t, tables, 5); again == nil || !bytes.Equal(again.Bytes(), first.Bytes()) || !kernel.Has(5) {
		t.Errorf("it came back: %v, in the kernel: %v", again != nil, kernel.Has(5))
	}
}

// TestTableCache keeps a table, and damages it in every way there is.
func TestTableCache(t *testing.T) {
	name := proctest.LibC(t)
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := unwind.Build(f, unwind.BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildid.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	cache := NewCache(t.TempDir())
	key := tableKey{id: info.ID, size: 1 << 20}
	if err := cache.store(key, table); err != nil {
		t.Fatal(err)
	}
	got, err := cache.load(key)
	if err != nil || !bytes.Equal(got.Bytes(), table.Bytes()) {
		t.Fatalf("another table came back: %v", err)
	}
	if _, err := cache.load(tableKey{id: info.ID, size: 1<<20 + 1}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file of another size has a table: %v", err)
	}
	whole, err := os.ReadFile(cache.name(key))
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += 1 + len(whole)/100 {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 0x10
		for _, b := range [][]byte{damaged, whole[:at]} {
			if at >= 12 && at < tableCacheHeader && len(b) == len(whole) {
				continue // nothing is there
			}
			if err := os.WriteFile(cache.name(key), b, 0o666); err != nil {
				t.Fatal(err)
			}
			if _, err := cache.load(key); !errors.Is(err, errDamaged) {
				t.Errorf("damaged at %d of %d, %d bytes: %v", at, len(whole), len(b), err)
			}
		}
	}
}

// TestTableCacheKeepsWhatIsNamed keeps no table of a file of which only the ends are known.
func TestTableCacheKeepsWhatIsNamed(t *testing.T) {
	cache := NewCache(t.TempDir())
	for text, want := range map[string]bool{"0123456789abcdef": true, "go:a/b": true, "content:0123456789abcdef0123456789abcdef01234567": true, "htl:00112233445566778899aabbccddeeff": false} {
		id, err := buildid.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := cache.keeps(tableKey{id: id, size: 1}); got != want {
			t.Errorf("%s is kept: %v", text, got)
		}
	}
	if cache.keeps(tableKey{size: 1}) || (Cache{}).keeps(tableKey{}) {
		t.Error("a file without identity is kept, or where there is no cache")
	}
}

// TestTableCacheIsBounded fills the cache beyond what it may have: the tables that nobody
// used for longest go.
func TestTableCacheIsBounded(t *testing.T) {
	f, err := os.Open(proctest.LibC(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := unwind.Build(f, unwind.BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cache := NewCache(t.TempDir())
	cache.most = int64(2*len(table.Bytes()) + 100)
	id, err := buildid.Parse("0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		key := tableKey{id: id, size: int64(i + 1)}
		if err := cache.store(key, table); err != nil {
			t.Fatal(err)
		}
		used := time.Now().Add(time.Duration(i-5) * time.Hour)
		if err := os.Chtimes(cache.name(key), used, used); err != nil {
			t.Fatal(err)
		}
	}
	cache.prune()
	for i := range 4 {
		if _, err := cache.load(tableKey{id: id, size: int64(i + 1)}); (err == nil) != (i >= 2) {
			t.Errorf("table %d is there: %v", i, err == nil)
		}
	}
}

// TestTableCacheOfOtherVersions has tables of other versions beside those of this one: none
// is used, earlier ones go, and later ones are left to the program that wrote them.
func TestTableCacheOfOtherVersions(t *testing.T) {
	cache := NewCache(t.TempDir())
	id, err := buildid.Parse("0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	key := tableKey{id: id, size: 4096}
	ours := cache.name(key)
	suffix := cache.dir.Suffix
	stays := map[string]bool{
		strings.TrimSuffix(ours, suffix) + tableSuffix:                                  false,
		strings.TrimSuffix(ours, suffix) + tableVersion(unwind.Version-1) + tableSuffix: false,
		strings.TrimSuffix(ours, suffix) + tableVersion(unwind.Version+1) + tableSuffix: true,
	}
	if err := os.MkdirAll(cache.dir.Path, 0o777); err != nil {
		t.Fatal(err)
	}
	for name := range stays {
		if err := os.WriteFile(name, []byte("a table"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := cache.load(key); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the table of another version is used: %v", err)
	}
	if err := os.WriteFile(ours, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	stays[ours] = true
	cache.prune()
	for name, want := range stays {
		if _, err := os.Stat(name); (err == nil) != want {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
	}
}

// TestManyFilesHaveTables has more files sampled than may be kept open: their tables are built
// all the same, and again when they made room for others, and nothing stays open.
func TestManyFilesHaveTables(t *testing.T) {
	set, kernel := objects.NewPassing(), newFakeKernel() // as when as many are open as may be
	defer set.Close()
	tables := NewSupply(set, kernel, Cache{})
	defer tables.Stop()
	o, j := ownProgram(t, set)
	tables.Expect(o)
	if !set.Reach(j) {
		t.Fatal("it is not looked for")
	}
	tables.Introduce(1, o, nil)
	for range 2 {
		if table := awaitTable(t, tables, 1); table == nil || kernel.unavailable[1] {
			t.Fatalf("there is no table: %+v", tables.Counts())
		}
		tables.DropAll()
		if err := kernel.Remove(1); err != nil {
			t.Fatal(err)
		}
		tables.Missing(1)
	}
	set.Stop()
	copied := NewBuilder(set, Cache{})
	copied.Table(o)
	copied.Wait()
	if table, settled := copied.Table(o); table == nil || !settled {
		t.Errorf("copied stacks have no table, settled: %v", settled)
	}
	if o.Content != nil {
		t.Errorf("it is open: %v", o.Content)
	}
}
