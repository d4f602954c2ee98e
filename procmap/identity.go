package procmap

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"syscall"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/aside"
	"hallmark/internal/mounts"
	"hallmark/reason"
)

// Identity is what is known of the file behind a VMA. Either ID is not zero, or
// Reason says why.
type Identity struct {
	buildid.Info
	Reason reason.Reason
	Door   Door // how it was learned; NoDoor when it was not

	// Inferred says that v itself has no file and the identity is that of its
	// Origin. Whether the pages of v are as there is not checked: see
	// Process.Rewritten and Process.UnlikeOrigin.
	Inferred bool
}

// fileKey stands for a file within one Process.
type fileKey struct {
	dev   Dev
	inode uint64
	name  string
	// at is where it is mapped, on devices without a disk: an overlay gives files of two layers one
	// number, subvolumes have one device, and a file can be bound over the name of another.
	at addr.Abs
}

func fileKeyOf(v VMA) fileKey {
	key := fileKey{dev: v.Dev, inode: v.Inode, name: v.Name}
	if v.Dev.Major == 0 {
		key.at = v.Start
	}
	return key
}

// Identity returns the identity of the file behind v. The kernel is asked first;
// it knows GNU build IDs of up to 20 bytes, and not where Go's linker puts them.
// Then the file is read, if there is a door to it, and then what the process has
// of it in memory. An error means that p could not be asked.
//
// What was read is remembered for the VMAs of the same file until p is closed, so
// that a file which is overwritten meanwhile keeps the identity that it had.
func (p *Process) Identity(v VMA) (Identity, error) {
	id, err := p.identify(v)
	if err != nil {
		return Identity{}, p.wrap(err)
	}
	return id, nil
}

func (p *Process) identify(v VMA) (Identity, error) {
	switch v.Kind() {
	case KindVDSO:
		return p.identifyVDSO(v)
	case KindAnonymous, KindMemfd, KindShm, KindHugetlb:
		o, ok, err := p.origin(v)
		if err != nil {
			return Identity{}, err
		}
		if ok {
			id, err := p.ofFile(o.below)
			id.Inferred = true
			return id, err
		}
	}
	if !v.FileBacked() {
		return Identity{Reason: v.withoutFile()}, nil
	}
	return p.ofFile(v)
}

// identifyVDSO returns the identity of the vdso. All processes of 64 bits have the same one.
func (p *Process) identifyVDSO(v VMA) (Identity, error) {
	if v.Start < top32 || strconv.IntSize < 64 {
		return p.fromMemory(v, reason.NotPermitted)
	}
	info, err := buildid.ReadVDSO()
	if err != nil || info.ID.IsZero() {
		return p.fromMemory(v, reason.NotPermitted)
	}
	return Identity{Info: info, Door: DoorMemory}, nil
}

// ofFile returns the identity of the file that v maps.
func (p *Process) ofFile(v VMA) (Identity, error) {
	key := fileKeyOf(v)
	if id, ok := p.known.Load(key); ok {
		return id.(Identity), nil
	}
	if id, ok := p.files.find(p, v); ok {
		p.known.Store(key, id)
		return id, nil
	}
	if p.isForeign(v) {
		return p.remember(key, p.identifyForeign, v)
	}
	kept := p.files.keep(p, v)
	id, err := p.askOrRead(v, key)
	if err != nil || kept == nil {
		kept.drop()
		return id, err
	}
	p.files.remember(v, kept, id)
	return id, nil
}

// remember identifies the file of v, and keeps the answer.
func (p *Process) remember(key fileKey, identify func(VMA) (Identity, error), v VMA) (Identity, error) {
	id, err := identify(v)
	if err != nil {
		return Identity{}, err
	}
	p.known.Store(key, id)
	return id, nil
}

// askOrRead asks the kernel what the file of v is, and looks for itself if it does not know.
//
// The kernel reads what is mapped there when it is asked, which may have become a page of a
// file system that does not answer since v was looked at. So whoever may open mapped files by
// themselves does that, and reads the one that was opened.
func (p *Process) askOrRead(v VMA, key fileKey) (Identity, error) {
	if !p.opensMapped(v) {
		if id, ok, err := p.fromKernel(v); ok || err != nil {
			return id, err
		}
	}
	id, err := p.fromFile(v)
	if err != nil {
		return Identity{}, err
	}
	if id.Reason == reason.FileUnresponsive || id.isMissed() && aside.Available() {
		// The last way is to touch memory.
		return p.remember(key, p.identifyForeign, v)
	}
	if id.isMissed() {
		h, ok, err := p.header(v)
		if ok && err == nil {
			id, err = p.fromMemory(h, id.Reason)
		}
		if err != nil {
			return Identity{}, err
		}
	}
	p.known.Store(key, id)
	return id, nil
}

// isMissed reports whether memory may show more than the file did. It does not where the file
// was read, and has no notes.
func (id *Identity) isMissed() bool {
	switch id.Reason {
	case reason.NotAFile, reason.TooLarge, reason.HashBudget, reason.FileWritten:
		return false
	}
	return id.ID.IsZero()
}

// opensMapped reports whether this process may open the files that p maps by their addresses,
// also if there is another one at those of v by now.
func (p *Process) opensMapped(v VMA) bool {
	if mounts.TrustsAll() {
		return false // it may wait
	}
	fd, err := openMapFile(p, v)
	if err == nil {
		syscall.Close(fd)
	}
	return !errors.Is(err, os.ErrPermission)
}

