package packages

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"hallmark/internal/testenv"
)

var content = map[string]string{"/usr/bin/prog": "a program", "/usr/lib/empty": "", "/etc/odd": strings.Repeat("x", 5001)}

func makeTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// walk returns the files and the description in a package.
func walk(b []byte, lim Limits) (files map[string]string, meta Meta, err error) {
	files = map[string]string{}
	err = Walk(context.Background(), bytes.NewReader(b), "test", lim, func(m *Meta) error { meta = *m; return nil }, func(m Member) error {
		text, err := io.ReadAll(m)
		if err == nil && int64(len(text)) != m.Size {
			err = fmt.Errorf("%s: %d bytes of %d", m.Path, len(text), m.Size)
		}
		files[m.Path] = string(text)
		return err
	})
	return files, meta, err
}

func wantContent(t *testing.T, files map[string]string, err error) {
	t.Helper()
	if err != nil || len(files) != len(content) {
		t.Errorf("%d files, %v", len(files), err)
	}
	for name, text := range content {
		if files[name] != text {
			t.Errorf("%s: %.20q", name, files[name])
		}
	}
}

func TestDeb(t *testing.T) {
	tool := testenv.Tool(t, "dpkg-deb")
	dir := makeTree(t)
	if err := os.MkdirAll(filepath.Join(dir, "DEBIAN"), 0o755); err != nil {
		t.Fatal(err)
	}
	control := "Package: prog-dbgsym\nSource: prog-src (1:2.0-1)\nVersion: 1:2.0-1+b1\nArchitecture: amd64\nMaintainer: A <a@b>\nDescription: d\n more: text\nBuild-Ids: 0123456789abcdef0123456789abcdef01234567 nonsense 00112233\n"
	if err := os.WriteFile(filepath.Join(dir, "DEBIAN/control"), []byte(control), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, z := range []string{"xz", "zstd", "gzip", "none"} {
		out := filepath.Join(t.TempDir(), "p.deb")
		if msg, err := exec.Command(tool, "-Z"+z, "--root-owner-group", "--build", dir, out).CombinedOutput(); err != nil {
			if bytes.Contains(msg, []byte("unknown compression")) {
				t.Logf("NOT CHECKED: dpkg-deb does not know %s", z)
				continue
			}
			t.Fatalf("%v: %s", err, msg)
		}
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		files, meta, err := walk(b, Limits{})
		wantContent(t, files, err)
		if meta.Package() != "prog-dbgsym 1:2.0-1+b1 amd64" || meta.Build() != "prog-src 1:2.0-1" || !slices.Equal(meta.BuildIDs, []string{"0123456789abcdef0123456789abcdef01234567", "00112233"}) {
			t.Errorf("%+v", meta)
		}
	}
}

func TestRPM(t *testing.T) {
	tool := testenv.Tool(t, "rpmbuild")
	dir := makeTree(t)
	top := t.TempDir()
	spec := filepath.Join(top, "p.spec")
	for _, z := range []string{"w9.gzdio", "w2.xzdio", "w3.zstdio", "w9.bzdio"} {
		text := "Name: prog\nVersion: 2.0\nRelease: 3\nSummary: s\nLicense: l\nBuildArch: noarch\nProvides: debuginfo(build-id) = 00112233\n%define _binary_payload " + z +
			"\n%define __os_install_post %{nil}\n%description\nd\n%install\nmkdir -p %{buildroot}\ncp -a " + dir + "/. %{buildroot}\n%files\n/\n"
		if err := os.WriteFile(spec, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if msg, err := exec.Command(tool, "-bb", "--define", "_topdir "+top, "--define", "_build_id_links none", spec).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, msg)
		}
		b, err := os.ReadFile(filepath.Join(top, "RPMS/noarch/prog-2.0-3.noarch.rpm"))
		if err != nil {
			t.Fatal(err)
		}
		files, meta, err := walk(b, Limits{})
		wantContent(t, files, err)
		if meta.Package() != "prog 2.0-3 noarch" || meta.Build() != "prog 2.0-3" || !slices.Equal(meta.BuildIDs, []string{"00112233"}) {
			t.Errorf("%+v", meta)
		}
	}
}

