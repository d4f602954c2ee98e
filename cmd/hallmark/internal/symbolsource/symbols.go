// Package symbolsource opens the files, indexes and servers that a verb takes symbols from, as its flags and
// the environment say.
package symbolsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	pprof "github.com/google/pprof/profile"
	"github.com/spf13/pflag"

	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/progress"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/debuginfo"
	"hallmark/debuginfo/debuginfod"
	"hallmark/internal/cachedir"
	"hallmark/internal/plaintext"
	"hallmark/profile"
	"hallmark/profile/local"
	"hallmark/reason"
	"hallmark/symbol"
)

// Options are what the verbs that look for symbols have in common.
type Options struct {
	NoDebuginfod bool     // ask no server
	Extra        []string // paths of files and debug files, which are believed
	splitUnits   string
	verbose      bool

	server      Server
	asksServers bool // symbol servers, if one is named
}

// AddFlags adds the flags of all verbs that look for symbols.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.NoDebuginfod, "no-debuginfod", false, "ask no debuginfod server, though DEBUGINFOD_URLS names some")
	flags.StringArrayVar(&o.Extra, "debug-path", nil, "look for files and debug files at this `PATH` too, a file or a directory, and believe them whoever owns them (can be repeated)")
	flags.BoolVar(&o.verbose, "verbose", false, "print on standard error where files were looked for")
}

// AddServerFlags adds the flags of verbs that ask a symbol server.
func (o *Options) AddServerFlags(flags *pflag.FlagSet) {
	o.asksServers = true
	o.server.AddFlags(flags, "take functions and lines from the symbol server")
}

// AsksServer reports whether a symbol server is named, by the flag or the environment.
func (o *Options) AsksServer() bool {
	return o.asksServers && (o.server.URL != "" || os.Getenv("HALLMARK_SERVER") != "")
}

// AddPackageFlag adds the flag of verbs that look at one file.
func (o *Options) AddPackageFlag(flags *pflag.FlagSet) { PackageFlag(flags, &o.splitUnits) }

// PackageFlag adds the flag that names a package of split debug information.
func PackageFlag(flags *pflag.FlagSet, name *string) {
	flags.StringVar(name, "dwp", "", "take split debug information from this package `FILE`, where PROG.dwp is not beside the file")
}

// A Source is where a verb gets symbols from, until Close.
type Source struct {
	*debuginfo.Library
	Context context.Context // ends with Ctrl-C, if servers may be asked
	Bar     *progress.Bar   // nil where no server may be asked
	stop    context.CancelFunc

	mu     sync.Mutex // searches run at the same time
	stderr io.Writer
	differ map[buildid.ID][2]string // files of one build ID and different contents
	// lacking are the files of which a part of the debug information is not found.
	lacking map[string]bool
}

// Report prints a line on standard error, above the bar.
func (s *Source) Report(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.Bar.Over(s.stderr), "hallmark: %s\n", plaintext.Line(line))
}

// noteDifferent reports two files that have one build ID and different contents.
func (s *Source) noteDifferent(id buildid.ID, paths [2]string) {
	s.mu.Lock()
	if s.differ == nil {
		s.differ = map[buildid.ID][2]string{}
	}
	s.differ[id] = paths
	s.mu.Unlock()
	s.Report(DifferentText(paths))
}

// UnsignedText says which servers are not asked because of ima:enforcing.
func UnsignedText(client *debuginfod.Client) string {
	return "ima:enforcing in DEBUGINFOD_URLS: signatures are not checked, so nobody asks " + plaintext.Line(strings.Join(client.Unsigned, " "))
}

// noteUncompared reports that a debug file answers whose program is not there.
func (s *Source) noteUncompared(id buildid.ID, from string) {
	s.Report("code not compared: " + plaintext.Name(from) + " has a debug file of " + id.String() + " and not its program")
}

// maxLacks is for how many files it is reported that a part of their debug information is missing.
const maxLacks = 10

