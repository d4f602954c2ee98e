package addr2line

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"hallmark/buildid"
	"hallmark/debuginfo"
)

// style is a form of output.
type style uint8

const (
	styleLLVM style = iota
	styleGNU
	styleJSON
)

// functionNames says which name of a function is printed.
type functionNames uint8

const (
	linkageNames functionNames = iota
	shortNames
	noNames
)

// pathForm says which form of a source file's path is printed.
type pathForm uint8

const (
	wholePaths pathForm = iota
	baseNames
	relativePaths
)

// colorWhen says when markup is printed in color.
type colorWhen uint8

const (
	colorAuto colorWhen = iota
	colorAlways
	colorNever
)

// llvmOptions are the options of llvm-symbolizer.
type llvmOptions struct {
	addresses, pretty, verbose bool
	demangle, inlines, untag   bool

	paths        pathForm
	functions    functionNames
	anyNames     bool // linkage names, whatever an option with a value says
	style        style
	adjust       uint64 // subtracted from addresses
	contextLines int    // of source that are printed with each place

	markup    bool // standard input is text with markup
	color     colorWhen
	noServers bool   // of debuginfod
	dwp       string // .dwp file of all files, "" for the one beside each
	fallback  string // directory with debug files that debug links lead to

	file      string
	hasFile   bool
	identity  buildid.ID // of all addresses, zero if none was given
	debugDirs []string
	requests  []string // on the command line

	help, version bool
	warnings      []string
}

// errTwoFiles says that a command line names its file in two ways.
var errTwoFiles = errors.New("error: cannot specify both --build-id and --obj")

// llvmKind says how an option is written.
type llvmKind uint8

const (
	kindFlag     llvmKind = iota // alone
	kindLetter                   // other letters may follow
	kindJoined                   // the value follows
	kindSeparate                 // the next argument is the value
)

// An llvmOption is a spelling of an option: with its dashes, and with = at the end if
// the value follows there. set gets the value.
type llvmOption struct {
	spelling string
	kind     llvmKind
	set      func(o *llvmOptions, value string) error
}

// matches reports whether an argument is or starts with this spelling, and returns
// what follows.
func (l *llvmOption) matches(arg string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(arg, l.spelling)
	switch l.kind {
	case kindLetter:
		return rest, ok
	case kindJoined:
		return rest, ok && (rest != "" || strings.HasSuffix(l.spelling, "="))
	}
	return rest, ok && rest == ""
}

// flags are the spellings of an option without a value: words, and a letter.
func flags(set func(o *llvmOptions), spellings ...string) []llvmOption {
	var table []llvmOption
	for _, s := range spellings {
		kind := kindFlag
		if len(s) == 2 {
			kind = kindLetter
		}
		table = append(table, llvmOption{s, kind, func(o *llvmOptions, _ string) error {
			set(o)
			return nil
		}})
	}
	return table
}

// valued are the two spellings of an option with a value.
func valued(spelling string, set func(o *llvmOptions, value string) error) []llvmOption {
	return []llvmOption{{spelling + "=", kindJoined, set}, {spelling, kindSeparate, set}}
}

// dirs returns the directories with debug files, nil for those of debuginfo.
func (o *llvmOptions) dirs() []string {
	if o.fallback == "" {
		return o.debugDirs
	}
	dirs := o.debugDirs
	if dirs == nil {
		dirs = debuginfo.DefaultDirs
	}
	return slices.Concat([]string{o.fallback}, dirs)
}

// ofOthers is an option that is about files of other formats than ELF: the original
// answers as it does without it, and so is done here.
func ofOthers(*llvmOptions, string) error { return nil }

// setHint warns of a name that no bundle of debug information on macOS has.
func setHint(o *llvmOptions, value string) error {
	if filepath.Ext(value) != ".dSYM" {
		o.warnings = append(o.warnings, fmt.Sprintf("Warning: invalid dSYM hint: %q (must have the '.dSYM' extension).", value))
	}
	return nil
}

// setCacheSize checks a size of memory for files, which changes no answer: here files
// are mapped.
func setCacheSize(_ *llvmOptions, value string) error {
	_, err := number("--cache-size=", value)
	return err
}

// number reads the number that is the value of an option.
func number(spelling, value string) (uint64, error) {
	n, ok := parseNumber(value, 0)
	if !ok {
		return 0, notNumber(spelling, value)
	}
	return n, nil
}

func notNumber(spelling, value string) error {
	return fmt.Errorf("%s: expected a non-negative integer, but got '%s'", spelling, value)
}

func setFile(o *llvmOptions, value string) error {
	o.file, o.hasFile = value, true
	return nil
}

func setFunctions(o *llvmOptions, value string) error {
	switch value {
	case "none":
		o.functions = noNames
	case "short":
		o.functions = shortNames
	default:
		o.functions = linkageNames
	}
	return nil
}

func setStyle(o *llvmOptions, value string) error {
	switch value {
	case "GNU":
		o.style = styleGNU
	case "JSON":
		o.style = styleJSON
	default:
		o.style = styleLLVM
	}
	return nil
}

