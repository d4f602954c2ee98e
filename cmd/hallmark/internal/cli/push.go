package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/input"
	"hallmark/cmd/hallmark/internal/progress"
	"hallmark/cmd/hallmark/internal/symbolsource"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/debuginfo"
	"hallmark/internal/atomicfile"
	"hallmark/internal/plaintext"
	"hallmark/internal/regular"
	"hallmark/procmap"
	"hallmark/profile"
	"hallmark/server/api"
	"hallmark/server/client"
	"hallmark/server/packages"
)

const pushLong = `Push sends files to a symbol server. It first asks which ones the server lacks,
by identity and content, and sends those alone. A large file goes in parts: if
push is interrupted, the next one goes on where it ended.

An argument is an ELF file; a package (.deb, .rpm), an archive (.tar in any
compression) or an image of a container (docker save, OCI); a directory, whose
ELF files and packages are sent; a profile or a recording by perf, whose files
are looked for on this machine by identity, and its vdso in memory; or a process
by its number (write ./123 for a file), of which the files that it has mapped
for execution are sent.

With --source DIR push also sends the source files that the debug information of
the files names, if they are in that directory. No other file is opened, because
debug information can name any, and no link leads out of DIR.

With --profile push also sends the profiles themselves, as they are, after their
files. A recording by perf goes as the profile that is made of it here, where
its files are: with the callers in stacks that perf copied. The server keeps
profiles, and push prints the URL of the page of each: it shows the names that
the server has when somebody looks. What is in a profile (names of processes,
functions and paths) can be read by all who may read on the server.

Push prints a line for each file that it sent or that was refused. With --json
it prints an object for each file. The exit status is 1 if a file was refused or
not found, and if no ELF file is in a directory or a package.`

const pushExample = `  hallmark push --server http://127.0.0.1:8002 ./build
  hallmark push --server http://127.0.0.1:8002 --source ~/src/app ./prog
  hallmark push --server http://127.0.0.1:8002 hallmark.pb.gz   # what it needs
  hallmark push --server http://127.0.0.1:8002 --profile hallmark.pb.gz
  HALLMARK_TOKEN=... hallmark push --server https://symbols.example *.deb`

type pushOptions struct {
	server  symbolsource.Server
	json    bool
	sources []string
	profile bool
	title   string
	input   input.Reader
}

func newPushCommand(e *verb.Env) *cobra.Command {
	var opt pushOptions
	cmd := &cobra.Command{
		Use:     "push [flags] FILE|DIR|PACKAGE|PROFILE|PID...",
		Short:   "Send files to a symbol server",
		Long:    pushLong,
		Example: pushExample,
		Args:    verb.Takes("FILE..."),
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, over := verb.Interruptible()
			defer over()
			return runPush(ctx, e, &opt, args)
		},
	}
	f := cmd.Flags()
	opt.server.AddFlags(f, "send the files to the server")
	f.BoolVar(&opt.json, "json", false, "print a JSON object for each file")
	f.StringArrayVar(&opt.sources, "source", nil, "send the source files in `DIR` that debug information names, too (can be repeated)")
	f.BoolVar(&opt.profile, "profile", false, "send profiles themselves, too, and print the URL of the page of each")
	f.StringVar(&opt.title, "title", "", "with --profile, the page has this `TEXT` as its title (default: the name of the file)")
	return cmd
}

// pushRecord is one file in the output of --json.
type pushRecord struct {
	ID     string `json:"build_id,omitempty"`
	Name   string `json:"binary"`
	In     string `json:"archive,omitempty"`
	Action string `json:"action"` // sent, skipped, refused, missing
	Size   int64  `json:"size,omitempty"`
	Served *bool  `json:"served,omitempty"`
	Alone  bool   `json:"alone,omitempty"`    // a debug file whose program the server does not have
	Mute   bool   `json:"nameless,omitempty"` // and which the server takes no names from
	Rivals int    `json:"disputed,omitempty"`
	Error  string `json:"error,omitempty"`

	Profile string `json:"profile,omitempty"` // of a profile: its ID, and the URL of its page
	Page    string `json:"page,omitempty"`
}