// noteLack reports, once for each file, that another file with debug information of it is not found. The missing
// one costs the names and lines that it has, and no others.
func (s *Source) noteLack(from, name string) {
	s.mu.Lock()
	if s.lacking == nil {
		s.lacking = map[string]bool{}
	}
	isKnown := s.lacking[from] || len(s.lacking) >= maxLacks
	if !isKnown {
		s.lacking[from] = true
	}
	s.mu.Unlock()
	if isKnown {
		return
	}
	what := name
	if strings.HasSuffix(name, ".dwo") {
		what = "both " + filepath.Base(from) + ".dwp and " + name
	}
	s.Report("incomplete debug information: " + plaintext.Name(from) + " lacks " + plaintext.Name(what) + ", and the names that are there")
}

// DifferentText says that two files have one build ID and different contents.
func DifferentText(paths [2]string) string {
	return reason.DifferentContent.String() + ": " + plaintext.Name(paths[0]) + ", " + plaintext.Name(paths[1])
}

// DamageText says that a kept file is damaged, and no longer used.
func DamageText(path string, damage error) string {
	text := terminal.Message(damage)
	if !strings.Contains(text, path) {
		text = path + ": " + text
	}
	return plaintext.Line("a kept file is damaged, and made anew when it is needed: " + text)
}

// DifferentFiles returns two files that were met with one build ID and different contents,
// nil if none were.
func (s *Source) DifferentFiles() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, paths := range s.differ {
		return paths[:]
	}
	return nil
}

// DifferentFrom is differentFiles for one identity.
func (s *Source) DifferentFrom(id buildid.ID) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if paths, ok := s.differ[id]; ok {
		return paths[:]
	}
	return nil
}

// Open returns the source of symbols that the options and the environment say.
func (o *Options) Open(ctx context.Context, e *verb.Env) (*Source, error) {
	for _, path := range o.Extra {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("--debug-path: %w", terminal.OpenFailed(err))
		}
	}
	if err := CheckPackage(o.splitUnits); err != nil {
		return nil, err
	}
	s := &Source{Library: new(debuginfo.Library), Context: ctx, stop: func() {}, stderr: e.Stderr}
	finder := &s.Library.Finder
	finder.Extra, finder.Package = o.Extra, o.splitUnits
	finder.Differ, finder.Uncompared, finder.Lacks = s.noteDifferent, s.noteUncompared, s.noteLack
	cachedir.OnDamage(func(path string, damage error) { s.Report(DamageText(path, damage)) })
	if !o.NoDebuginfod {
		client, err := debuginfod.FromEnvironment()
		if err != nil {
			return nil, err
		}
		s.use(client)
	}
	if o.asksServers {
		if err := o.server.SetRemote(s.Library, s.Report); err != nil {
			s.Close()
			return nil, err
		}
		s.interrupt(s.Library.Remote != nil)
	}
	switch {
	case o.verbose:
		finder.Trace = func(id buildid.ID, step debuginfo.Step) {
			text := stepText(step)
			if !id.IsZero() {
				text = id.String() + ": " + text
			}
			s.Report(text)
		}
	case o.splitUnits != "":
		finder.Trace = RefusedPackage(o.splitUnits, s.Report)
	}
	return s, nil
}

// RefusedPackage returns what reports, once, that a package has units of other files.
func RefusedPackage(name string, report func(line string)) func(buildid.ID, debuginfo.Step) {
	var once sync.Once
	return func(_ buildid.ID, step debuginfo.Step) {
		if step.Place == debuginfo.ForSplitUnits && step.Path == name && step.Why == reason.FileChanged {
			once.Do(func() { report("--dwp " + plaintext.Name(name) + ": refused: units of the file are not in it") })
		}
	}
}

// CheckPackage returns an error if a file is named that is no package of split units.
func CheckPackage(name string) error {
	if name == "" {
		return nil
	}
	file, err := symbol.OpenFile(name)
	if err != nil {
		return fmt.Errorf("--dwp: %w", err)
	}
	defer file.Close()
	if !file.IsPackage() {
		return fmt.Errorf("--dwp: %s: no package of split units, it has no .debug_cu_index", name)
	}
	return nil
}

