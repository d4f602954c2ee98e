package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hallmark/internal/plaintext"
	"hallmark/internal/procfs"
)

// A completer completes a word for a shell: cobra.CompletionFunc.
type completer = cobra.CompletionFunc

// addCompletions lets shells complete arguments and values of flags of a command, and of those
// below it, by what the help calls them: a FILE, a DIR, a PID, a CMD. Nothing is offered for
// others, where cobra would offer files.
func addCompletions(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		addCompletions(sub)
	}
	if cmd.DisableFlagParsing || cmd.Name() == "help" || cmd.HasSubCommands() {
		return // it knows its words itself
	}
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = completeArguments(cmd.Use)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, known := cmd.GetFlagCompletionFunc(f.Name); known || f.Value.Type() == "bool" {
			return
		}
		name, _ := pflag.UnquoteUsage(f)
		if err := cmd.RegisterFlagCompletionFunc(f.Name, completerOf(name)); err != nil {
			panic(err) // no such flag
		}
	})
}

// optionalFlags are flags, with their values, in a line of usage.
var optionalFlags = regexp.MustCompile(`\[flags\]|\[-[^\]]*PID\[,PID\]\]|-[a-z] [A-Z]+`)

// completeArguments returns the completer for the arguments of a line of usage, such as
// "lookup [flags] FILE|ID OFFSET...".
func completeArguments(use string) completer {
	words := strings.Fields(optionalFlags.ReplaceAllString(use, ""))[1:]
	if slices.Contains(words, "[--") {
		return completeCommand
	}
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		at := len(args)
		if last := len(words) - 1; last >= 0 && at > last && strings.HasSuffix(words[last], "...") {
			at = last
		}
		if at >= len(words) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completerOf(strings.Trim(words[at], "[]."))(cmd, args, word)
	}
}

// completerOf returns the completer for what the help calls by a name, or by one of several.
func completerOf(name string) completer {
	names := strings.Split(name, "|")
	isOneOf := func(these ...string) bool {
		return slices.ContainsFunc(these, func(one string) bool { return slices.Contains(names, one) })
	}
	switch {
	case isOneOf(fileNames...):
		return completeWith(cobra.ShellCompDirectiveDefault)
	case isOneOf("DIR"):
		return completeWith(cobra.ShellCompDirectiveFilterDirs)
	case isOneOf("PID"):
		return completeProcess
	}
	return completeWith(cobra.ShellCompDirectiveNoFileComp)
}

// fileNames are what the help calls files.
var fileNames = []string{"FILE", "IN", "OUT", "PATH", "BASE"}

// completeWith returns a completer that leaves all to the shell.
func completeWith(directive cobra.ShellCompDirective) completer {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return nil, directive
	}
}

// completeProcess completes the number of a process, the last one of a list with commas.
func completeProcess(_ *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	before, digits := "", word
	if i := strings.LastIndexByte(word, ','); i >= 0 {
		before, digits = word[:i+1], word[i+1:]
	}
	pids, err := procfs.Processes()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var found []cobra.Completion
	for _, pid := range pids {
		if number := strconv.Itoa(pid); strings.HasPrefix(number, digits) {
			found = append(found, cobra.CompletionWithDesc(before+number, plaintext.Line(procfs.NameOf(uint32(pid)))))
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeCommand completes the name of a program in PATH, and files behind it.
func completeCommand(_ *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 || word == "" || strings.Contains(word, "/") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var found []cobra.Completion
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(dir) // others have programs, too
		for _, e := range entries {
			name := e.Name()
			if !strings.HasPrefix(name, word) || plaintext.Line(name) != name {
				continue
			}
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				found = append(found, name)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), cobra.ShellCompDirectiveDefault
}

// completeBareBash has the script for bash do without the package bash-completion, of which
// cobra's calls two functions: bash would print an error for each key.
func completeBareBash(completion *cobra.Command) {
	for _, cmd := range completion.Commands() {
		if cmd.Name() != "bash" {
			continue
		}
		cmd.Long = bashLong
		cmd.RunE = func(cmd *cobra.Command, _ []string) error {
			bare, err := cmd.Flags().GetBool("no-descriptions")
			if err != nil {
				return err
			}
			var script bytes.Buffer
			if err := cmd.Root().GenBashCompletionV2(&script, !bare); err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), bashFunctions+bareBash.Replace(script.String()))
			return err
		}
	}
}

const bashLong = `Generate the completions of hallmark for bash, which needs no other package.

  . <(hallmark completion bash)                          # in this shell
  echo '. <(hallmark completion bash)' >> ~/.bashrc       # in each new one`

// bareBash replaces the calls of functions of bash-completion.
var bareBash = strings.NewReplacer("_get_comp_words_by_ref", "__hallmark_words", "_filedir", "__hallmark_filedir")

// bashFunctions are in their place: they call them where they are there.
const bashFunctions = `__hallmark_words()
{
    local i
    if declare -F _get_comp_words_by_ref >/dev/null; then
        _get_comp_words_by_ref "$@"
        return
    fi
    words=()
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        # bash makes three words of --flag=value.
        if ((i > 0)) && [[ ${COMP_WORDS[i]} == = || ${COMP_WORDS[i-1]} == = ]]; then
            words[${#words[@]}-1]+=${COMP_WORDS[i]}
        else
            words+=("${COMP_WORDS[i]}")
        fi
        if ((i == COMP_CWORD)); then
            cword=$((${#words[@]} - 1)) cur=${words[${#words[@]}-1]}
        fi
    done
    prev=${words[cword-1]-}
}

__hallmark_filedir()
{
    if declare -F _filedir >/dev/null; then
        _filedir "$@"
        return
    fi
    compopt -o filenames 2>/dev/null
    if [[ ${1-} == -d ]]; then
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    fi
}

`

// plainDescriptions passes completions on without the quotes that pflag has around names of
// values in the usage of flags.
type plainDescriptions struct{ to io.Writer }

func (p plainDescriptions) Write(text []byte) (int, error) {
	if _, err := io.WriteString(p.to, strings.ReplaceAll(string(text), "`", "")); err != nil {
		return 0, err
	}
	return len(text), nil
}