// pushing is one run of push.
type pushing struct {
	env    *verb.Env
	opt    *pushOptions
	client *client.Client
	pusher *client.Pusher
	bar    *progress.Bar
	out    *verb.ObjectWriter
	stdout io.Writer
	stderr io.Writer
	bytes  int64
	sent   int
	had    int
	failed int
	found  int // ELF files
	wanted int // source files that debug information names
	given  int // of these, sent
	seen   map[pushedFile]bool
	alone  map[buildid.ID]string // names of debug files whose programs the server does not have, and that name code
	mute   map[buildid.ID]string // the same, of those that the server takes no names from
	from   sourceDirs

	profiles []pushedProfile // to be sent when their files are there
}

// pushedFile is a file that was looked at: other processes see another one at the same path.
type pushedFile struct {
	path     string
	dev, ino uint64
}

func runPush(ctx context.Context, e *verb.Env, opt *pushOptions, args []string) error {
	c, err := opt.server.Need()
	if err != nil {
		return err
	}
	if opt.title != "" && !opt.profile {
		return verb.Usagef("push: --title is for --profile")
	}
	from, err := openSourceDirs(opt.sources)
	if err != nil {
		return err
	}
	defer from.close()
	p := &pushing{env: e, opt: opt, client: c, bar: progress.New(e.Stderr), seen: map[pushedFile]bool{}, alone: map[buildid.ID]string{}, mute: map[buildid.ID]string{}, from: from}
	defer p.bar.Clear()
	p.stdout, p.stderr = p.bar.Over(e.Stdout), p.bar.Over(e.Stderr)
	p.out = verb.NewObjectWriter(p.stdout)
	p.pusher = &client.Pusher{Client: c, Done: p.done}
	c.OnRetry = func(err error, pause time.Duration) {
		if pause >= time.Second {
			fmt.Fprintf(p.stderr, "hallmark: %s: trying again in %v\n", plaintext.Line(err.Error()), pause)
		}
	}
	for _, arg := range args {
		if err := p.argument(ctx, arg); err != nil {
			return p.ended(ctx, err)
		}
	}
	if err := p.pusher.Flush(ctx); err != nil {
		return p.ended(ctx, err)
	}
	for i := range p.profiles {
		if err := p.sendProfile(ctx, &p.profiles[i]); err != nil {
			return p.ended(ctx, err)
		}
	}
	p.sum("")
	p.noteAlone()
	if p.failed > 0 {
		return verb.ExitStatus(1)
	}
	return nil
}

// sum prints what became of the files, and what else there is to say of it.
func (p *pushing) sum(rest string) {
	if p.opt.json {
		return
	}
	sent := "nothing sent"
	if p.sent > 0 {
		sent = fmt.Sprintf("%s sent (%s)", plaintext.Plural(int64(p.sent), "file"), terminal.Quantity(p.bytes, "bytes"))
	}
	sources := ""
	if len(p.opt.sources) > 0 {
		sources = fmt.Sprintf(", %d of %s sent", p.given, plaintext.Plural(int64(p.wanted), "source file"))
	}
	fmt.Fprintf(p.stdout, "%s, %d already there, %d failed%s%s\n", sent, p.had, p.failed, sources, rest)
}

// noteAlone reports debug files whose programs the server does not have, and what they are good for.
func (p *pushing) noteAlone() {
	if p.opt.json {
		return
	}
	p.noteDebugFiles(p.alone, "it names the code of what 'hallmark record' recorded, without a comparison; other profiles need the program, too")
	p.noteDebugFiles(p.mute, "the server takes no names from it, as agents alone sent it, or other files have its build ID: push the program, too")
}

// noteDebugFiles reports some of them, and what the server does with them.
func (p *pushing) noteDebugFiles(files map[buildid.ID]string, use string) {
	if len(files) == 0 {
		return
	}
	names := slices.Sorted(maps.Values(files))
	shown := plaintext.Name(names[0])
	if n := len(names) - 1; n > 0 {
		shown += fmt.Sprintf(" and %s", plaintext.Plural(int64(n), "more file"))
	}
	fmt.Fprintf(p.stderr, "hallmark: %s: a debug file, and the server does not have its program:\n  %s\n", shown, use)
}