// use lets servers be asked. The user who waits for them may get tired of it.
func (s *Source) use(client *debuginfod.Client) {
	s.Finder.Servers = client
	if len(client.Unsigned) > 0 {
		s.Report(UnsignedText(client))
	}
	if len(client.URLs) == 0 {
		return
	}
	if err := client.Check(); err != nil {
		s.Report("no debuginfod server is asked: " + err.Error())
		client.URLs = nil
		return
	}
	s.interrupt(true)
	client.Progress = s.showProgress
	client.Warn = func(err *debuginfod.Error) {
		s.Report("debuginfod server " + err.URL + ": " + serverProblem(err))
	}
}

// interrupt lets Ctrl-C end the wait for servers, if they are asked.
func (s *Source) interrupt(asked bool) {
	if asked && s.Bar == nil {
		s.Context, s.stop = verb.Interruptible()
		s.Bar = progress.New(s.stderr)
	}
}

// serverProblem says what is wrong with a server, without the URL of a file.
func serverProblem(err *debuginfod.Error) string {
	var request *url.Error
	if errors.As(err.Err, &request) {
		return request.Err.Error()
	}
	return err.Err.Error()
}

func (s *Source) showProgress(id buildid.ID, file debuginfod.File, bytes, size int64) {
	done := 0.0
	if size > 0 {
		done = float64(bytes) / float64(size)
	}
	s.Bar.Set(done, fmt.Sprintf("fetching %s of %s, %s", file, id, terminal.Quantity(bytes, "bytes")))
}

// Close ends what open began.
func (s *Source) Close() {
	s.Bar.Clear()
	s.stop()
}

// stepText says what came of looking for a file at a place.
func stepText(step debuginfo.Step) string {
	what := step.Why.String()
	switch {
	case step.Err != nil:
		what = terminal.Message(step.Err, step.Path)
	case step.Why == reason.None:
		what = "found"
	case step.Why == reason.NoFile:
		what = "not there"
	case step.Why == reason.FileChanged:
		what = "another file"
	case step.Why == reason.NotBelieved:
		what = "not used, others can have written it"
	}
	return fmt.Sprintf("%s: %s: %s", step.Place, plaintext.Name(step.Path), what)
}

// ErrAsking says that Ctrl-C came while servers were asked.
var ErrAsking = errors.New("interrupted while looking for symbols; with --no-debuginfod no server is asked")

// Symbolize gives symbols to the frames of p, and returns why others have none.
func (o *Options) Symbolize(e *verb.Env, p *pprof.Profile) (profile.Misses, error) {
	return o.name(e, p, func(context.Context, profile.Starts) {})
}

// Show symbolizes a profile that is not to be kept: code without symbols is named by where
// its function starts, and all other code of a binary is one function.
func (o *Options) Show(e *verb.Env, p *pprof.Profile) (profile.Misses, error) {
	return o.name(e, p, func(ctx context.Context, symbols profile.Starts) {
		profile.NameStarts(ctx, p, symbols)
		profile.NameUnknown(p)
	})
}

// Apart is Show for what others may name later: code without symbols whose function is not known stays apart, each
// offset of its own.
func (o *Options) Apart(e *verb.Env, p *pprof.Profile) (profile.Misses, error) {
	return o.name(e, p, func(ctx context.Context, symbols profile.Starts) { profile.NameStarts(ctx, p, symbols) })
}

// name symbolizes a profile, and has unnamed name what has no symbol.
func (o *Options) name(e *verb.Env, p *pprof.Profile, unnamed func(context.Context, profile.Starts)) (profile.Misses, error) {
	s, err := o.Open(context.Background(), e)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	symbols := &local.Symbols{Library: s.Library}
	misses, err := profile.Symbolize(s.Context, p, symbols)
	if err != nil {
		return nil, ErrAsking
	}
	unnamed(s.Context, symbols)
	return misses, nil
}