func setAdjust(o *llvmOptions, value string) (err error) {
	o.adjust, err = number("--adjust-vma=", value)
	return err
}

func setIdentity(o *llvmOptions, value string) error {
	id, ok := parseIdentity(value)
	if !ok {
		return fmt.Errorf("--build-id=: expected a build ID, but got '%s'", value)
	}
	o.identity = id
	return nil
}

// parseIdentity reads the hexadecimal digits of a GNU build ID.
func parseIdentity(digits string) (buildid.ID, bool) {
	raw, ok := parseIDBytes(digits)
	if !ok {
		return buildid.ID{}, false
	}
	id, err := buildid.New(buildid.GNU, raw)
	return id, err == nil
}

// parseIDBytes reads hexadecimal digits. An odd one is a byte of its own, the first.
func parseIDBytes(digits string) ([]byte, bool) {
	if len(digits)%2 == 1 {
		digits = "0" + digits
	}
	raw, err := hex.DecodeString(digits)
	return raw, err == nil && len(raw) > 0
}

func addDebugDir(o *llvmOptions, value string) error {
	o.debugDirs = append(o.debugDirs, value)
	return nil
}

func setContext(o *llvmOptions, value string) error {
	n, ok := parseNumber(value, 0)
	if !ok || n > math.MaxInt32 {
		return notNumber("--print-source-context-lines=", value)
	}
	o.contextLines = int(n)
	return nil
}

func setColor(o *llvmOptions, value string) error {
	switch value {
	case "always":
		o.color = colorAlways
	case "never":
		o.color = colorNever
	case "auto":
		o.color = colorAuto
	default:
		return fmt.Errorf("error: --color=%s: neither always nor auto nor never", value)
	}
	return nil
}

func setDWP(o *llvmOptions, value string) error {
	o.dwp = value
	return nil
}

func setFallback(o *llvmOptions, value string) error {
	o.fallback = value
	return nil
}

// llvmTable returns all spellings of all options. Most processes need none of them.
var llvmTable = sync.OnceValue(func() []llvmOption { return slices.Concat(llvmFlags(), llvmValued()) })

// llvmFlags returns the options without a value (llvm-symbolizer --help, LLVM 19).
func llvmFlags() []llvmOption {
	return slices.Concat(
		flags(func(o *llvmOptions) { o.addresses = true }, "--addresses", "--print-address", "-a"),
		flags(func(o *llvmOptions) { o.paths = baseNames }, "--basenames", "-s"),
		flags(func(o *llvmOptions) { o.paths = relativePaths }, "--relativenames"),
		flags(func(o *llvmOptions) { o.pretty = true }, "--pretty-print", "-p"),
		flags(func(o *llvmOptions) { o.verbose = true }, "--verbose"),
		flags(func(o *llvmOptions) { o.anyNames = true }, "--functions", "-f"),
		flags(func(o *llvmOptions) { o.demangle = true }, "--demangle", "-C", "-demangle=true"),
		flags(func(o *llvmOptions) { o.demangle = false }, "--no-demangle", "-demangle=false"),
		flags(func(o *llvmOptions) { o.inlines = true }, "--inlines", "-i", "--inlining", "--inlining=true"),
		flags(func(o *llvmOptions) { o.inlines = false }, "--no-inlines", "--inlining=false"),
		flags(func(o *llvmOptions) { o.untag = true }, "--untag-addresses"),
		flags(func(o *llvmOptions) { o.untag = false }, "--no-untag-addresses"),
		flags(func(o *llvmOptions) { o.noServers = false }, "--debuginfod"),
		flags(func(o *llvmOptions) { o.noServers = true }, "--no-debuginfod"),
		flags(func(o *llvmOptions) { o.markup = true }, "--filter-markup"),
		flags(func(o *llvmOptions) { o.color = colorAlways }, "--color"),
		flags(func(o *llvmOptions) { o.help = true }, "--help", "-h"),
		flags(func(o *llvmOptions) { o.version = true }, "--version", "-v"),
		flags(func(*llvmOptions) {}, "--dia", "--relative-address"), // of other formats than ELF
	)
}

// llvmValued returns the options with a value.
func llvmValued() []llvmOption {
	table := []llvmOption{
		{"--functions=", kindJoined, setFunctions},
		{"-f=", kindJoined, setFunctions},
		{"-e", kindSeparate, setFile},
		{"-e", kindJoined, setFile},
		{"-e=", kindJoined, setFile},
		{"--color=", kindJoined, setColor},
	}
	return slices.Concat(table,
		valued("--cache-size", setCacheSize),
		valued("--default-arch", ofOthers),
		valued("--dsym-hint", setHint),
		valued("--dwp", setDWP),
		valued("--fallback-debug-path", setFallback),
		valued("--obj", setFile),
		valued("--exe", setFile),
		valued("--output-style", setStyle),
		valued("--adjust-vma", setAdjust),
		valued("--build-id", setIdentity),
		valued("--debug-file-directory", addDebugDir),
		valued("--print-source-context-lines", setContext),
	)
}

