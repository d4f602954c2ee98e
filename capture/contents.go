package capture

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/aside"
	"hallmark/internal/bpf"
	"hallmark/internal/contentcache"
	"hallmark/internal/contested"
	"hallmark/internal/mounts"
	"hallmark/internal/trust"
	"hallmark/procmap"
	"hallmark/profile"
	"hallmark/reason"
)

// A build ID is a claim. What a recording knows of one file and of another is put together
// only if their contents are the same. They are read when the samples have ended, and only
// of files that samples are in.

// distinct tells files apart. One of unknown content is the same as another only if it has
// its path, too.
type distinct struct {
	id      buildid.ID // that it claims
	content buildid.Content
	path    string // of a file of unknown content
	unkept  bool   // see judgeUnknown
}

func distinctOf(id buildid.ID, content buildid.Content, path string) distinct {
	if !content.IsZero() {
		path = ""
	}
	return distinct{id: id, content: content, path: path}
}

// read is a file that frames are in, and what was read of it.
type read struct {
	object  *object
	content buildid.Content
	// several are the contents of a file that is known by identity and path alone, if they
	// differ. One may be unknown. Then content is.
	several []buildid.Content
	unkept  bool // see judgeUnknown
}

// contentLimits bound what is read of files at the end of a recording.
var contentLimits = contested.Limits{Time: 3 * time.Second, Bytes: 8 << 30}

// readContents reads the contents of files, but of those that were read before.
func readContents(objects []*object) []read {
	all := make([]read, len(objects))
	var files []contested.File
	var missing []*read
	for i, o := range objects {
		r := &all[i]
		r.object, r.content = o, o.early
		if r.content.IsZero() {
			files = append(files, contested.File{Size: o.seen.size, Ask: o.readNow})
			missing = append(missing, r)
		}
	}
	for i, c := range contested.Read(files, contentLimits) {
		missing[i].content = c
	}
	for i := range all {
		all[i].compare()
	}
	return all
}

// compare looks whether an object shows files of different content: then nobody knows which
// frames were of which.
func (r *read) compare() {
	others := r.object.others
	if r.object.unsure {
		r.content = buildid.Content{}
	}
	if slices.ContainsFunc(others, func(c buildid.Content) bool { return c != r.content }) {
		r.several = append(others, r.content)
		r.content = buildid.Content{}
	}
}

// earlyContent is how many bytes a file may have whose content is read at once, when it is
// reached. Its links may change afterwards, and then nobody knows whether the bytes have.
const earlyContent = 2 << 20

// readContent reads the content of a file of at most so many bytes, if not too much was read
// of late.
func (f *reached) readContent(ctx context.Context, most int64, left *allowances) {
	file, isNear := f.file.(*os.File)
	if !isNear || f.why != reason.None || f.seen.size > most {
		return
	}
	if c, ok := contentcache.Known(file); ok && stampOf(file) == f.seen {
		f.content = c
		return
	}
	if !left.of(f.isTrusted()).take(f.seen.size, time.Now()) {
		return
	}
	c, err := contentcache.OfMapped(ctx, file)
	if err == nil && stampOf(file) == f.seen {
		f.content = c
	}
}

// allowances are those of the files that only root or this user can have written, and of all
// other files: nobody can use up what is for the former.
type allowances struct{ trusted, others allowance }

func (a *allowances) of(isTrusted bool) *allowance {
	if isTrusted {
		return &a.trusted
	}
	return &a.others
}

// allowance bounds what is read of files while samples or events are taken: whoever executes
// many large files could keep us busy with them.
type allowance struct {
	mu    sync.Mutex
	spent int64
	since time.Time
}

const (
	allowedAtOnce  = 512 << 20 // bytes
	allowedASecond = 64 << 20
)