func TestTar(t *testing.T) {
	tool := testenv.Tool(t, "tar")
	dir := makeTree(t)
	for _, z := range []string{"", "-z", "-J", "--zstd", "-j"} {
		args := []string{"-c", "-C", dir, "."}
		if z != "" {
			args = append([]string{z}, args...)
		}
		b, err := exec.Command(tool, args...).Output()
		if err != nil {
			t.Logf("NOT CHECKED: tar %s: %v", z, err)
			continue
		}
		files, _, err := walk(b, Limits{})
		wantContent(t, files, err)
	}
}

type entry struct {
	name string
	data []byte
}

func makeTar(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&tar.Header{Name: e.name, Size: int64(len(e.data)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gz(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestImage reads the layers of images, and not what describes them.
func TestImage(t *testing.T) {
	layer := makeTar(t, entry{"usr/bin/prog", []byte("a program")})
	for name, b := range map[string][]byte{
		"OCI":    makeTar(t, entry{"oci-layout", []byte("{}")}, entry{"blobs/sha256/aa", []byte(`{"config":1}`)}, entry{"blobs/sha256/bb", gz(t, layer)}),
		"docker": makeTar(t, entry{"manifest.json", []byte("{}")}, entry{"0123/layer.tar", layer}),
	} {
		files, _, err := walk(b, Limits{})
		if err != nil || files["/usr/bin/prog"] != "a program" {
			t.Errorf("%s: %v, %v", name, files, err)
		}
	}
}

// TestBombs wants archives that unpack to very much given up early.
func TestBombs(t *testing.T) {
	zeros := makeTar(t, entry{"zeros", make([]byte, 100<<20)})
	if _, _, err := walk(gz(t, zeros), Limits{}); !errors.Is(err, ErrLimit) {
		t.Errorf("100 MB of zeros: %v", err)
	}
	nested := makeTar(t, entry{"prog", []byte("deep")})
	for range 5 {
		nested = makeTar(t, entry{"blobs/sha256/x", gz(t, nested)})
	}
	files, _, err := walk(nested, Limits{})
	if err != nil || files["/prog"] != "" {
		t.Errorf("five times nested: %v, %v", files, err)
	}
	many := makeTar(t, slices.Repeat([]entry{{"x", nil}}, 50)...)
	if _, _, err := walk(many, Limits{Members: 49}); !errors.Is(err, ErrLimit) {
		t.Errorf("many members: %v", err)
	}
}

// TestNames wants no name of a member to lead up.
func TestNames(t *testing.T) {
	files, _, err := walk(makeTar(t, entry{"../../etc/passwd", nil}, entry{"/abs", nil}, entry{"a/../../b", nil}), Limits{})
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, want := range []string{"/etc/passwd", "/abs", "/b"} {
		if _, ok := files[want]; !ok {
			t.Errorf("%s is not in %v", want, files)
		}
	}
}

func TestNoPackage(t *testing.T) {
	for _, text := range []string{"", "x", "no package at all, but longer than a header", "!<arch>\n", "!<arch>\nnonsense", "\xed\xab\xee\xdb", "\x1f\x8bxxxxxxxx", "\xfd7zXZ\x00xxxxxxx"} {
		if files, _, err := walk([]byte(text), Limits{}); !errors.Is(err, ErrFormat) {
			t.Errorf("%.20q: %v, %v", text, files, err)
		}
	}
}

func TestSkip(t *testing.T) {
	n := 0
	err := Walk(t.Context(), bytes.NewReader(makeTar(t, entry{"a", nil}, entry{"b", nil})), "test", Limits{}, nil, func(Member) error { n++; return ErrSkip })
	if err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}

func FuzzWalk(f *testing.F) {
	f.Add([]byte("!<arch>\ndebian-binary   0           0     0     100644  4         `\n2.0\n"))
	f.Add(append(append([]byte("\xed\xab\xee\xdb"), make([]byte, 92)...), 0x8e, 0xad, 0xe8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
	f.Add([]byte("070701"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = walk(b, Limits{Unpacked: 1 << 20, Members: 100})
	})
}
