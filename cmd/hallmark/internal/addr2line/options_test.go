package addr2line

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/testenv"
)

// effect is what an option does.
type effect uint8

const (
	acts       effect = iota // it changes the output, as that of the original
	isOfOthers               // it changes nothing, as with the original: it is not about ELF files
	refuses                  // it is refused by name
	tells                    // it prints a text of our own, and nothing else
	elsewhere                // another test is about it
)

// An optionCase shows what an option does: args are without it, given are those that
// have it. In both {} is a program.
type optionCase struct {
	effect
	args, given string
	stdin       string
}

// optionFiles are the files that options are tried on.
type optionFiles struct {
	fill *strings.Replacer
}

// newOptionFiles builds programs, and their debug files in places that options name.
func newOptionFiles(t *testing.T) *optionFiles {
	t.Helper()
	dir := t.TempDir()
	run := func(tool string, args ...string) {
		t.Helper()
		c := exec.Command(testenv.Tool(t, tool), args...)
		c.Dir = dir
		if text, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %s", tool, args, text)
		}
	}
	text, err := os.ReadFile("testdata/options.cc")
	if err != nil {
		t.Fatal(err)
	}
	deep := "_Z1500" + strings.Repeat("n", 1500) + "i"
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("options.cc", string(text))
	write("tagged.s", ".data\n.globl x, tagged\n.type x,@object\nx: .quad 1\n.size x,8\n.zero 64\n.set tagged, x + 64 + 0x2a00000000000000\n.type tagged,@object\n.size tagged,8\n")
	define := fmt.Sprintf("-DDEEP=%q", deep)
	run("g++", "-g", "-O2", define, "-Wl,--build-id", "-o", "prog", "options.cc")
	run("clang-19", "-shared", "-o", "tagged", "tagged.s")
	run("clang++-19", "-g", "-O2", define, "-gsplit-dwarf", "-fno-split-dwarf-inlining", "-o", "split", "options.cc")
	run("llvm-dwp-19", "-e", "split", "-o", "packed")
	dwo, _ := filepath.Glob(filepath.Join(dir, "*.dwo"))
	for _, name := range dwo {
		os.Remove(name)
	}
	id := identityOf(t, filepath.Join(dir, "prog"))
	write("byid/.build-id/"+id[:2]+"/"+id[2:]+".debug", "")
	run("objcopy", "prog", "byid/.build-id/"+id[:2]+"/"+id[2:]+".debug")
	run("objcopy", "-g", "prog", "stripped")
	run("objcopy", "-R", ".note.gnu.build-id", "prog", "nameless")
	linked := "fallback" + dir
	write(filepath.Join(linked, "nameless.debug"), "")
	run("objcopy", "nameless", filepath.Join(linked, "nameless.debug"))
	run("objcopy", "-g", "--add-gnu-debuglink="+filepath.Join(linked, "nameless.debug"), "nameless", "linked")
	at := func(name, symbol string) string { return symbolAddress(t, filepath.Join(dir, name), symbol) }
	work := at("prog", "_ZN4shop4workEi")
	write("response", "-a\n")
	return &optionFiles{strings.NewReplacer("{DIR}", dir, "{}", filepath.Join(dir, "prog"), "{ID}", id,
		"{WORK}", work, "{RANGE}", range60(t, work), "{DEEP}", at("prog", deep), "{SPLIT}", range60(t, at("split", "_ZN4shop4workEi")),
		"{TAGGED}", fmt.Sprintf("%#x", hexNumber(t, at("tagged", "x"))+64),
		"{OFFSET}", fmt.Sprintf("%#x", hexNumber(t, work)-sectionStart(t, filepath.Join(dir, "prog"), ".text")))}
}

func hexNumber(t *testing.T, s string) uint64 {
	t.Helper()
	n, ok := parseNumber(s, 0)
	if !ok {
		t.Fatalf("number %q", s)
	}
	return n
}

// range60 returns addresses from one on, separated by blanks.
func range60(t *testing.T, from string) string {
	t.Helper()
	text := ""
	for i := range uint64(20) {
		text += fmt.Sprintf(" %#x", hexNumber(t, from)+3*i)
	}
	return text
}

func identityOf(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := buildid.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return info.ID.String()
}

func sectionStart(t *testing.T, name, section string) uint64 {
	t.Helper()
	for line := range strings.Lines(toolOutput(t, "readelf", "-SW", name)) {
		_, line, _ = strings.Cut(line, "]")
		if f := strings.Fields(line); len(f) > 3 && f[0] == section {
			return hexNumber(t, "0x"+f[2])
		}
	}
	t.Fatalf("%s has no %s", name, section)
	return 0
}