// take reports whether so many bytes may be read now, and counts them.
func (a *allowance) take(size int64, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.since.IsZero() {
		a.spent = max(0, a.spent-int64(now.Sub(a.since).Seconds()*allowedASecond))
	}
	a.since = now
	if a.spent+size > allowedAtOnce {
		return false
	}
	a.spent += size
	return true
}

// open returns the file whose identity was read, if that is proven to be what was mapped: an
// *os.File, or an *aside.File. Nobody else changes objects any more.
func (o *object) open() (f content, done func()) {
	if !o.exact || o.mixed {
		return nil, nil
	}
	switch f := o.content.(type) {
	case *os.File, *aside.File:
		return f, func() {}
	}
	if o.content != nil || o.way == nil {
		return nil, nil
	}
	found := reach(context.Background(), *o.way, 0)
	if found.why != reason.None || found.seen != o.seen {
		found.close()
		return nil, nil
	}
	return found.file, found.close
}

// readNow reads the content of the file, the zero one if it cannot be read or is another by now.
func (o *object) readNow(ctx context.Context) (c buildid.Content) {
	f, done := o.open()
	if f == nil {
		return c
	}
	defer done()
	var err error
	switch f := f.(type) {
	case *os.File:
		if c, err = contentcache.OfMapped(ctx, f); err != nil || !o.isSame(f) {
			return buildid.Content{}
		}
	case *aside.File:
		return readFarContent(f, o.seen)
	}
	return c
}

// isSame reports whether a file still has the content that it had when its identity was
// read. Its owner can put back the time of the last change of the content, and not that of
// the inode; which changes with links and permissions as well, so those are believed who
// could not wish to deceive.
func (o *object) isSame(f *os.File) bool {
	now := stampOf(f)
	if now == o.seen {
		return true
	}
	return now.size == o.seen.size && now.mtime == o.seen.mtime && trust.LevelOf(f, "") != trust.Others
}

// isExact reports whether a file that was reached is certain to have what was mapped in the
// way of the job. The owner of a file can make another one of the same identity; root and this
// user put no times back to deceive.
func (j job) isExact(f reached) bool {
	if j.content != nil {
		return f.proven || f.renamed && f.isTrusted()
	}
	return !f.fickle && !f.young && !wall(f.seen.ctime).Add(f.seen.rounding()).After(j.mapped)
}

// isLookalike reports whether a file that is not proven to be the one that BPF told of may be
// it all the same: only the time of its inode is another one, which changes with its names.
func (j job) isLookalike(f reached) bool {
	return uint64(f.seen.size) == j.content.Size && f.seen.mtime == j.content.Mtime
}

// maxOthers bounds the contents that are remembered of the files that one object shows.
const maxOthers = 4

// recheck looks at one more mapping of an object that is known by identity and path alone.
// A file that was put in the place of another has the same ones if it was built so.
func (r *resolver) recheck(j job) {
	o := j.object
	now, what := r.sight(j)
	r.objects.mu.Lock()
	isNew := !r.over && !o.unsure && what == sighted && !slices.ContainsFunc(append(o.sightings, o.seen), now.isFile)
	switch {
	case r.over || what == notChecked:
	case what == notSighted, isNew && len(o.sightings) >= maxOthers:
		o.unsure = true
	case isNew:
		o.sightings = append(o.sightings, now)
	}
	isNew = isNew && !o.unsure
	r.objects.mu.Unlock()
	if !isNew {
		return
	}
	found := reach(r.objects.ctx, j, maxRechecked)
	defer found.close()
	found.readContent(r.objects.ctx, maxRechecked, &r.objects.reading)
	r.objects.mu.Lock()
	defer r.objects.mu.Unlock()
	switch {
	case r.over || slices.Contains(o.others, found.content):
	case found.why != reason.None || found.id != j.want || found.content.IsZero() && found.isTrusted():
		o.unsure = true
	default:
		o.others = append(o.others, found.content)
	}
}

