package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/cmd/hallmark/internal/input"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/proftest"
	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/symbol"
)

// TestDescribeKind has inputs that are no such thing as a verb reads: the error says which kind of
// file each is, and stays as it is where that is what the verb reads, or nobody knows.
func TestDescribeKind(t *testing.T) {
	dir := t.TempDir()
	file := func(content string) string {
		f, err := os.CreateTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(content); err != nil {
			t.Fatal(err)
		}
		return f.Name()
	}
	other := errors.New("other")
	for name, c := range map[string]struct {
		path string
		err  error
		want string // behind the path, "" for the error as it was
	}{
		"ELF as a profile":       {file("\x7fELF\x02"), profile.ErrFormat, ": not a profile, but an ELF file ('hallmark lookup' and 'hallmark id' read it)"},
		"text as a profile":      {file("a;b 5\n"), profile.ErrFormat, ": not a profile, but text"},
		"perf's text, no event":  {file("w 12862/12862   331.452894: \n\t            1232 mix (/bin/w)\n"), profile.ErrFormat, ": not a profile, but text of perf script whose samples lack the command, the thread, the time or the event (perf script -F comm,pid,tid,time,period,event,ip,sym,dso prints all that is read)"},
		"text in columns":        {file("list\n\t            add these\n\t5 files\n"), profile.ErrFormat, ": not a profile, but text"},
		"large text":             {file("of a book\n"), profile.ErrTooLarge, ": not a profile, but text"},
		"large folded stacks":    {file("a;b 5\n"), profile.ErrTooLarge, ""},
		"a large old profile":    {file("heap profile: 1: 2 [3: 4] @ heap\n"), profile.ErrTooLarge, ""},
		"a large profile":        {file("\x1f\x8b\x08"), profile.ErrTooLarge, ""},
		"a damaged profile":      {file("\x1f\x8b\x08"), profile.ErrFormat, ""},
		"a profile as perf.data": {file("\x1f\x8b\x08"), perfdata.ErrNotPerfData, ": not a perf.data file, but compressed by gzip, as profiles are ('hallmark report' reads those)"},
		"perf.data as ELF":       {file("PERFILE2h"), symbol.ErrNotELF, ": not an ELF file, but a perf.data file ('hallmark report' reads it)"},
		"an older index":         {file("hallmark\x01"), symbol.ErrNotIndex, ""},
		"ELF as an index":        {file("\x7fELF\x02"), symbol.ErrNotIndex, ": not an index, but an ELF file ('hallmark lookup' and 'hallmark id' read it)"},
		"speedscope as profile":  {file(`{"$schema":"https://www.speedscope.app/file-format-schema.json"`), profile.ErrFormat, ": not a profile, but a profile for speedscope, which Hallmark writes and does not read"},
		"damaged OTLP as JSON":   {file(`{"resourceProfiles":5}`), profile.ErrFormat, ""},
		"nobody knows":           {file("\x00\x01\x02"), profile.ErrFormat, ""},
		"an empty file":          {file(""), symbol.ErrNotELF, ": not an ELF file, but an empty file"},
		"another error":          {file("\x7fELF\x02"), other, ""},
		"no file":                {filepath.Join(dir, "none"), profile.ErrFormat, ""},
		"a device":               {"/dev/null", profile.ErrFormat, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := fmt.Errorf("%s: %w", c.path, c.err)
			want := err.Error()
			if c.want != "" {
				want = c.path + c.want
			}
			if got := input.DescribeKind(c.path, err); got.Error() != want {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
	if err := input.DescribeKind(dir, symbol.ErrNotELF); err.Error() != "read "+dir+": is a directory" {
		t.Errorf("a directory: %v", err)
	}
}

// TestOptionsOfRecordings wants options that are for recordings by perf to be refused with a profile, and
// an input of another kind than a verb reads to be named.
func TestOptionsOfRecordings(t *testing.T) {
	dir := t.TempDir()
	gz := filepath.Join(dir, "x.gz")
	if err := os.WriteFile(gz, []byte("\x1f\x8b\x08\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	profile := proftest.Save(t, proftest.Mixed())
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"report", "--event", "cycles", profile}, 2, "--event is for recordings by perf"},
		{[]string{"inject", gz}, 1, "not a perf.data file, but compressed by gzip"},
		{[]string{"symbolize", os.Args[0]}, 1, "not text with frames, but an ELF file"},
		{[]string{"convert", "-o", "-", profile}, 2, "use --format"},
		{[]string{"lookup", "7be4", "10"}, 1, "at least 6 digits"},
		{[]string{"lookup", os.Args[0], "99999999999999999999"}, 2, "is beyond 64 bits"},
	} {
		var stdout, stderr strings.Builder
		e := &verb.Env{Stdout: &stdout, Stderr: &stderr, Stdin: strings.NewReader("")}
		if status := run(context.Background(), e, c.args); status != c.status || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%q: status %d, want %d, and %q in\n%s", c.args[:2], status, c.status, c.want, &stderr)
		}
	}
}
