package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"sync"

	pprof "github.com/google/pprof/profile"
	"github.com/spf13/pflag"

	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/progress"
	"hallmark/debuginfo"
	"hallmark/debuginfo/debuginfod"
	"hallmark/internal/plaintext"
	"hallmark/profile"
	"hallmark/profile/local"
	"hallmark/reason"
	"hallmark/symbol"
)

// symbolOptions are what the verbs that look for symbols have in common.
type symbolOptions struct {
	noDebuginfod bool
	extra        []string
	splitUnits   string
	verbose      bool
}

func (o *symbolOptions) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.noDebuginfod, "no-debuginfod", false, "ask no debuginfod server, though DEBUGINFOD_URLS names some")
	flags.StringArrayVar(&o.extra, "debug-path", nil, "look for files and debug files at this `PATH` too, a file or a directory, and believe them whoever owns them (can be repeated)")
	flags.BoolVar(&o.verbose, "verbose", false, "print on standard error where files were looked for")
}

// addPackageFlag adds the flag of verbs that look at one file.
func (o *symbolOptions) addPackageFlag(flags *pflag.FlagSet) { packageFlag(flags, &o.splitUnits) }

func packageFlag(flags *pflag.FlagSet, name *string) {
	flags.StringVar(name, "dwp", "", "take split debug information from this package `FILE`, where PROG.dwp is not beside the file")
}

// symbolSource is where a verb gets symbols from, until close.
type symbolSource struct {
	*debuginfo.Library
	ctx  context.Context // ends with Ctrl-C, if servers may be asked
	bar  *progress.Bar
	stop context.CancelFunc

	telling sync.Mutex // searches run at the same time
	stderr  io.Writer
	differ  map[buildid.ID][2]string // files of one build ID and different contents
}

// tell tells a line, above the bar.
func (s *symbolSource) tell(line string) {
	s.telling.Lock()
	defer s.telling.Unlock()
	fmt.Fprintf(s.bar.Over(s.stderr), "hallmark: %s\n", plaintext.Line(line))
}

// noteDifferent reports two files that have one build ID and different contents.
func (s *symbolSource) noteDifferent(id buildid.ID, paths [2]string) {
	s.telling.Lock()
	if s.differ == nil {
		s.differ = map[buildid.ID][2]string{}
	}
	s.differ[id] = paths
	s.telling.Unlock()
	s.tell(differentText(paths))
}

// differentText says that two files have one build ID and different contents.
func differentText(paths [2]string) string {
	return reason.DifferentContent.String() + ": " + plaintext.Name(paths[0]) + ", " + plaintext.Name(paths[1])
}

// differentFiles returns two files that were met with one build ID and different contents,
// nil if none were.
func (s *symbolSource) differentFiles() []string {
	s.telling.Lock()
	defer s.telling.Unlock()
	for _, paths := range s.differ {
		return paths[:]
	}
	return nil
}

// differentFrom is differentFiles for one identity.
func (s *symbolSource) differentFrom(id buildid.ID) []string {
	s.telling.Lock()
	defer s.telling.Unlock()
	if paths, ok := s.differ[id]; ok {
		return paths[:]
	}
	return nil
}

// open returns the source of symbols that the options and the environment say.
func (o *symbolOptions) open(ctx context.Context, e *env) (*symbolSource, error) {
	for _, path := range o.extra {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("--debug-path: %w", openFailed(err))
		}
	}
	if err := checkPackage(o.splitUnits); err != nil {
		return nil, err
	}
	s := &symbolSource{Library: new(debuginfo.Library), ctx: ctx, stop: func() {}, stderr: e.stderr}
	finder := &s.Library.Finder
	finder.Extra, finder.Package = o.extra, o.splitUnits
	finder.Differ = s.noteDifferent
	if !o.noDebuginfod {
		client, err := debuginfod.FromEnvironment()
		if err != nil {
			return nil, err
		}
		s.use(client)
	}
	switch {
	case o.verbose:
		finder.Trace = func(id buildid.ID, step debuginfo.Step) {
			text := stepText(step)
			if !id.IsZero() {
				text = id.String() + ": " + text
			}
			s.tell(text)
		}
	case o.splitUnits != "":
		finder.Trace = refusedPackage(o.splitUnits, s.tell)
	}
	return s, nil
}

// refusedPackage returns what reports, once, that a package has units of other files.
func refusedPackage(name string, tell func(line string)) func(buildid.ID, debuginfo.Step) {
	var once sync.Once
	return func(_ buildid.ID, step debuginfo.Step) {
		if step.Place == debuginfo.ForSplitUnits && step.Path == name && step.Why == reason.FileChanged {
			once.Do(func() { tell("--dwp " + plaintext.Name(name) + ": refused: units of the file are not in it") })
		}
	}
}

// checkPackage returns an error if a file is named that is no package of split units.
func checkPackage(name string) error {
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

// use lets servers be asked. Who waits for them may get tired of it.
func (s *symbolSource) use(client *debuginfod.Client) {
	s.Finder.Servers = client
	if len(client.URLs) == 0 {
		return
	}
	if err := client.Check(); err != nil {
		s.tell("no debuginfod server is asked: " + err.Error())
		client.URLs = nil
		return
	}
	s.ctx, s.stop = interruptible()
	s.bar = progress.New(s.stderr)
	client.Progress = s.showProgress
	client.Warn = func(err *debuginfod.Error) {
		s.tell("debuginfod server " + err.URL + ": " + serverProblem(err))
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

func (s *symbolSource) showProgress(id buildid.ID, file debuginfod.File, bytes, size int64) {
	done := 0.0
	if size > 0 {
		done = float64(bytes) / float64(size)
	}
	s.bar.Set(done, fmt.Sprintf("fetching %s of %s, %s", file, id, quantity(bytes, "bytes")))
}

// close ends what open began.
func (s *symbolSource) close() {
	s.bar.Clear()
	s.stop()
}

// stepText says what came of looking for a file at a place.
func stepText(step debuginfo.Step) string {
	what := step.Why.String()
	switch {
	case step.Err != nil:
		what = message(step.Err, step.Path)
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

// errAsking says that Ctrl-C came while servers were asked.
var errAsking = errors.New("interrupted while looking for symbols; with --no-debuginfod no server is asked")

// symbolize gives symbols to the frames of p, and returns why others have none.
func (o *symbolOptions) symbolize(e *env, p *pprof.Profile) (profile.Misses, error) {
	return o.name(e, p, false)
}

// show symbolizes a profile that is not to be kept: code without symbols is named by where
// its function starts, and all other code of a binary is one function.
func (o *symbolOptions) show(e *env, p *pprof.Profile) (profile.Misses, error) {
	return o.name(e, p, true)
}

func (o *symbolOptions) name(e *env, p *pprof.Profile, starts bool) (profile.Misses, error) {
	s, err := o.open(context.Background(), e)
	if err != nil {
		return nil, err
	}
	defer s.close()
	symbols := &local.Symbols{Library: s.Library, Context: s.ctx}
	misses := profile.Symbolize(p, symbols)
	if s.ctx.Err() != nil {
		return nil, errAsking
	}
	if starts {
		nameUnnamed(p, symbols)
	}
	return misses, nil
}

// nameUnnamed names the code without symbols of a profile that is not to be kept.
func nameUnnamed(p *pprof.Profile, symbols profile.Starts) {
	profile.NameStarts(p, symbols)
	profile.NameUnknown(p)
}