// isFile reports whether a file seems to be the one that had this stamp. The time of the inode
// is left out: it changes with its names.
func (s stamp) isFile(other stamp) bool {
	return s.inode == other.inode && s.size == other.size && s.mtime == other.mtime
}

// sighting is what came of looking for the file of a mapping.
type sighting uint8

const (
	notChecked sighting = iota // nobody can have exchanged it who would deceive
	sighted
	notSighted
)

// sight looks which file a mapping shows: by the mapping itself, while the process has it. Where only
// this user's processes are recorded, a file is found by its path if only trusted users can exchange
// it.
func (r *resolver) sight(j job) (stamp, sighting) {
	if !r.objects.strict && r.isTrusted(j.object) {
		seen, err := stampBelow(int(j.pid), j.vma.Name)
		switch {
		case err == nil:
			return seen, sighted
		case !errors.Is(err, mounts.ErrForeign): // else somebody mounted something on the way
			return stamp{}, notChecked
		}
	}
	p, err := procmap.Open(int(j.pid))
	if err != nil {
		return stamp{}, notSighted
	}
	defer p.Close()
	v, ok, err := p.Find(j.vma.Start)
	if err != nil || !ok || r.objects.strict && v.Name != j.vma.Name {
		return stamp{}, notSighted
	}
	f, why, err := p.OpenFile(v)
	switch {
	case err == nil && why == reason.FileUnresponsive && aside.Available():
		return sightAside(j)
	case err != nil || f == nil:
		return stamp{}, notSighted
	}
	defer f.Close()
	return stampOf(f.File), sighted
}

// sightAside is sight for a file of a file system that may not answer.
func sightAside(j job) (stamp, sighting) {
	found := reachAside(j, j.about(), 0)
	defer found.close()
	if found.why != reason.None {
		return stamp{}, notSighted
	}
	return found.seen, sighted
}

// stampBelow returns the stamp of the file that a process sees at a path. The error is
// mounts.ErrForeign where this process does not look.
func stampBelow(pid int, path string) (stamp, error) {
	fd, err := openBelow(pid, path)
	if err != nil {
		return stamp{}, err
	}
	defer unix.Close(fd)
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return stamp{}, err
	}
	return stampOfStat(&st), nil
}

// judge looks whether only root or this user can exchange a file that is not kept open.
func (f *reached) judge(isClosed bool) {
	if file, isNear := f.file.(*os.File); isNear && isClosed && f.why == reason.None {
		f.judged, f.trusted = true, trust.LevelOf(file, "") != trust.Others
	}
}

// isTrusted reports whether only root or this user can have written the file that was reached.
func (f *reached) isTrusted() bool {
	file, isNear := f.file.(*os.File)
	return isNear && trust.LevelOf(file, "") != trust.Others
}

// isTrusted reports whether the file that an object was first seen to show is one that only
// root or this user can exchange.
func (r *resolver) isTrusted(o *object) bool {
	r.objects.mu.Lock()
	defer r.objects.mu.Unlock()
	if !o.judged {
		o.judged = true
		if f, ok := o.content.(*os.File); ok {
			o.trusted = trust.LevelOf(f, "") != trust.Others
		}
	}
	return o.trusted
}

// maxRechecked is how many bytes a file may have whose content is read because another one
// was in its place.
const maxRechecked = 256 << 20

