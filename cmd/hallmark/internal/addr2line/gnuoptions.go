package addr2line

import (
	"fmt"
	"slices"
	"strings"
)

// gnuOptions are the options of GNU addr2line.
type gnuOptions struct {
	addresses, basenames, functions, inlines, pretty, demangle bool

	demangleStyle string // "" for names of all languages that are known
	unlimited     bool   // names may be long

	file    string
	section string
	target  string
	numbers []string // addresses

	splitUnits string // a package to look at first, which GNU addr2line has no option for

	help, version bool
}

// gnuArgument says whether a long option has an argument.
type gnuArgument uint8

const (
	argumentNone gnuArgument = iota
	argumentRequired
	argumentOptional
)

type gnuLong struct {
	name     string
	argument gnuArgument
	short    byte // the short option that it is
}

var gnuLongs = []gnuLong{
	{"addresses", argumentNone, 'a'},
	{"basenames", argumentNone, 's'},
	{"demangle", argumentOptional, 'C'},
	{optionSplitUnits, argumentRequired, 'D'},
	{"exe", argumentRequired, 'e'},
	{"functions", argumentNone, 'f'},
	{"inlines", argumentNone, 'i'},
	{"pretty-print", argumentNone, 'p'},
	{"recurse-limit", argumentNone, 'R'},
	{"recursion-limit", argumentNone, 'R'},
	{"no-recurse-limit", argumentNone, 'r'},
	{"no-recursion-limit", argumentNone, 'r'},
	{"section", argumentRequired, 'j'},
	{"target", argumentRequired, 'b'},
	{"help", argumentNone, 'H'},
	{"version", argumentNone, 'V'},
}

// optionSplitUnits is Hallmark's own, and cannot be cut short: what GNU addr2line accepts
// stays unambiguous.
const optionSplitUnits = "dwp"

// gnuUsageError is a command line that getopt_long would refuse.
type gnuUsageError struct{ msg string }

func (e gnuUsageError) Error() string { return e.msg }

func gnuUsage(format string, args ...any) error { return gnuUsageError{fmt.Sprintf(format, args...)} }

// parseGNU reads a command line as getopt_long does: options may stand behind
// addresses, short ones together, and long ones may be cut short.
func parseGNU(args []string) (gnuOptions, error) {
	o := gnuOptions{file: "a.out"}
	for len(args) > 0 && !o.help && !o.version {
		arg := args[0]
		args = args[1:]
		var err error
		switch {
		case arg == "--":
			o.numbers = append(o.numbers, args...)
			return o, nil
		case strings.HasPrefix(arg, "--"):
			args, err = o.long(arg[2:], args)
		case len(arg) > 1 && arg[0] == '-':
			args, err = o.shorts(arg[1:], args)
		default:
			o.numbers = append(o.numbers, arg)
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

// shorts reads short options that stand together, and returns the arguments behind.
func (o *gnuOptions) shorts(letters string, args []string) ([]string, error) {
	for i := range len(letters) {
		c := letters[i]
		switch {
		case strings.IndexByte("aCsfipRrhHvV", c) >= 0:
			if err := o.set(c, ""); err != nil || o.help || o.version {
				return args, err
			}
		case strings.IndexByte("bej", c) < 0:
			return args, gnuUsage("invalid option -- '%c'", c)
		case i+1 < len(letters):
			return args, o.set(c, letters[i+1:])
		case len(args) > 0:
			return args[1:], o.set(c, args[0])
		default:
			return args, gnuUsage("option requires an argument -- '%c'", c)
		}
	}
	return args, nil
}

// long reads a long option, without its dashes, and returns the arguments behind.
func (o *gnuOptions) long(text string, args []string) ([]string, error) {
	name, value, hasValue := strings.Cut(text, "=")
	l, err := findGNULong(name)
	switch {
	case err != nil:
		return args, err
	case l.argument == argumentNone && hasValue:
		return args, gnuUsage("option '--%s' doesn't allow an argument", l.name)
	case l.argument != argumentRequired || hasValue:
		return args, o.set(l.short, value)
	case len(args) == 0:
		return args, gnuUsage("option '--%s' requires an argument", l.name)
	}
	return args[1:], o.set(l.short, args[0])
}

// findGNULong returns the long option that a name, or the beginning of one, stands for.
func findGNULong(name string) (gnuLong, error) {
	var found []gnuLong
	for _, l := range gnuLongs {
		if l.name == name {
			return l, nil
		}
		if strings.HasPrefix(l.name, name) && l.name != optionSplitUnits {
			found = append(found, l)
		}
	}
	switch {
	case len(found) == 0:
		return gnuLong{}, gnuUsage("unrecognized option '--%s'", name)
	case slices.ContainsFunc(found, func(l gnuLong) bool { return l.short != found[0].short }):
		msg := fmt.Sprintf("option '--%s' is ambiguous; possibilities:", name)
		for _, l := range found {
			msg += " '--" + l.name + "'"
		}
		return gnuLong{}, gnuUsageError{msg}
	}
	return found[0], nil
}

// Styles of demangling: those that are known here, and those of languages whose names
// are not.
var (
	gnuStyles      = []string{"none", "auto", "gnu-v3", "rust"}
	gnuOtherStyles = []string{"java", "gnat", "dlang"}
)

func (o *gnuOptions) set(c byte, value string) error {
	switch c {
	case 'a':
		o.addresses = true
	case 'b':
		o.target = value
	case 'C':
		if slices.Contains(gnuOtherStyles, value) {
			return fmt.Errorf("demangling style `%s' is not supported", value)
		}
		if value != "" && !slices.Contains(gnuStyles, value) {
			return fmt.Errorf("unknown demangling style `%s'", value)
		}
		o.demangle, o.demangleStyle = value != "none", value
	case 'D':
		o.splitUnits = value
	case 'e':
		o.file = value
	case 'f':
		o.functions = true
	case 'i':
		o.inlines = true
	case 'j':
		o.section = value
	case 'p':
		o.pretty = true
	case 'r', 'R':
		o.unlimited = c == 'r'
	case 's':
		o.basenames = true
	case 'h', 'H':
		o.help = true
	case 'v', 'V':
		o.version = true
	}
	return nil
}

const gnuHelp = `Usage: %s [option(s)] [addr(s)]
 Print function, source file and line of addresses in a program.
 Addresses that are not given are read from standard input, one a line.
 The options are:
  @<file>                Read options from <file>
  -a --addresses         Show addresses
  -b --target=<bfdname>  Format of the file (ELF is the only one)
  --dwp=<file>           Package of the file's split debug information
  -e --exe=<executable>  File that the addresses are of (default is a.out)
  -i --inlines           Show the callers of inlined functions
  -j --section=<name>    Addresses are offsets in this section
  -p --pretty-print      One line for each function
  -s --basenames         Leave out directories
  -f --functions         Show function names
  -C --demangle[=style]  Show function names as they are in the source
                         (style: auto, gnu-v3 for C++, rust, none)
  -R --recurse-limit     Leave names of more than 1024 bytes alone [default]
  -r --no-recurse-limit  Leave names of more than 16384 bytes alone
  -h --help              Show this
  -v --version           Show the version
`
