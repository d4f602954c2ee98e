package cli

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/atomicfile"
)

func newManCommand(e *verb.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write the manual pages of all verbs into a directory",
		Example: "  hallmark man /usr/local/share/man/man1",
		Args:    verb.Takes("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := atomicfile.MakeDir(args[0], 0o777); err != nil {
				return err
			}
			if err := writeManPages(cmd.Root(), args[0]); err != nil {
				return fmt.Errorf("writing manual pages: %w", err)
			}
			return nil
		},
	}
}

// writeManPages writes the pages of a command and of those below it.
func writeManPages(cmd *cobra.Command, dir string) error {
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		if err := writeManPages(sub, dir); err != nil {
			return err
		}
	}
	return atomicfile.Write(filepath.Join(dir, manName(cmd)+".1"), 0o666, func(w io.Writer) error {
		_, err := io.WriteString(w, manPage(cmd))
		return err
	})
}

// commitDay returns the day of the commit that this program was built from, as a page states it, or
// "" where the toolchain recorded none.
func commitDay() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if at, err := time.Parse(time.RFC3339, s.Value); s.Key == "vcs.time" && err == nil {
				return at.UTC().Format(time.DateOnly)
			}
		}
	}
	return ""
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns the page of a command in the language of man(7). Package cobra/doc
// would do so by way of Markdown, whose packages make every start of the program slower.
func manPage(cmd *cobra.Command) string {
	cmd.InitDefaultHelpFlag()
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"%s\" Hallmark Hallmark\n", strings.ToUpper(manName(cmd)), commitDay())
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", manText(manName(cmd)), manText(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", manText(cmd.UseLine()))
	b.WriteString(".SH DESCRIPTION\n")
	writeManParagraphs(&b, strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short)))
	b.WriteString(".SH OPTIONS\n")
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) { writeManFlag(&b, f) })
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", manText(cmd.Example))
	}
	writeManReferences(&b, cmd)
	return b.String()
}

// writeManParagraphs writes text, whose lines are kept where they are indented.
func writeManParagraphs(b *strings.Builder, text string) {
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.HasPrefix(paragraph, " ") || strings.HasPrefix(paragraph, "\t") {
			fmt.Fprintf(b, ".nf\n%s\n.fi\n", manText(paragraph))
		} else {
			fmt.Fprintf(b, "%s\n", manText(paragraph))
		}
	}
}

func writeManFlag(b *strings.Builder, f *pflag.Flag) {
	if f.Hidden {
		return
	}
	value, what := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if value != "" {
		name += " " + value
	}
	fmt.Fprintf(b, ".TP\n.B %s\n%s", manText(name), manText(what))
	switch f.DefValue {
	case "", "0", "0s", "[]", "false":
	default:
		fmt.Fprintf(b, " (%s if not given)", manText(f.DefValue))
	}
	b.WriteByte('\n')
}

// writeManReferences refers to the pages of the commands above and below.
func writeManReferences(b *strings.Builder, cmd *cobra.Command) {
	var pages []string
	if cmd.HasParent() {
		pages = append(pages, manName(cmd.Parent()))
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			pages = append(pages, manName(sub))
		}
	}
	b.WriteString(".SH SEE ALSO\n")
	for i, page := range pages {
		end := ","
		if i == len(pages)-1 {
			end = ""
		}
		fmt.Fprintf(b, ".BR %s (1)%s\n", manText(page), end)
	}
}

// manText returns text as it is written in a page: no character is special.
func manText(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