// distinguish gives each file its identity, content and path. Where files of different
// content claim one identity, it stays with the one that is trusted most, and the others
// have their content for an identity, as has one that others can have written if the content of
// another file is unknown. One of unknown content has none, if another file is
// known better: its owner may have seen to it that nobody can tell them apart.
func (f *finisher) distinguish(all []read) {
	claims, copies := map[buildid.ID][]*read{}, map[distinct][]*read{}
	var order []distinct
	for i := range all {
		r := &all[i]
		claims[r.object.id] = append(claims[r.object.id], r)
	}
	for _, claimants := range claims {
		judgeUnknown(claimants)
	}
	for i := range all {
		r := &all[i]
		o := r.object
		key := distinctOf(o.id, r.content, o.path)
		key.unkept = r.unkept
		if copies[key] == nil {
			order = append(order, key)
		}
		copies[key] = append(copies[key], r)
	}
	for _, key := range order {
		shown := profile.Binary{ID: key.id, Content: key.content, Unkept: key.unkept}
		if keeper, is := keeperOf(claims[key.id]); !key.content.IsZero() && (is && key.content != keeper || isDubious(copies[key], claims[key.id])) {
			shown.ID, shown.Claim = key.content.ID(), key.id
		}
		groups := believed(copies[key])
		for _, group := range groups {
			b := f.identify(shown, group, len(groups) > 1)
			f.noteGuests(group)
			if key.content.IsZero() && len(claims[key.id]) > len(group) && !group[0].object.doubted {
				b.Segments = nil // or pprof takes it for another one of the same layout
			}
		}
	}
}

// identify makes one file of objects. The first one gives it its path and, if it could be
// reached, its symbols.
func (f *finisher) identify(shown profile.Binary, group []*read, apart bool) *identified {
	shown.Path, shown.Apart = group[0].object.path, apart
	b := &identified{Binary: shown}
	key := distinctOf(shown.Claimed(), shown.Content, shown.Path)
	key.unkept = shown.Unkept
	if apart {
		key.path = shown.Path
	}
	if known := f.files[key]; known != nil {
		b = known
	}
	f.files[key] = b
	for _, r := range group {
		if key.content.IsZero() && r.isOtherState(group[0]) {
			r.several = append(r.several, buildid.Content{})
		}
		f.ofObject[r.object] = b
		b.add(r.object, len(r.several) > 0)
	}
	return b
}

// isOtherState reports whether BPF reported r and other as two files, or as one before and after a
// change. Where only root or this user can write, a new time of the inode alone is no change.
func (r *read) isOtherState(other *read) bool {
	a, b := r.object.key.content, other.object.key.content
	if a == (bpf.Validity{}) || b == (bpf.Validity{}) {
		return false
	}
	a.Pinned, b.Pinned = 0, 0
	if r.isVouched() && other.isVouched() {
		a.Ctime, b.Ctime = bpf.Time{}, bpf.Time{}
	}
	return a != b
}

// noteGuests notes the copies of a trusted file that others can have written. A content is of the
// code: what is executed beyond it may be other bytes than those of the trusted file.
func (f *finisher) noteGuests(group []*read) {
	if len(group) < 2 || group[0].content.IsZero() || !group[0].isVouched() {
		return
	}
	for _, r := range group[1:] {
		if r.isVouched() {
			continue
		}
		if f.guests == nil {
			f.guests = map[*object]*profile.Binary{}
		}
		f.guests[r.object] = &profile.Binary{ID: r.object.id, Path: r.object.path, Unkept: true}
	}
}

// believed groups copies, of which each says itself what its functions are called. A file
// that root or this user wrote is believed for all of them, and comes first. Without one, a
// user's file is believed for that user's copies alone.
func believed(copies []*read) [][]*read {
	if len(copies) == 1 || copies[0].content.IsZero() {
		return [][]*read{copies}
	}
	best, top := trust.Others, 0
	owners := map[int64][]*read{}
	var order []int64
	for i, r := range copies {
		level, owner := r.object.level()
		if level > best {
			best = level
			top = i
		}
		if owners[owner] == nil {
			order = append(order, owner)
		}
		owners[owner] = append(owners[owner], r)
	}
	if best > trust.Others {
		copies[0], copies[top] = copies[top], copies[0]
		return [][]*read{copies}
	}
	groups := make([][]*read, len(order))
	for i, owner := range order {
		groups[i] = owners[owner]
	}
	return groups
}