const markupInput = "{{{module:0:prog:elf:{ID}}}}\n{{{mmap:0x400000:0x100000:load:0:rx:0}}}\nat {{{pc:0x401000}}} {{{symbol:_Z1fv}}}\n"

// llvmOptionCases has each option of llvm-symbolizer and llvm-addr2line, as --help
// writes it, and some that it leaves out.
var llvmOptionCases = map[string]optionCase{
	"--addresses":                   {acts, "-e {} {WORK}", "-e {} {WORK} --addresses", ""},
	"--print-address":               {acts, "-e {} {WORK}", "-e {} {WORK} --print-address", ""},
	"-a":                            {acts, "-e {} {WORK}", "-e {} {WORK} -a", ""},
	"--adjust-vma=":                 {acts, "-e {} -f {RANGE}", "-e {} -f {RANGE} --adjust-vma=0x5", ""},
	"--basenames":                   {acts, "-e {} {WORK}", "-e {} {WORK} --basenames", ""},
	"-s":                            {acts, "-e {} {WORK}", "-e {} {WORK} -s", ""},
	"--build-id=":                   {acts, "--debug-file-directory={DIR}/byid {WORK}", "--debug-file-directory={DIR}/byid --build-id={ID} {WORK}", ""},
	"--cache-size=":                 {isOfOthers, "-e {} {WORK}", "-e {} {WORK} --cache-size=1", ""},
	"--color=":                      {acts, "--filter-markup", "--filter-markup --color=always", markupInput},
	"--color":                       {acts, "--filter-markup", "--filter-markup --color", markupInput},
	"-C":                            {acts, "-e {} -f --no-demangle {WORK}", "-e {} -f --no-demangle {WORK} -C", ""},
	"--demangle":                    {acts, "-e {} -f --no-demangle {WORK}", "-e {} -f --no-demangle {WORK} --demangle", ""},
	"-demangle=true":                {acts, "-e {} -f --no-demangle {WORK}", "-e {} -f --no-demangle {WORK} -demangle=true", ""},
	"-demangle=false":               {acts, "-e {} -f -C {WORK}", "-e {} -f -C {WORK} -demangle=false", ""},
	"--no-demangle":                 {acts, "-e {} -f -C {WORK}", "-e {} -f -C {WORK} --no-demangle", ""},
	"--debug-file-directory=":       {acts, "-e {DIR}/stripped {WORK}", "-e {DIR}/stripped {WORK} --debug-file-directory={DIR}/byid", ""},
	"--debuginfod":                  {effect: elsewhere},
	"--no-debuginfod":               {effect: elsewhere},
	"--default-arch=":               {isOfOthers, "-e {} {WORK}", "-e {} {WORK} --default-arch=arm64", ""},
	"--dia":                         {isOfOthers, "-e {} {WORK}", "-e {} {WORK} --dia", ""},
	"--dsym-hint=":                  {isOfOthers, "-e {} {WORK}", "-e {} {WORK} --dsym-hint={DIR}/x.dSYM", ""},
	"--dwp=":                        {acts, "-e {DIR}/split -i -f {SPLIT}", "-e {DIR}/split -i -f {SPLIT} --dwp={DIR}/packed", ""},
	"-e=":                           {acts, "{WORK}", "{WORK} -e={}", ""},
	"-e ":                           {acts, "{WORK}", "{WORK} -e {}", ""},
	"--exe=":                        {acts, "{WORK}", "{WORK} --exe={}", ""},
	"--exe ":                        {acts, "{WORK}", "{WORK} --exe {}", ""},
	"--obj=":                        {acts, "{WORK}", "{WORK} --obj={}", ""},
	"--fallback-debug-path=":        {acts, "-e {DIR}/linked {WORK}", "-e {DIR}/linked {WORK} --fallback-debug-path={DIR}/fallback", ""},
	"--filter-markup":               {acts, "-e {}", "-e {} --filter-markup", markupInput},
	"--functions=":                  {acts, "-e {} --functions=none {WORK}", "-e {} {WORK} --functions=linkage", ""},
	"--functions":                   {acts, "-e {} --functions=none {WORK}", "-e {} {WORK} --functions --functions=none", ""},
	"-f=":                           {acts, "-e {} --functions=none {WORK}", "-e {} {WORK} -f=short", ""},
	"-f":                            {acts, "-e {} --functions=none {WORK}", "-e {} {WORK} -f", ""},
	"--help":                        {tells, "-e {} {WORK}", "-e {} {WORK} --help", ""},
	"--version":                     {tells, "-e {} {WORK}", "-e {} {WORK} --version", ""},
	"-v":                            {tells, "-e {} {WORK}", "-e {} {WORK} -v", ""},
	"--inlines":                     {acts, "-e {} --no-inlines {RANGE}", "-e {} --no-inlines --inlines {RANGE}", ""},
	"-i":                            {acts, "-e {} --no-inlines {RANGE}", "-e {} --no-inlines -i {RANGE}", ""},
	"--inlining":                    {acts, "-e {} --no-inlines {RANGE}", "-e {} --no-inlines --inlining {RANGE}", ""},
	"--inlining=true":               {acts, "-e {} --no-inlines {RANGE}", "-e {} --no-inlines --inlining=true {RANGE}", ""},
	"--inlining=false":              {acts, "-e {} -i {RANGE}", "-e {} -i --inlining=false {RANGE}", ""},
	"--no-inlines":                  {acts, "-e {} -i {RANGE}", "-e {} -i --no-inlines {RANGE}", ""},
	"--untag-addresses":             {acts, "-e {DIR}/tagged --no-untag-addresses", "-e {DIR}/tagged --no-untag-addresses --untag-addresses", "DATA {TAGGED}\n"},
	"--no-untag-addresses":          {acts, "-e {DIR}/tagged --untag-addresses", "-e {DIR}/tagged --untag-addresses --no-untag-addresses", "DATA {TAGGED}\n"},
	"--output-style=":               {acts, "-e {} {WORK}", "-e {} {WORK} --output-style=JSON", ""},
	"--pretty-print":                {acts, "-e {} -f {WORK}", "-e {} -f {WORK} --pretty-print", ""},
	"-p":                            {acts, "-e {} -f {WORK}", "-e {} -f {WORK} -p", ""},
	"--print-source-context-lines=": {acts, "-e {} {WORK}", "-e {} {WORK} --print-source-context-lines=4", ""},
	"--relative-address":            {isOfOthers, "-e {} {WORK}", "-e {} {WORK} --relative-address", ""},
	"--relativenames":               {acts, "-e {} {WORK}", "-e {} {WORK} --relativenames", ""},
	"--verbose":                     {acts, "-e {} {WORK}", "-e {} {WORK} --verbose", ""},
	"--skip-line-zero":              {refuses, "", "--skip-line-zero -e {} {WORK}", ""},
	"--disable-gsym":                {refuses, "", "--disable-gsym -e {} {WORK}", ""},
}