// parseLLVM reads a command line. All that is wrong with it is in the error, one a line.
func parseLLVM(p Program, args []string) (llvmOptions, error) {
	o := llvmOptions{demangle: true, inlines: true, untag: true}
	if p == LLVMAddr2line {
		o = llvmOptions{functions: noNames, style: styleGNU}
	}
	var errs []error
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "":
		case arg[0] != '-' || arg == "-":
			o.requests = append(o.requests, arg)
		default:
			var err error
			args, err = o.option(arg, args)
			errs = append(errs, err)
		}
	}
	if o.anyNames {
		o.functions = linkageNames
	}
	if o.hasFile && !o.identity.IsZero() {
		errs = append(errs, errTwoFiles)
	}
	return o, errors.Join(errs...)
}

// option reads an option, or several that stand together, and returns the arguments
// behind.
func (o *llvmOptions) option(arg string, args []string) ([]string, error) {
	var errs []error
	for arg != "-" {
		l, rest := findLLVM(arg)
		switch {
		case l == nil && strings.HasPrefix(arg, "--"):
			return args, errors.Join(append(errs, fmt.Errorf("error: unknown argument '%s'%s", arg, suggestion(arg)))...)
		case l == nil:
			errs = append(errs, fmt.Errorf("error: unknown argument '%s'", arg[:2]))
			arg = "-" + arg[2:]
			continue
		case l.kind == kindSeparate && len(args) == 0:
			return args, errors.Join(append(errs, fmt.Errorf("error: %s: missing argument", l.spelling))...)
		case l.kind == kindSeparate:
			rest, args = args[0], args[1:]
		}
		errs = append(errs, l.set(o, rest))
		if l.kind != kindLetter {
			break
		}
		arg = "-" + rest
	}
	return args, errors.Join(errs...)
}

// shortestSuggested is how long the name of an option is at least that is suggested.
const shortestSuggested = 4

// suggestion returns what LLVM's programs add to the name of an option that nobody knows: the spelling that differs
// from it by one letter at most. Its value stays.
func suggestion(arg string) string {
	best, nearest := 2, ""
	for _, l := range llvmTable() {
		name, value, isValued := arg, "", strings.HasSuffix(l.spelling, "=")
		if len(strings.TrimLeft(l.spelling, "-")) < shortestSuggested {
			continue
		}
		if isValued {
			var has bool
			if name, value, has = strings.Cut(arg, "="); has {
				name += "="
			}
		}
		distance := editDistance(l.spelling, name)
		if isValued && value == "" {
			distance++
		}
		if distance < best {
			best, nearest = distance, l.spelling+value
		}
	}
	if nearest == "" {
		return ""
	}
	return ", did you mean '" + nearest + "'?"
}

// editDistance returns how many letters of one text have to be added, removed or replaced to get another.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0] // of the row above, one to the left
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			before, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, before+cost)
		}
	}
	return row[len(b)]
}

// findLLVM returns the longest spelling that an argument is or starts with, and what
// is behind it; or nil.
func findLLVM(arg string) (best *llvmOption, rest string) {
	table := llvmTable()
	for i := range table {
		l := &table[i]
		if after, ok := l.matches(arg); ok && (best == nil || len(l.spelling) > len(best.spelling)) {
			best, rest = l, after
		}
	}
	return best, rest
}

const llvmHelp = `OVERVIEW: %[1]s

USAGE: %[1]s [options] addresses...

Without addresses, they are read from standard input, one a line:
  [CODE|DATA|FRAME] ["]FILE["] ADDRESS
  [CODE|DATA|FRAME] BUILDID:HEX ADDRESS
with -e or --build-id the address alone. ADDRESS may be SYMBOL[+OFFSET].

OPTIONS:
  -a --addresses --print-address   Show addresses
  --adjust-vma=<offset>            Subtract this from addresses
  -s --basenames                   Leave out directories
  --build-id=<hex>                 Build ID of the file that all addresses are of
  --color[=always|auto|never]      Color what --filter-markup prints
  -C --demangle, --no-demangle     Show function names as they are in the source, or not
  --debug-file-directory=<dir>     Where debug files are, instead of /usr/lib/debug
  --debuginfod, --no-debuginfod    Ask the servers in DEBUGINFOD_URLS, or not
  --dwp=<file>                     The .dwp file, instead of FILE.dwp
  -e --obj --exe=<file>            File that all addresses are of
  --fallback-debug-path=<dir>      Where debug files are, too
  --filter-markup                  Replace markup in the text on standard input
  -f --functions[=none|short|linkage]
                                   Which function names to show
  -i --inlines, --no-inlines       Show the callers of inlined functions, or not
  --output-style=LLVM|GNU|JSON     Form of the answers
  -p --pretty-print                One line for each function; indented JSON
  --print-source-context-lines=<n> Show so many lines of source around each line
  --relativenames                  Leave out the directory of the compilation
  --untag-addresses, --no-untag-addresses
                                   Leave out HWASan's tags of symbols, or not
  --verbose                        One line for each thing known
  -h --help                        Show this
  -v --version                     Show the version
Without effect on ELF files, here as in LLVM: --cache-size --default-arch --dia
  --dsym-hint --relative-address

Pass @FILE as argument to read options from FILE.
`