// judgeUnknown notes which files of unknown content may not have the identity that they and
// others claim.
func judgeUnknown(claimants []*read) {
	isKept := false
	var unknown []*read
	for _, r := range claimants {
		if len(claimants) > 1 && r.content.IsZero() && !r.isVouched() {
			unknown = append(unknown, r)
			continue
		}
		isKept = true
	}
	for _, r := range unknown {
		r.unkept = isKept
	}
}

// isVouched reports whether only root or this user can have written the file, or exchanged it
// for another one.
func (r *read) isVouched() bool {
	o := r.object
	if o.unsure || len(r.several) > 0 {
		return false
	}
	if level, _ := o.level(); level != trust.Others {
		return true
	}
	f, isNear := o.content.(*os.File)
	return o.trusted || isNear && trust.LevelOf(f, "") != trust.Others
}

// isDubious reports whether copies of known content may not have the identity that they claim: others
// can have written all of them, and another file claims it whose content is unknown. An earlier
// state of the same file is none of others: its owner has nothing from it.
func isDubious(copies, claimants []*read) bool {
	isOther := func(r *read) bool {
		return r.content.IsZero() && !slices.ContainsFunc(copies, func(c *read) bool { return c.object.isFileOf(r.object) })
	}
	return slices.ContainsFunc(claimants, isOther) && !slices.ContainsFunc(copies, (*read).isVouched)
}

// isFileOf reports whether BPF told of both objects as states of one file. Each of two files that
// had an inode after each other has a generation of its own.
func (o *object) isFileOf(other *object) bool {
	a, b := o.key.content, other.key.content
	return a.Generation != 0 && a.Inode == b.Inode && a.Dev == b.Dev && a.Medium == b.Medium && a.Generation == b.Generation
}

// keeperOf returns the content that keeps an identity, zero for none, and whether files of
// different content claim it.
func keeperOf(claimants []*read) (keeper buildid.Content, isContested bool) {
	var contents []buildid.Content
	for _, r := range claimants {
		if !r.content.IsZero() {
			contents = append(contents, r.content)
		}
	}
	if contested.Judge(contents) != contested.Different {
		return buildid.Content{}, false
	}
	best, alone := trust.Others, false
	for _, r := range claimants {
		if r.content.IsZero() {
			continue
		}
		switch level, _ := r.object.level(); {
		case level > best:
			best, keeper, alone = level, r.content, true
		case level == best && r.content != keeper:
			alone = false
		}
	}
	if !alone {
		keeper = buildid.Content{}
	}
	return keeper, true
}

// level returns how far the file is trusted, and whose it is: a number of its own for one
// that cannot be reached, or whose server can say any owner.
func (o *object) level() (trust.Level, int64) {
	f, done := o.open()
	if f == nil {
		return trust.Others, -1 - int64(o.index)
	}
	defer done()
	var st unix.Stat_t
	switch f := f.(type) {
	case *os.File:
		if unix.Fstat(int(f.Fd()), &st) == nil {
			return trust.LevelOf(f, ""), int64(st.Uid)
		}
	case *aside.File:
		if owner, err := aside.Serves(f, ownerFar, f.Number()); err == nil && owner >= 0 {
			return trust.Others, owner
		}
	}
	return trust.Others, -1 - int64(o.index)
}

// add takes what is known of one of the objects that show the file. The first one whose file
// could be reached gives it its content. Of two files of unknown content, nobody knows which
// is the right one.
func (b *identified) add(o *object, isSeveral bool) {
	switch {
	case b.Content.IsZero() && (isSeveral || b.content != nil && o.content != nil):
		b.content, b.file, b.Segments, b.doubtful = nil, nil, nil, true
	case b.content == nil && o.content != nil && !b.doubtful:
		b.content = o.content
		b.readSegments()
	}
}

// doubt has the profile say of which files one object shows several.
func (f *finisher) doubt(b *profile.Builder, all []read) {
	for _, r := range all {
		if len(r.several) > 0 {
			b.Doubt(&f.ofObject[r.object].Binary, r.several)
		}
	}
}