func (p *pushing) ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		p.sum(": the next push goes on from here")
		return verb.WithStatus(130, errInterrupted)
	}
	return symbolsource.Advised(err)
}

// done reports what became of a file.
func (p *pushing) done(f *client.File, action string, stored api.Stored, err error) {
	r := pushRecord{ID: f.ID.String(), Name: f.Name, In: f.Archive, Size: f.Size, Action: "skipped"}
	switch {
	case errors.Is(err, context.Canceled): // neither sent nor refused, as the end of the run says
		return
	case err != nil:
		r.Action, r.Error = "refused", strings.Replace(err.Error(), ": "+f.Name+": ", ": ", 1) // the line begins with its name
		p.failed++
	case action == api.Upload:
		r.Action, r.Rivals, r.Served = "sent", stored.Disputed, &stored.Served
		p.sent++
		p.bytes += f.Size
	default:
		if stored.Disputed > 0 {
			r.Rivals, r.Served = stored.Disputed, &stored.Served
		}
		p.had++
	}
	if r.Error == "" {
		r.Alone, r.Mute = stored.Alone, stored.Nameless
		delete(p.alone, f.ID)
		delete(p.mute, f.ID)
		switch {
		case r.Mute:
			p.mute[f.ID] = f.Name
		case r.Alone:
			p.alone[f.ID] = f.Name
		}
	}
	p.print(r)
	p.bar.Set(0, fmt.Sprintf("%d sent, %d already there", p.sent, p.had))
}

// missing reports what was asked for and is not there to be sent.
func (p *pushing) missing(name, id, why string) {
	p.failed++
	p.print(pushRecord{Name: name, ID: id, Action: "missing", Error: why})
}

// refused reports a file that no server takes.
func (p *pushing) refused(name, id, why string) {
	p.failed++
	p.print(pushRecord{Name: name, ID: id, Action: "refused", Error: why})
}

func (p *pushing) print(r pushRecord) {
	if p.opt.json {
		_ = p.out.Write(r) // Main reports that it cannot be written
		return
	}
	name := plaintext.Name(r.Name)
	if r.In != "" {
		name = plaintext.Name(r.In) + ": " + name
	}
	switch {
	case r.Error != "":
		fmt.Fprintf(p.stderr, "hallmark: %s: %s\n", name, plaintext.Line(r.Error))
	case r.Page != "":
		fmt.Fprintf(p.stdout, "profile %s: %s\n", name, plaintext.Name(r.Page))
	case r.Rivals > 0:
		how := "sent"
		if r.Action == "skipped" {
			how = "already there:"
		}
		fmt.Fprintf(p.stdout, "%s %s %s (the server has files of different code with this identity, and serves %s)\n", how, plaintext.Name(r.ID), name, which(*r.Served))
	case r.Action == "sent":
		fmt.Fprintf(p.stdout, "sent %s %s\n", plaintext.Name(r.ID), name)
	}
}

func which(isThis bool) string {
	if isThis {
		return "this one"
	}
	return "another one"
}

// argument sends what an argument stands for. An error ends the run.
func (p *pushing) argument(ctx context.Context, arg string) error {
	if pid, err := strconv.Atoi(arg); err == nil && pid > 0 {
		return p.process(ctx, pid)
	}
	info, err := os.Stat(arg)
	switch {
	case err != nil:
		p.missing(arg, "", verb.ReasonOf(err).Error())
		return nil
	case info.IsDir():
		return p.holds(arg, func() error { return p.directory(ctx, arg) })
	}
	return p.named(ctx, arg)
}

// holds has a function send the ELF files in a directory or a package that the user named, and reports that there are none.
func (p *pushing) holds(name string, send func() error) error {
	found, failed := p.found, p.failed
	err := send()
	if err == nil && p.found == found && p.failed == failed {
		p.missing(name, "", "no ELF file is in it")
	}
	return err
}