// fromKernel asks the kernel for the build ID; ok is false when it has none.
func (p *Process) fromKernel(v VMA) (id Identity, ok bool, err error) {
	if !p.query {
		return Identity{}, false, nil
	}
	q, err := p.querier()
	if err != nil {
		return Identity{}, false, err
	}
	defer q.release()
	b, err := q.buildIDOf(v)
	if len(b) == 0 || err != nil {
		return Identity{}, false, err
	}
	gnu, err := buildid.New(buildid.GNU, b)
	info := buildid.Info{ID: gnu, Where: buildid.InSegment, ELF: true}
	return Identity{Info: info, Door: DoorQuery}, err == nil, err
}

// fromFile reads the file of v.
func (p *Process) fromFile(v VMA) (Identity, error) {
	f, why, err := p.openFile(v)
	if f == nil {
		return Identity{Reason: why}, err
	}
	defer f.Close()
	info, err := buildid.ReadContext(p.ctx, f)
	switch {
	case p.ctx.Err() != nil:
		return Identity{}, p.ctx.Err()
	case errors.Is(err, buildid.ErrChanging):
		return Identity{Reason: reason.FileWritten}, nil
	case errors.Is(err, buildid.ErrFormat):
		return Identity{Reason: reason.FileDamaged}, nil
	case err != nil:
		return Identity{Reason: reason.FileGone}, nil
	case !info.ELF && v.Kind() != KindFile:
		// Memory that happens to be shared: its content is no program's file.
		return Identity{Reason: reason.Anonymous}, nil
	}
	if info.ID.IsZero() {
		return Identity{Reason: WhyNoID(info)}, nil
	}
	return Identity{Info: info, Door: f.Door}, nil
}

// WhyNoID returns why a file that was read has no ID: it has no notes, and its code was not
// hashed.
func WhyNoID(info buildid.Info) reason.Reason {
	switch info.Where {
	case buildid.TooLarge:
		return reason.TooLarge
	case buildid.OverBudget:
		return reason.HashBudget
	}
	return reason.FileDamaged // its headers speak of code that is not there
}

// fromMemory reads the identity of the ELF file that is mapped from v on. Without
// one, or if the memory may not be read, the reason is why.
//
// The process can have put other pages there than those of the file, and back again. So all that was read
// must be the file's before and after it is read once more.
func (p *Process) fromMemory(v VMA, why reason.Reason) (Identity, error) {
	mem, err := p.readMemory()
	switch {
	case errors.Is(err, os.ErrPermission):
		return Identity{Reason: why}, nil
	case err != nil:
		return Identity{}, err
	}
	defer mem.Close()
	var info buildid.Info
	for i := range 2 {
		noted := &notedReads{ReaderAt: mem}
		again, err := buildid.ReadMemory(noted, v.Start)
		if err != nil || again.ID.IsZero() || i > 0 && again != info {
			return Identity{Reason: why}, nil
		}
		info = again
		if ok, err := p.areOfFile(v, noted.pages); !ok {
			return Identity{Reason: why}, err
		}
	}
	return Identity{Info: info, Door: DoorMemory}, nil
}

// notedReads notes which pages are read.
type notedReads struct {
	io.ReaderAt
	pages []Pages
}

func (r *notedReads) ReadAt(b []byte, at int64) (int, error) {
	page := addr.Abs(os.Getpagesize())
	start := addr.Abs(at) &^ (page - 1)
	n, err := r.ReaderAt.ReadAt(b, at)
	r.pages = append(r.pages, Pages{start, (addr.Abs(at) + addr.Abs(n) + page - 1) &^ (page - 1)})
	return n, err
}

// areOfFile reports whether pages of p are those of the file that v maps, or of the vdso, and none is the
// process's own.
func (p *Process) areOfFile(v VMA, pages []Pages) (bool, error) {
	list, err := p.list(0)
	if err != nil {
		return false, err
	}
	var of []VMA
	for _, r := range pages {
		for at := r.Start; at < r.End; {
			i := slices.IndexFunc(list, func(w VMA) bool { return w.Start <= at && at < w.End })
			if i < 0 {
				break // what is not mapped was not read
			}
			w := list[i]
			isVDSO := v.Kind() == KindVDSO && w.Kind() == KindVDSO && w.Start == v.Start && w.End == v.End
			if !isVDSO && (!w.sameFile(v) || !p.isOneFile(w, v)) {
				return false, nil
			}
			of, at = append(of, w), w.End
		}
	}
	own, err := p.Own(of)
	if errors.Is(err, os.ErrProcessDone) {
		return false, err
	}
	for _, o := range own {
		for _, own := range o.Pages {
			if slices.ContainsFunc(pages, func(r Pages) bool { return r.Start < own.End && own.Start < r.End }) {
				return false, nil
			}
		}
	}
	return err == nil, nil
}

// isOneFile reports whether two VMAs of one device, inode and name are of one file. On devices without a
// disk they need not be: see fileKey. There the files that root may open by their addresses decide.
// Others look at processes of their own.
func (p *Process) isOneFile(v, w VMA) bool {
	if v.Dev.Major != 0 || v.Start == w.Start {
		return true
	}
	var files [2]syscall.Stat_t
	for i, m := range [...]VMA{v, w} {
		fd, err := openMapFile(p, m)
		if errors.Is(err, os.ErrPermission) {
			return true
		}
		if err != nil {
			return false
		}
		err = syscall.Fstat(fd, &files[i])
		syscall.Close(fd)
		if err != nil {
			return false
		}
	}
	return files[0].Dev == files[1].Dev && files[0].Ino == files[1].Ino
}
