package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hallmark/internal/proftest"
	"hallmark/internal/testenv"
)

// jsonVersion is that of docs/json.md.
const jsonVersion = 2

// TestJSONIsDocumented has all verbs print JSON, and wants each field to be in docs/json.md, with the type
// that it has there: the same name has the same type in all verbs. Each object has the version.
func TestJSONIsDocumented(t *testing.T) {
	documented := documentedFields(t)
	dir := t.TempDir()
	prog := buildCounted(t, dir)
	pid := strconv.Itoa(os.Getpid())
	profile := proftest.Save(t, proftest.Mixed())
	ids, err := exec.Command("hallmark", "id", prog).Output()
	if err != nil {
		t.Fatal(err)
	}
	id := strings.Fields(string(ids))[1]
	crash := fmt.Sprintf("    #0 0x55d0c0401130  (%s+0x1139) (BuildId: %s)\n    #1 0x10 (/nowhere/x+0x10)\n", prog, id)
	checkRuns(t, documented, []jsonRun{
		{"", []string{"id", "--json", prog, "/nonexistent", os.Args[0], pid}, []string{"build_id", "build_id_kind", "binary", "where", "error", "pid"}},
		{"", []string{"maps", "--json", "--all", pid}, []string{"build_id", "binary", "start", "start_hex", "end", "offset", "name", "perm"}},
		{"", []string{"ps", "--json", "--libs", pid}, []string{"pid", "process", "program", "binary", "build_id"}},
		{"", []string{"addr", "--json", pid, "1", "ffffffff81000000"}, []string{"address", "address_hex", "reason", "symbol_reason"}},
		{"", []string{"lookup", "--json", prog, "0"}, []string{"offset", "symbol_reason"}},
		{"", []string{"lookup", "--json", "--virtual", os.Args[0], textStart(t)}, []string{"virtual", "frames", "function", "source_file", "line", "symbol_source"}},
		{crash, []string{"symbolize", "--json", "--debug-path", dir}, []string{"input_line", "binary", "build_id", "offset|virtual"}},
		{"", []string{"report", "--json", profile}, []string{"functions", "function", "binaries", "coverage", "frame_count", "gaps", "advice", "flat", "cum", "processes", "process"}},
		{"", []string{"report", "--json", "--tree", profile}, []string{"nodes", "parent", "function", "flat", "cum", "inverted", "coverage"}},
		{"", []string{"report", "--json", "--diff", profile, profile}, []string{"functions", "total_before", "flat_before", "change", "scale", "binaries", "processes"}},
		{"", []string{"unwind", "--json", prog}, []string{"binary", "start", "end", "kind", "section"}},
		{"", []string{"unwind", "--json", "--stats", prog}, []string{"rows", "rules", "built_ns"}},
		{"", []string{"doctor", "--json"}, []string{"features", "answer", "kernel", "backend"}},
		{"", []string{"census", "--json"}, []string{"designs", "code_counts"}},
		{"", []string{"serve", "gc", "--json", "--dry-run", "--store", usedStore(t, prog), "--keep-size", "1"},
			[]string{"build_id", "retention", "last_used", "stored_bytes", "dry_run", "removed_identities", "marked_objects"}},
	})
	t.Run("recording", func(t *testing.T) {
		needRecording(t)
		profile := filepath.Join(dir, "recorded.pb.gz")
		burn := []string{"sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"}
		if out, err := exec.Command("hallmark", append([]string{"record", "-o", profile, "--"}, burn...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		checkRuns(t, documented, []jsonRun{
			{"", []string{"report", "--json", profile}, []string{"stacks", "complete"}},
			{"", []string{"exec", "--json", "--exit", "--libs", "--", "sh", "-c", prog + "; /bin/true"}, []string{"event", "process", "program", "binary", "build_id", "exit"}},
		})
	})
	t.Run("bench", func(t *testing.T) {
		testenv.Root(t)
		needRecording(t)
		checkRuns(t, documented, []jsonRun{
			{"", []string{"bench", "identity", "--json", "-d", "300ms"}, []string{"frequency", "costs", "way", "backends"}},
		})
	})
}

// A jsonRun is a command that prints JSON, with fields that there must be.
type jsonRun struct {
	stdin string
	args  []string
	want  []string // "a|b" is one of them
}

func checkRuns(t *testing.T, documented map[string]string, runs []jsonRun) {
	for _, r := range runs {
		t.Run(strings.Join(r.args[:2], " "), func(t *testing.T) {
			cmd := exec.Command("hallmark", r.args...)
			cmd.Stdin = strings.NewReader(r.stdin)
			var out, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &stderr
			_ = cmd.Run() // some have an error for one of their arguments
			fields := map[string]bool{}
			objects := 0
			for d := json.NewDecoder(&out); ; objects++ {
				var object map[string]any
				if err := d.Decode(&object); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%v\n%s", err, &stderr)
				}
				if object["version"] != float64(jsonVersion) {
					t.Errorf("an object has version %v", object["version"])
				}
				checkFields(t, documented, fields, object)
			}
			for _, want := range r.want {
				if !slices.ContainsFunc(strings.Split(want, "|"), func(one string) bool { return fields[one] }) {
					t.Errorf("%d objects have no field %s, but %v\n%s", objects, want, slices.Sorted(maps.Keys(fields)), &stderr)
				}
			}
		})
	}
}

// freeKeys are fields whose objects have keys that are no fields.
var freeKeys = []string{"saved", "silent", "silent_bytes"}

// checkFields wants the fields of an object, and of those in it, to be documented with their types.
func checkFields(t *testing.T, documented map[string]string, fields map[string]bool, object map[string]any) {
	t.Helper()
	for name, value := range object {
		fields[name] = true
		got := typeOf(value)
		if want := documented[name]; want != got {
			t.Errorf("field %s is of type %s, and %q in docs/json.md", name, got, want)
		}
		if slices.Contains(freeKeys, name) {
			continue
		}
		list, isList := value.([]any)
		if !isList {
			list = []any{value}
		}
		for _, one := range list {
			if below, isObject := one.(map[string]any); isObject {
				checkFields(t, documented, fields, below)
			}
		}
	}
}

func typeOf(value any) string {
	switch value.(type) {
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "boolean"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return fmt.Sprintf("%T", value)
}

// documentedFields returns the types that docs/json.md gives to fields. A row has several fields of one
// type, or as many types.
func documentedFields(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "json.md"))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+`) \\| ([a-z, ]+) \\|").FindAllSubmatch(page, -1) {
		names, types := strings.Split(string(row[1]), ", "), strings.Split(string(row[2]), ", ")
		for i, name := range names {
			name = strings.Trim(name, "`")
			of := types[min(i, len(types)-1)]
			if len(types) > 1 && len(types) != len(names) {
				t.Errorf("%d names and %d types: %s", len(names), len(types), row[0])
			}
			if known, isKnown := fields[name]; isKnown && known != of {
				t.Errorf("%s is %s and %s", name, known, of)
			}
			fields[name] = of
		}
	}
	if len(fields) < 100 {
		t.Fatalf("docs/json.md has %d fields", len(fields))
	}
	return fields
}