// directory sends the ELF files and packages below a directory. No link that is put there meanwhile
// leads out of it.
func (p *pushing) directory(ctx context.Context, dir string) error {
	root, err := os.Open(dir)
	if err != nil {
		p.missing(dir, "", verb.ReasonOf(err).Error())
		return nil
	}
	defer root.Close()
	made := map[uint64]bool{}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			p.missing(path, "", verb.ReasonOf(err).Error())
			return nil
		case d.IsDir() && isMade(int(root.Fd()), dir, path, d, made):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		below, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f, err := regular.OpenIn(int(root.Fd()), below)
		if err != nil {
			p.missing(path, "", verb.ReasonOf(err).Error())
			return nil
		}
		switch {
		case isELF(f):
			return p.file(ctx, f, path, buildid.ID{})
		case packages.IsPackage(path):
			return p.pack(ctx, f, path)
		}
		return f.Close()
	})
}

// isMade reports whether a directory, which is at path below dir, is in a file system whose files the kernel makes up,
// such as /proc. It remembers the answer for each file system.
func isMade(root int, dir, path string, d fs.DirEntry, known map[uint64]bool) bool {
	info, err := d.Info()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	made, ok := known[st.Dev]
	if !ok {
		below, err := filepath.Rel(dir, path)
		if err != nil {
			return false
		}
		place, err := regular.PathIn(root, below, syscall.O_DIRECTORY|syscall.O_NOFOLLOW)
		if err != nil {
			return false
		}
		defer syscall.Close(place)
		made = regular.IsMade(place)
		known[st.Dev] = made
	}
	return made
}

func isELF(r io.ReaderAt) bool {
	var magic [4]byte
	n, _ := r.ReadAt(magic[:], 0)
	return n == 4 && string(magic[:]) == "\x7fELF"
}

// named sends the file with a name that the user gave, which may be a profile.
func (p *pushing) named(ctx context.Context, name string) error {
	f, err := regular.Open(name)
	if err != nil {
		p.missing(name, "", verb.ReasonOf(err).Error())
		return nil
	}
	switch {
	case isELF(f):
		return p.file(ctx, f, name, buildid.ID{})
	case packages.IsPackage(name):
		return p.holds(name, func() error { return p.pack(ctx, f, name) })
	}
	f.Close()
	return p.profile(ctx, name)
}

// file sends an ELF file, and takes it over. Where an identity is wanted, a file of another one
// is not sent.
func (p *pushing) file(ctx context.Context, f *os.File, name string, want buildid.ID) error {
	p.found++
	if abs, err := filepath.Abs(name); err == nil {
		name = abs
	}
	if key := keyOf(f, name); p.seen[key] {
		return f.Close()
	} else {
		p.seen[key] = true
	}
	info, err := buildid.ReadContext(ctx, f)
	switch {
	case ctx.Err() != nil:
		f.Close()
		return ctx.Err()
	case err != nil:
		f.Close()
		p.refused(name, want.String(), err.Error())
		return nil
	case !want.IsZero() && info.ID != want:
		f.Close()
		p.missing(name, want.String(), fmt.Sprintf("it is another file by now: %v", info.ID))
		return nil
	}
	sources := p.from.of(f, name, info.ID)
	err = p.pusher.Add(ctx, client.File{PlanFile: api.PlanFile{ID: info.ID, Name: name}, Modified: modifiedOf(f), Content: f}, f.Close)
	if err != nil || len(sources) == 0 {
		return err
	}
	// The server takes sources of files alone that it has.
	if err := p.pusher.Flush(ctx); err != nil {
		return err
	}
	for _, path := range sources {
		if err := p.source(ctx, info.ID, path); err != nil {
			return err
		}
	}
	return nil
}

// modifiedOf returns when a file was changed last.
func modifiedOf(f *os.File) time.Time {
	info, err := f.Stat()
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

func keyOf(f *os.File, name string) pushedFile {
	key := pushedFile{path: name}
	if info, err := f.Stat(); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			key.dev, key.ino = st.Dev, st.Ino
		}
	}
	return key
}

