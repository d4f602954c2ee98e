package buildid_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/testenv"
)

// TestHashVector is an example from the tests of OpenTelemetry's eBPF profiler
// (libpf/fileid_test.go).
func TestHashVector(t *testing.T) {
	content := []byte("\x7fELF\x00\x01\x02\x03\x04")
	id, err := buildid.Hash(bytes.NewReader(content), int64(len(content)))
	if want := "htl:caf6e5907166ac76eef618e5f7f59cd9"; err != nil || id.String() != want {
		t.Errorf("got %v, %v; want %s", id, err, want)
	}
}

// TestHashAgainstCoreutils lets the shell put the hash together.
func TestHashAgainstCoreutils(t *testing.T) {
	sh := testenv.Tool(t, "sh")
	testenv.Tool(t, "sha256sum")
	name := filepath.Join(t.TempDir(), "content")
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 100, 4095, 4096, 4097, 8191, 8192, 8193, 100_000} {
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(random.Uint32())
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
		script := fmt.Sprintf(`(head -c 4096 "$1"; tail -c 4096 "$1"; printf '\0\0\0\0\%03o\%03o\%03o\%03o') | sha256sum | head -c 32`,
			size>>24&0xff, size>>16&0xff, size>>8&0xff, size&0xff)
		out, err := exec.Command(sh, "-c", script, "sh", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		info, err := buildid.ReadFile(name)
		if want := "htl:" + string(out); err != nil || info.Also.String() != want {
			t.Errorf("%d bytes: got %v, %v; want %s", size, info.Also, err, want)
		}
		id, err := buildid.Hash(bytes.NewReader(content), int64(size))
		if err != nil || id != info.Also {
			t.Errorf("%d bytes: Hash says %v, %v; ReadFile %v", size, id, err, info.Also)
		}
	}
}

func TestHashRefusesWrongLength(t *testing.T) {
	content := bytes.NewReader(make([]byte, 5000))
	for _, size := range []int64{-1, 0, 1, 4095, 5001, 9096, 9097, 1 << 40, 1<<63 - 1} {
		if id, err := buildid.Hash(content, size); err == nil {
			t.Errorf("%d of 5000 bytes: %v", size, id)
		}
	}
	if _, err := buildid.Hash(&failing{r: content, good: 1}, 5000); !errors.Is(err, errFailing) {
		t.Errorf("failing tail: %v", err)
	}
	if _, err := buildid.Hash(&failing{r: content}, 5000); !errors.Is(err, errFailing) {
		t.Errorf("failing head: %v", err)
	}
}