// usedStore returns the directory of a server that has a file.
func usedStore(t *testing.T, prog string) string {
	t.Helper()
	dir := t.TempDir()
	base := serveCommand(t, "--store", dir)
	big := filepath.Join(t.TempDir(), "big")
	random := make([]byte, 3<<20)
	_, _ = rand.Read(random)
	if err := os.WriteFile(big+".random", random, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("objcopy", "--add-section", ".big="+big+".random", prog, big).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, errs, err := elsewhere(t, "push", "--server", base, big); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	return dir
}

// buildCounted builds a program of C.
func buildCounted(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "prog")
	cmd := exec.Command(testenv.Tool(t, "gcc"), "-g", "-x", "c", "-o", name, "-")
	cmd.Stdin = strings.NewReader("int main(int argc, char **argv) { return argc > 5; }\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return name
}

// textStart returns the address of a function of this program.
func textStart(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%x", reflect.ValueOf(TestJSONIsDocumented).Pointer()+1)
}

// TestJSONOfFailures has each verb that prints JSON fail. Its output must be JSON, whose last object
// has the error that standard error has, or that of the file.
func TestJSONOfFailures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text\nof two lines")
	if err := os.WriteFile(text, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	const nobody = "999999999"
	failing := map[string][][]string{
		"id":        {{"/nonexistent"}, {nobody}, {"99999999999999999999"}, {"/"}, {}},
		"maps":      {{nobody}, {"x"}, {"--all", nobody}, {}},
		"ps":        {{"0"}, {filepath.Join(text, "below")}},
		"exec":      {{"--", "/nonexistent"}, {"--count", "0"}},
		"addr":      {{nobody, "1"}, {nobody, "zz"}, {"x"}},
		"lookup":    {{"/nonexistent", "1"}, {os.Args[0], "0", "zz"}, {text, "1"}, {"123456789", "1"}},
		"symbolize": {{"/nonexistent"}, {"--format", "x"}, {"--debug-path", "/nonexistent"}, {os.Args[0]}},
		"unwind":    {{os.Args[0], "/nonexistent"}, {"--stats", text}, {"--check", "zz", text}, {}},
		"push":      {{"x"}, {"--server", "ftp://x", "y"}, {"--server", "http://127.0.0.1:1", "/nonexistent"}},
		"top":       {{"x"}, {"--table", "x"}, {"-p", nobody}},
		"report":    {{"/nonexistent"}, {text}, {"--top", "-1", text}},
		"doctor":    {{"x"}},
		"census":    {{"x"}},
		"bench":     {{"identity", "--json", "x"}},
		"serve":     {{"gc", "--json", "x"}, {"gc", "--json", "--store", "/nonexistent"}, {"gc", "--json", "--store", text}, {"gc", "--json", "--keep-age", "-1"}},
	}
	for _, verb := range verbsWithJSON(t) {
		if len(failing[verb]) == 0 {
			t.Errorf("%s --json is not made to fail", verb)
		}
		for _, args := range failing[verb] {
			if verb == "bench" || verb == "serve" { // the flag is one of a verb below
				args = append([]string{verb}, args...)
			} else {
				args = append([]string{verb, "--json"}, args...)
			}
			t.Run(fmt.Sprintf("%.60q", args), func(t *testing.T) { checkFailure(t, dir, args) })
		}
	}
}

// verbsWithJSON returns the verbs that print JSON, or that a verb below them does.
func verbsWithJSON(t *testing.T) (verbs []string) {
	t.Helper()
	help := func(args ...string) string {
		out, err := exec.Command("hallmark", append(args, "--help")...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for _, found := range regexp.MustCompile(`(?m)^  ([a-z0-9]+)  `).FindAllStringSubmatch(help(), -1) {
		verb := found[1]
		if strings.Contains(help(verb), "--json ") || verb == "bench" || verb == "serve" {
			verbs = append(verbs, verb)
		}
	}
	if len(verbs) < 10 {
		t.Fatalf("only %v", verbs)
	}
	return verbs
}

func checkFailure(t *testing.T, dir string, args []string) {
	cmd := exec.Command("hallmark", args...)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+dir, "DEBUGINFOD_URLS=")
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err == nil {
		t.Fatal("it does not fail")
	}
	var last map[string]any
	for d := json.NewDecoder(&out); ; {
		var object map[string]any
		if err := d.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, &stderr)
		}
		last = object
	}
	text, _ := last["error"].(string)
	if last["version"] != float64(jsonVersion) || text == "" {
		t.Errorf("the last object is %v\n%s", last, &stderr)
	}
	if last["binary"] == nil && !strings.Contains(text, "\n") && !strings.Contains(stderr.String(), text) {
		t.Errorf("standard error lacks the error %q:\n%s", text, &stderr)
	}
}