// pack sends the ELF files in a package.
func (p *pushing) pack(ctx context.Context, f *os.File, name string) error {
	defer f.Close()
	err := packages.Walk(ctx, bufio.NewReaderSize(f, 1<<20), name, packages.Limits{}, nil, func(m packages.Member) error {
		start := make([]byte, 4)
		if n, _ := io.ReadFull(m, start); n < 4 || !isELF(bytes.NewReader(start)) {
			return nil
		}
		p.found++
		member, err := scratchOf(io.MultiReader(bytes.NewReader(start), m))
		if err != nil {
			return err
		}
		info, err := buildid.ReadContext(ctx, member)
		if err != nil {
			member.Close()
			if ctx.Err() == nil {
				p.refused(name+": "+m.Path, "", err.Error())
			}
			return ctx.Err()
		}
		return p.pusher.Add(ctx, client.File{PlanFile: api.PlanFile{ID: info.ID, Name: m.Path,
			Archive: filepath.Base(name), Package: m.Meta.Package(), Build: m.Meta.Build()}, Modified: m.Modified, Content: member}, member.Close)
	})
	if errors.Is(err, packages.ErrFormat) || errors.Is(err, packages.ErrLimit) {
		p.refused(name, "", strings.TrimPrefix(err.Error(), name+": "))
		return nil
	}
	return err
}

// scratchOf reads into a file without a name.
func scratchOf(r io.Reader) (*os.File, error) {
	f, err := atomicfile.Scratch()
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(f, r); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// process sends the files that a process has mapped for execution.
func (p *pushing) process(ctx context.Context, pid int) error {
	name := fmt.Sprintf("process %d", pid)
	proc, err := procmap.Open(pid)
	if errors.Is(err, procmap.ErrNoProcess) {
		p.missing(name, "", "no process has this number")
		return nil
	}
	if err != nil {
		p.missing(name, "", strings.TrimPrefix(err.Error(), name+": "))
		return nil
	}
	defer proc.Close()
	vmas, err := proc.Executable()
	if err != nil {
		p.missing(name, "", strings.TrimPrefix(err.Error(), name+": "))
		return nil
	}
	seen := map[string]bool{}
	for _, v := range vmas {
		if !v.FileBacked() || seen[v.Path()] {
			continue
		}
		seen[v.Path()] = true
		f, err := proc.OpenFile(v)
		if err != nil {
			p.missing(v.Path(), "", err.Error())
			continue
		}
		// Another descriptor of that very file, which others may close.
		copied, err := regular.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		f.Close()
		if err != nil {
			p.missing(v.Path(), "", verb.ReasonOf(err).Error())
			continue
		}
		if err := p.file(ctx, copied, v.Path(), buildid.ID{}); err != nil {
			return err
		}
	}
	return nil
}

// A pushedProfile is one that is to be sent.
type pushedProfile struct {
	name string
	made []byte // the profile of a recording by perf, compressed; nil for the file itself
}

// profile sends the files of a profile that are on this machine.
func (p *pushing) profile(ctx context.Context, name string) error {
	p.opt.input.Events = nil
	prof, err := p.opt.input.Read(p.env, name)
	if err != nil {
		p.notSent(name, err)
		return nil
	}
	if p.opt.profile {
		next := pushedProfile{name: name}
		if len(p.opt.input.Events) > 0 {
			if p.opt.input.Status() != nil { // the reader has reported why
				p.failed++
			}
			var b bytes.Buffer
			if err := prof.Write(&b); err != nil {
				return fmt.Errorf("%s: %w", plaintext.Name(name), err)
			}
			next.made = b.Bytes()
		}
		p.profiles = append(p.profiles, next)
	}
	finder := &debuginfo.Finder{}
	seen := map[string]bool{}
	var lacks []api.PlanFile
	for _, m := range prof.Mapping {
		id, err := buildid.Parse(m.BuildID)
		if err != nil || seen[m.BuildID] {
			continue
		}
		seen[m.BuildID] = true
		found := false
		paths := []string{m.File}
		if path, _ := finder.Find(id); path != "" {
			paths = append(paths, path)
		}
		for _, path := range paths {
			f, err := regular.Open(path)
			if err != nil {
				continue
			}
			if info, err := buildid.ReadContext(ctx, f); err != nil || info.ID != id {
				f.Close()
				continue
			}
			found = true
			if err := p.file(ctx, f, path, id); err != nil {
				return err
			}
		}
		if !found && m.File == vdsoName {
			if found, err = p.vdso(ctx, id); err != nil {
				return err
			}
		}
		if !found && !isKernel(m.File) {
			lacks = append(lacks, api.PlanFile{ID: id, Name: m.File})
		}
	}
	return p.ask(ctx, lacks)
}

// ask asks the server which files it has that are not here.
func (p *pushing) ask(ctx context.Context, lacks []api.PlanFile) error {
	for some := range slices.Chunk(lacks, api.MaxPlan) {
		planned, err := p.client.Plan(ctx, some)
		if err != nil {
			return err
		}
		for i, f := range some {
			if planned[i].Action == api.Skip {
				p.done(&client.File{PlanFile: f}, api.Skip, api.Stored{}, nil)
				continue
			}
			p.missing(f.Name, f.ID.String(), "no file with this identity is on this machine, nor at the server")
		}
	}
	return nil
}

// notSent reports a file that cannot be read as a profile. It is no ELF file and no package either.
func (p *pushing) notSent(name string, err error) {
	why := strings.TrimPrefix(err.Error(), plaintext.Name(name)+": ")
	switch kind, isOther := strings.CutPrefix(why, "not a profile, but "); {
	case isOther:
		p.refused(name, "", notPushed+", but "+kind)
	case errors.Is(err, profile.ErrFormat):
		p.refused(name, "", notPushed+": "+why)
	default:
		p.refused(name, "", why)
	}
}

const notPushed = "not an ELF file, a package or a profile"

const vdsoName = "[vdso]"

// isKernel reports whether a profile calls code of the kernel or of a module so. No server is asked for its names, so
// that its file is not here is no failure.
func isKernel(name string) bool {
	return name != vdsoName && strings.HasPrefix(name, "[") && strings.HasSuffix(name, "]")
}

// vdso sends the code that the kernel maps into every process, as this one has it, and reports whether it has the
// identity.
func (p *pushing) vdso(ctx context.Context, want buildid.ID) (bool, error) {
	self, err := procmap.Open(os.Getpid())
	if err != nil {
		return false, nil
	}
	defer self.Close()
	all, err := self.All()
	i := slices.IndexFunc(all, func(v procmap.VMA) bool { return v.Kind() == procmap.KindVDSO })
	if err != nil || i < 0 {
		return false, nil
	}
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return false, nil
	}
	defer memory.Close()
	image, err := scratchOf(io.NewSectionReader(memory, int64(all[i].Start), int64(all[i].End-all[i].Start)))
	if err != nil {
		return false, err
	}
	if info, err := buildid.ReadContext(ctx, image); err != nil || info.ID != want {
		return false, errors.Join(ctx.Err(), image.Close())
	}
	return true, p.pusher.Add(ctx, client.File{PlanFile: api.PlanFile{ID: want, Name: vdsoName}, Content: image}, image.Close)
}