// gnuOptionCases has each option of GNU addr2line, short and long.
var gnuOptionCases = map[string]optionCase{
	"@":                  {acts, "-e {} {WORK}", "-e {} {WORK} @{DIR}/response", ""},
	"-a":                 {acts, "-e {} {WORK}", "-e {} {WORK} -a", ""},
	"--addresses":        {acts, "-e {} {WORK}", "-e {} {WORK} --addresses", ""},
	"-b":                 {refuses, "", "-e {} {WORK} -b elf64-nosuch", ""},
	"--target=":          {refuses, "", "-e {} {WORK} --target=tekhex", ""},
	"-e":                 {acts, "{WORK}", "-e {} {WORK}", ""},
	"--exe=":             {acts, "{WORK}", "--exe={} {WORK}", ""},
	"-i":                 {acts, "-e {} {RANGE}", "-e {} {RANGE} -i", ""},
	"--inlines":          {acts, "-e {} {RANGE}", "-e {} {RANGE} --inlines", ""},
	"-j":                 {acts, "-e {} -f {OFFSET}", "-e {} -f {OFFSET} -j .text", ""},
	"--section=":         {acts, "-e {} -f {OFFSET}", "-e {} -f {OFFSET} --section=.text", ""},
	"-p":                 {acts, "-fe {} {WORK}", "-fe {} {WORK} -p", ""},
	"--pretty-print":     {acts, "-fe {} {WORK}", "-fe {} {WORK} --pretty-print", ""},
	"-s":                 {acts, "-e {} {WORK}", "-e {} {WORK} -s", ""},
	"--basenames":        {acts, "-e {} {WORK}", "-e {} {WORK} --basenames", ""},
	"-f":                 {acts, "-e {} {WORK}", "-e {} {WORK} -f", ""},
	"--functions":        {acts, "-e {} {WORK}", "-e {} {WORK} --functions", ""},
	"-C":                 {acts, "-fe {} {WORK}", "-fe {} {WORK} -C", ""},
	"--demangle":         {acts, "-fe {} {WORK}", "-fe {} {WORK} --demangle", ""},
	"--demangle=gnu-v3":  {acts, "-fe {} {WORK}", "-fe {} {WORK} --demangle=gnu-v3", ""},
	"--demangle=rust":    {acts, "-Cfe {} {WORK}", "-Cfe {} {WORK} --demangle=rust", ""},
	"--demangle=none":    {acts, "-Cfe {} {WORK}", "-Cfe {} {WORK} --demangle=none", ""},
	"--demangle=java":    {refuses, "", "-Cfe {} {WORK} --demangle=java", ""},
	"--demangle=gnat":    {refuses, "", "-Cfe {} {WORK} --demangle=gnat", ""},
	"--demangle=dlang":   {refuses, "", "-Cfe {} {WORK} --demangle=dlang", ""},
	"-R":                 {acts, "-rCfe {} {DEEP}", "-rCfe {} {DEEP} -R", ""},
	"--recurse-limit":    {acts, "-rCfe {} {DEEP}", "-rCfe {} {DEEP} --recurse-limit", ""},
	"-r":                 {acts, "-Cfe {} {DEEP}", "-Cfe {} {DEEP} -r", ""},
	"--no-recurse-limit": {acts, "-Cfe {} {DEEP}", "-Cfe {} {DEEP} --no-recurse-limit", ""},
	"-h":                 {tells, "-e {} {WORK}", "-e {} {WORK} -h", ""},
	"--help":             {tells, "-e {} {WORK}", "-e {} {WORK} --help", ""},
	"-v":                 {tells, "-e {} {WORK}", "-e {} {WORK} -v", ""},
	"--version":          {tells, "-e {} {WORK}", "-e {} {WORK} --version", ""},
}

