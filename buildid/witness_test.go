package buildid_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/testenv"
)

// machineFiles returns all ELF files of the machine.
func machineFiles(t *testing.T) []string {
	t.Helper()
	findFiles.Do(func() { foundFiles = testenv.ELFFiles(t, testenv.ELFTrees...) })
	testenv.Need(t, len(foundFiles) > 500, "a machine with some hundred ELF files")
	return foundFiles
}

var (
	findFiles  sync.Once
	foundFiles []string
)

// A witness is a program that prints the notes of many files at once.
type witness struct {
	tool string
	args []string
	file *regexp.Regexp // the line that starts what is said about a file
}

var witnesses = []witness{
	{"readelf", []string{"-n"}, regexp.MustCompile(`^File: (.*)$`)},
	{"eu-readelf", []string{"-n"}, regexp.MustCompile(`^(/.*):$`)},
}

var buildIDLine = regexp.MustCompile(`\bBuild ID: ([0-9a-f]+)$`)

// ask returns the build IDs that the tool found in each file.
func (w witness) ask(t *testing.T, files []string) map[string][]string {
	t.Helper()
	tool := testenv.Tool(t, w.tool)
	answers := map[string][]string{}
	for batch := range slices.Chunk(files, 500) {
		if len(batch) == 1 { // readelf does not repeat the name of a single file
			batch = append(batch, batch[0])
		}
		asked := map[string]bool{}
		for _, name := range batch {
			asked[name] = true
		}
		// The exit status says that some file was odd; that is not the question.
		out, _ := exec.Command(tool, append(w.args, batch...)...).Output()
		name := ""
		for line := range strings.Lines(string(out)) {
			line = strings.TrimSuffix(line, "\n")
			if m := w.file.FindStringSubmatch(line); m != nil && asked[m[1]] {
				name = m[1]
				answers[name] = []string{}
			} else if m := buildIDLine.FindStringSubmatch(line); m != nil {
				answers[name] = append(answers[name], m[1])
			}
		}
	}
	return answers
}

// TestAgainstReadelf compares the GNU build IDs of all ELF files of the machine.
// Where a witness prints several, the first one counts. What is known to differ is
// in unlikeReadelf; no file of a distribution is among it.
func TestAgainstReadelf(t *testing.T) {
	files := machineFiles(t)
	for _, w := range witnesses {
		t.Run(w.tool, func(t *testing.T) {
			answers := w.ask(t, files)
			kinds := map[buildid.Kind]int{}
			silent := 0
			for _, name := range files {
				info, err := buildid.ReadFile(name)
				if err != nil {
					t.Error(err)
					continue
				}
				kinds[info.ID.Kind()]++
				answer, spoke := answers[name]
				if !spoke {
					silent++
				}
				if why := disagreement(info, answer); why != "" {
					t.Errorf("%s: %s", name, why)
				}
			}
			t.Logf("%d files, %v, without an answer of %s: %d", len(files), kinds, w.tool, silent)
			if silent > len(files)/20 {
				t.Errorf("%s said nothing about %d of %d files", w.tool, silent, len(files))
			}
		})
	}
}

func disagreement(info buildid.Info, answer []string) string {
	found := info.ID.Kind() == buildid.GNU
	switch {
	case !found && len(answer) > 0:
		return fmt.Sprintf("found %v, the witness %v", info.ID, answer)
	case found && len(answer) == 0:
		return fmt.Sprintf("found %v, the witness nothing", info.ID)
	case found && answer[0] != info.ID.String():
		return fmt.Sprintf("found %v, the witness %v", info.ID, answer)
	default:
		return ""
	}
}

// TestOrderDoesNotMatter looks at sections first, with debug/elf, and must come
// to the same GNU build ID for all ELF files of the machine.
func TestOrderDoesNotMatter(t *testing.T) {
	compared := 0
	for _, name := range machineFiles(t) {
		id := sectionsFirst(name)
		if id == "" {
			continue
		}
		compared++
		info, err := buildid.ReadFile(name)
		if err != nil || info.ID.String() != id {
			t.Errorf("%s: %v at %v of the %v, %v; the sections say %s", name, info.ID, info.Offset, info.Where, err, id)
		}
	}
	t.Logf("%d files", compared)
}

// sectionsFirst returns the first GNU build ID in the note sections of a file.
func sectionsFirst(name string) string {
	f, err := elf.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOTE {
			continue
		}
		data, err := s.Data()
		if err != nil {
			continue
		}
		if id := gnuNote(data, f.ByteOrder, int(max(s.Addralign, 4))); id != "" {
			return id
		}
	}
	return ""
}

func gnuNote(data []byte, order binary.ByteOrder, align int) string {
	pad := func(n uint32) int { return (int(n) + align - 1) / align * align }
	for len(data) >= 12 {
		name, desc := order.Uint32(data), order.Uint32(data[4:])
		content := pad(12 + name)
		if content+int(desc) > len(data) {
			return ""
		}
		if order.Uint32(data[8:]) == 3 && bytes.HasPrefix(data[12:], []byte("GNU\x00")) {
			return hex.EncodeToString(data[content : content+int(desc)])
		}
		data = data[min(content+pad(desc), len(data)):]
	}
	return ""
}

// TestAgainstGo compares the Go build IDs with what the Go command says.
func TestAgainstGo(t *testing.T) {
	tool := testenv.Tool(t, "go")
	asked := 0
	for _, name := range machineFiles(t) {
		info, err := buildid.ReadFile(name)
		if err != nil || info.ID.Kind() != buildid.Go {
			continue
		}
		out, err := exec.Command(tool, "tool", "buildid", name).Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != string(info.ID.Bytes()) {
			t.Errorf("%s: %v, the Go command %q, %v", name, info.ID, got, err)
		}
		asked++
	}
	t.Logf("%d files", asked)
}