// sendProfile sends a profile.
func (p *pushing) sendProfile(ctx context.Context, t *pushedProfile) error {
	name := t.name
	var content io.ReaderAt
	var size int64
	if t.made != nil {
		content, size = bytes.NewReader(t.made), int64(len(t.made))
	} else {
		f, err := regular.Open(name)
		if err != nil {
			p.missing(name, "", verb.ReasonOf(err).Error())
			return nil
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		content, size = f, info.Size()
	}
	kept, page, err := p.client.SendProfile(ctx, cmp.Or(p.opt.title, filepath.Base(name)), content, size)
	var refused *client.Error
	switch {
	case errors.As(err, &refused) && refused.Status != 401 && refused.Status != 403:
		p.failed++
		p.print(pushRecord{Name: name, Action: "refused", Error: err.Error()})
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", plaintext.Name(name), err)
	}
	r := pushRecord{Name: name, Action: "skipped", Size: size, Profile: kept.ID, Page: page}
	if kept.New {
		r.Action = "sent"
	}
	p.print(r)
	return nil
}

const maxSourceFile = 64 << 20

// source sends a source file, if it is in a directory of --source.
func (p *pushing) source(ctx context.Context, id buildid.ID, path string) error {
	p.wanted++
	f, err := p.from.open(path)
	if err != nil {
		return nil // as it is for the sources of libraries
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() > maxSourceFile {
		return nil
	}
	if err := p.client.SendSource(ctx, id, path, info.ModTime(), f, info.Size()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	p.given++
	return nil
}