// TestOptions shows that every option acts, or is refused: what is accepted and then
// ignored gives a wrong answer.
func TestOptions(t *testing.T) {
	files := newOptionFiles(t)
	for p, cases := range map[Program]map[string]optionCase{GNU: gnuOptionCases, LLVMAddr2line: llvmOptionCases, LLVMSymbolizer: llvmOptionCases} {
		help, _, _ := theirs(t, p, nil, "--help")
		for _, option := range optionsIn(help) {
			if _, ok := cases[option]; !ok {
				t.Errorf("%s has an option %q, of which nothing is known here", p, option)
			}
		}
		for option, c := range cases {
			t.Run(p.String()+"/"+option, func(t *testing.T) { files.check(t, p, option, c) })
		}
	}
}

// optionsIn returns the options in a text of --help, without their values.
func optionsIn(help string) []string {
	var options []string
	value := regexp.MustCompile(`(<.*>|\[=.*|style)$`)
	for line := range strings.Lines(help) {
		line, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "  ")
		if !ok || line == "" || line[0] != '-' && line[0] != '@' {
			continue
		}
	words:
		for i, word := range strings.Fields(line) {
			switch {
			case word[0] == '-' || word[0] == '@':
				options = append(options, value.ReplaceAllString(word, ""))
				continue
			case word[0] == '<' && i == 1:
				options[len(options)-1] += " "
				continue
			}
			break words
		}
	}
	slices.Sort(options)
	return slices.Compact(options)
}

func (f *optionFiles) check(t *testing.T, p Program, option string, c optionCase) {
	if c.effect == elsewhere {
		return
	}
	run := func(text string, run func(testing.TB, Program, string, ...string) string) string {
		return run(t, p, f.fill.Replace(c.stdin), strings.Fields(f.fill.Replace(text))...)
	}
	ourGiven := run(c.given, ourAnswer)
	if c.effect == refuses {
		name, _, _ := strings.Cut(option, "=")
		if !strings.Contains(ourGiven, "status 1") || !strings.Contains(ourGiven, name) && !strings.Contains(ourGiven, "target") && !strings.Contains(ourGiven, "style") {
			t.Errorf("%s is not refused: %s", option, ourGiven)
		}
		return
	}
	ourArgs, theirArgs, theirGiven := run(c.args, ourAnswer), run(c.args, theirAnswer), run(c.given, theirAnswer)
	if ourArgs != theirArgs {
		t.Errorf("without it:\n%s\nwant\n%s", ourArgs, theirArgs)
	}
	if c.effect == tells {
		if !strings.Contains(ourGiven, "status 0") || ourGiven == ourArgs || len(ourGiven) < 40 {
			t.Errorf("prints\n%s", ourGiven)
		}
		return
	}
	if ourGiven != theirGiven {
		t.Errorf("with it:\n%s\nwant\n%s", ourGiven, theirGiven)
	}
	if changes := theirGiven != theirArgs; changes != (c.effect == acts) {
		t.Errorf("it changes the answer of the original: %v:\n%s", changes, theirArgs)
	}
}

// ourAnswer and theirAnswer return all that a program prints, and its status.
func ourAnswer(t testing.TB, p Program, stdin string, args ...string) string {
	out, errs, status := ours(t, p, strings.NewReader(stdin), args...)
	return fmt.Sprintf("%s%sstatus %d", out, complaint(errs), status)
}

func theirAnswer(t testing.TB, p Program, stdin string, args ...string) string {
	out, errs, status := theirs(t, p, strings.NewReader(stdin), args...)
	if p == GNU {
		out = discriminator.ReplaceAllString(out, "")
	}
	return fmt.Sprintf("%s%sstatus %d", out, complaint(errs), status)
}
