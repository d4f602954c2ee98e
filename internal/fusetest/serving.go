package fusetest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// serving is the server in its process.
type serving struct {
	connection *os.File
	dir        string
	options    Options
	begun      chan struct{} // closed when the kernel has begun the connection

	quiet atomic.Int32 // one of the following
	once  sync.Once    // of the end

	mu      sync.Mutex // of what follows
	nodes   map[uint64]*node
	names   map[string]*node
	handles map[uint64]*handle
	last    uint64 // number of a node or handle
}

// The kinds of requests that are not answered.
const (
	answersAll = iota
	silentReads
	silentAll
)

// A node is a file that the kernel knows. As with sshfs, it belongs to the name, whatever file
// has that on the server's side.
type node struct {
	id      uint64
	name    string // "" when it has none any more
	lookups uint64 // that the kernel has not forgotten
}

type handle struct {
	file *os.File
	node uint64
}

func newServing(connection *os.File, dir string, o Options) *serving {
	return &serving{
		connection: connection, dir: dir, options: o, begun: make(chan struct{}),
		nodes: map[uint64]*node{}, names: map[string]*node{}, handles: map[uint64]*handle{}, last: rootNode,
	}
}

// serve answers requests until the connection ends.
func (s *serving) serve() error {
	buf := make([]byte, requestSize)
	for {
		n, err := s.connection.Read(buf)
		switch {
		case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.EINTR): // the request was interrupted
			continue
		case errors.Is(err, syscall.ENODEV), errors.Is(err, os.ErrClosed): // unmounted, or this process has died for its test
			return nil
		case err != nil:
			return err
		}
		request := buf[:n]
		var h inHeader
		if !read(&request, &h) {
			return errors.New("a request without a header")
		}
		if quiet := s.quiet.Load(); quiet == silentAll || quiet == silentReads && h.Opcode == opRead {
			continue
		}
		out, err := s.handle(&h, request)
		if h.Opcode == opForget || h.Opcode == opBatchForget || h.Opcode == opInterrupt {
			continue // these have no answer
		}
		if err := s.answer(h.Unique, out, err); err != nil {
			return err
		}
		if h.Opcode == opInit {
			close(s.begun)
		}
	}
}

// answer answers a request.
func (s *serving) answer(unique uint64, out []byte, failed error) error {
	h := outHeader{Unique: unique, Len: outHeaderSize}
	if failed != nil {
		out, h.Error = nil, -int32(errnoOf(failed))
	}
	h.Len += uint32(len(out))
	_, err := s.connection.Write(append(bytesOf(&h), out...))
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, os.ErrClosed) { // nobody waits any more
		return nil
	}
	return err
}

func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}

// handle does what a request asks for.
func (s *serving) handle(h *inHeader, body []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch h.Opcode {
	case opInit:
		return s.initialize(body)
	case opForget:
		body = append(bytesOf(h.Node), body...)
		return nil, s.forgotten(body)
	case opBatchForget:
		if len(body) < 8 {
			return nil, syscall.EINVAL
		}
		return nil, s.forgotten(body[8:])
	case opLookup:
		return s.lookup(h.Node, text(body))
	case opGetattr:
		return s.getattr(h.Node)
	case opSetattr:
		return s.setattr(h.Node, body)
	case opOpen:
		return s.open(h.Node, body)
	case opCreate:
		return s.create(h.Node, body)
	case opRead, opReaddir, opWrite, opFallocate, opFsync:
		return s.transfer(h.Opcode, body)
	case opRelease:
		return nil, s.release(body)
	case opUnlink:
		return nil, s.unlink(text(body))
	case opRename:
		return nil, s.rename(body, 8)
	case opRename2:
		return nil, s.rename(body, 16)
	case opStatfs:
		return bytesOf(&statfsOut{Blocks: 1 << 20, Bfree: 1 << 20, Bavail: 1 << 20, Files: 1 << 20, Ffree: 1 << 20, Bsize: pageSize, Namelen: 255, Frsize: pageSize}), nil
	case opOpendir:
		return bytesOf(&openOut{}), nil
	case opReleasedir, opFlush, opAccess, opDestroy:
		return nil, nil
	}
	return nil, syscall.ENOSYS
}

func (s *serving) initialize(body []byte) ([]byte, error) {
	var in initIn
	if !read(&body, &in) {
		return nil, syscall.EINVAL
	}
	if in.Major != major || in.Minor < minor {
		return nil, syscall.EPROTO
	}
	out := initOut{
		Major: major, Minor: minor, MaxReadahead: min(in.MaxReadahead, maxTransfer), Flags: in.Flags & (initBigWrites | initMaxPages),
		MaxBackground: 16, CongestionThreshold: 12, MaxWrite: maxTransfer, TimeGran: 1, MaxPages: maxPages,
	}
	if s.options.FollowTimes {
		out.Flags |= in.Flags & initAutoInval
	}
	return bytesOf(&out), nil
}

// text returns the string that ends at the first 0.
func text(b []byte) string {
	name, _, _ := bytes.Cut(b, []byte{0})
	return string(name)
}

// path returns where a file is on the server's side.
func (s *serving) path(name string) (string, error) {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return "", syscall.EINVAL
	}
	return filepath.Join(s.dir, name), nil
}

// stat returns what is known of a node.
func (s *serving) stat(id uint64) (attr, error) {
	var st syscall.Stat_t
	if id == rootNode {
		err := syscall.Lstat(s.dir, &st)
		return s.options.attrOf(id, &st), err
	}
	n := s.nodes[id]
	if n == nil {
		return attr{}, syscall.ESTALE
	}
	if n.name != "" {
		err := syscall.Lstat(filepath.Join(s.dir, n.name), &st)
		return s.options.attrOf(id, &st), err
	}
	for _, h := range s.handles {
		if h.node == id {
			err := syscall.Fstat(int(h.file.Fd()), &st)
			return s.options.attrOf(id, &st), err
		}
	}
	return attr{}, syscall.ESTALE
}

// entry is the answer that has the kernel know a node by its name.
func (s *serving) entry(name string) (*entryOut, error) {
	path, err := s.path(name)
	if err != nil {
		return nil, err
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return nil, err
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return nil, syscall.ENOENT
	}
	n := s.names[name]
	if n == nil {
		s.last++
		n = &node{id: s.last, name: name}
		s.nodes[n.id], s.names[name] = n, n
	}
	n.lookups++
	out := &entryOut{Node: n.id, Attr: s.options.attrOf(n.id, &st)}
	out.EntryValid, out.EntryValidNsec = split(s.options.Entries)
	out.AttrValid, out.AttrValidNsec = split(s.options.Attributes)
	return out, nil
}

func (s *serving) lookup(parent uint64, name string) ([]byte, error) {
	if parent != rootNode {
		return nil, syscall.ENOTDIR
	}
	out, err := s.entry(name)
	if err != nil {
		return nil, err
	}
	return bytesOf(out), nil
}

// forgotten takes nodes away that the kernel does not know any more.
func (s *serving) forgotten(body []byte) error {
	for one := (forgetOne{}); read(&body, &one); {
		n := s.nodes[one.Node]
		if n == nil {
			continue
		}
		if n.lookups -= min(n.lookups, one.Lookups); n.lookups > 0 {
			continue
		}
		delete(s.nodes, n.id)
		s.unname(n.name)
	}
	return nil
}

// unname takes the name from the node that has it.
func (s *serving) unname(name string) {
	if n := s.names[name]; n != nil {
		n.name = ""
		delete(s.names, name)
	}
}

func (s *serving) getattr(id uint64) ([]byte, error) {
	a, err := s.stat(id)
	if err != nil {
		return nil, err
	}
	out := attrOut{Attr: a}
	out.Valid, out.ValidNsec = split(s.options.Attributes)
	return bytesOf(&out), nil
}

func (s *serving) setattr(id uint64, body []byte) ([]byte, error) {
	var in setattrIn
	if !read(&body, &in) {
		return nil, syscall.EINVAL
	}
	n := s.nodes[id]
	if n == nil || n.name == "" {
		return nil, syscall.ESTALE
	}
	path := filepath.Join(s.dir, n.name)
	if in.Valid&attrMode != 0 {
		if err := syscall.Chmod(path, in.Mode&0o7777); err != nil {
			return nil, err
		}
	}
	if in.Valid&attrSize != 0 {
		if err := os.Truncate(path, int64(in.Size)); err != nil {
			return nil, err
		}
	}
	if err := s.setTimes(path, &in); err != nil {
		return nil, err
	}
	return s.getattr(id)
}

func (s *serving) setTimes(path string, in *setattrIn) error {
	var st syscall.Stat_t
	if in.Valid&(attrAtime|attrMtime) == 0 {
		return nil
	}
	if err := syscall.Lstat(path, &st); err != nil {
		return err
	}
	now := syscall.NsecToTimespec(time.Now().UnixNano())
	times := []syscall.Timespec{st.Atim, st.Mtim}
	switch {
	case in.Valid&attrAtimeNow != 0:
		times[0] = now
	case in.Valid&attrAtime != 0:
		times[0] = syscall.Timespec{Sec: int64(in.Atime), Nsec: int64(in.AtimeNsec)}
	}
	switch {
	case in.Valid&attrMtimeNow != 0:
		times[1] = now
	case in.Valid&attrMtime != 0:
		times[1] = syscall.Timespec{Sec: int64(in.Mtime), Nsec: int64(in.MtimeNsec)}
	}
	return syscall.UtimesNano(path, times)
}

// openFile opens a file of the server's side for a node. Where to write the kernel says itself.
func (s *serving) openFile(path string, id uint64, flags uint32) (*openOut, error) {
	f, err := os.OpenFile(path, int(flags)&(syscall.O_ACCMODE|syscall.O_TRUNC)|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	s.last++
	s.handles[s.last] = &handle{f, id}
	out := &openOut{Handle: s.last}
	if s.options.KeepContent {
		out.Flags |= openKeepCache
	}
	if flags&syscall.O_DIRECT != 0 {
		out.Flags |= openDirect
	}
	return out, nil
}

func (s *serving) open(id uint64, body []byte) ([]byte, error) {
	var in openIn
	if !read(&body, &in) {
		return nil, syscall.EINVAL
	}
	n := s.nodes[id]
	if n == nil || n.name == "" {
		return nil, syscall.ESTALE
	}
	out, err := s.openFile(filepath.Join(s.dir, n.name), id, in.Flags)
	if err != nil {
		return nil, err
	}
	return bytesOf(out), nil
}

func (s *serving) create(parent uint64, body []byte) ([]byte, error) {
	var in createIn
	if !read(&body, &in) {
		return nil, syscall.EINVAL
	}
	name := text(body)
	path, err := s.path(name)
	if parent != rootNode {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_NOFOLLOW|int(in.Flags)&syscall.O_EXCL, os.FileMode(in.Mode&^in.Umask&0o777))
	if err != nil {
		return nil, err
	}
	f.Close()
	entry, err := s.entry(name)
	if err != nil {
		return nil, err
	}
	out, err := s.openFile(path, entry.Node, in.Flags)
	if err != nil {
		return nil, err
	}
	return append(bytesOf(entry), bytesOf(out)...), nil
}

// transfer does what is done with an open file.
func (s *serving) transfer(opcode uint32, body []byte) ([]byte, error) {
	switch opcode {
	case opFsync:
		return nil, nil
	case opFallocate:
		return nil, s.fallocate(body)
	}
	var in transferIn
	if !read(&body, &in) {
		return nil, syscall.EINVAL
	}
	if opcode == opReaddir {
		return s.list(in.Offset, in.Size)
	}
	h := s.handles[in.Handle]
	if h == nil {
		return nil, syscall.EBADF
	}
	if opcode == opWrite {
		n, err := h.file.WriteAt(body[:min(len(body), int(in.Size))], int64(in.Offset))
		return bytesOf(&writeOut{Size: uint32(n)}), err
	}
	buf := make([]byte, min(in.Size, maxTransfer))
	n, err := syscall.Pread(int(h.file.Fd()), buf, int64(in.Offset))
	return buf[:max(n, 0)], err
}

// list returns the names from one of them on, as many as fit.
func (s *serving) list(from uint64, size uint32) ([]byte, error) {
	entries, err := os.ReadDir(s.dir)
	var out []byte
	for at := from; err == nil && at < uint64(len(entries)); at++ {
		name := entries[at].Name()
		one := append(bytesOf(&dirent{Ino: ^uint64(0), Next: at + 1, Len: uint32(len(name)), Type: syscall.DT_REG}), name...)
		for len(one)%8 > 0 {
			one = append(one, 0)
		}
		if len(out)+len(one) > int(size) {
			break
		}
		out = append(out, one...)
	}
	return out, err
}

func (s *serving) fallocate(body []byte) error {
	var in fallocateIn
	if !read(&body, &in) {
		return syscall.EINVAL
	}
	h := s.handles[in.Handle]
	if h == nil {
		return syscall.EBADF
	}
	return syscall.Fallocate(int(h.file.Fd()), in.Mode, int64(in.Offset), int64(in.Length))
}

func (s *serving) release(body []byte) error {
	var in releaseIn
	if !read(&body, &in) {
		return syscall.EINVAL
	}
	if h := s.handles[in.Handle]; h != nil {
		delete(s.handles, in.Handle)
		return h.file.Close()
	}
	return nil
}

func (s *serving) unlink(name string) error {
	path, err := s.path(name)
	if err != nil {
		return err
	}
	if err := syscall.Unlink(path); err != nil {
		return err
	}
	s.unname(name)
	return nil
}

// rename gives the node its new name. Both names follow the fields of the request.
func (s *serving) rename(body []byte, fields int) error {
	if len(body) < fields {
		return syscall.EINVAL
	}
	old, rest, _ := bytes.Cut(body[fields:], []byte{0})
	from, err := s.path(string(old))
	if err != nil {
		return err
	}
	to, err := s.path(text(rest))
	if err != nil {
		return err
	}
	if fields == 16 && bytes.ContainsFunc(body[8:12], func(r rune) bool { return r != 0 }) {
		return syscall.EINVAL // RENAME_EXCHANGE and the like
	}
	if err := syscall.Rename(from, to); err != nil {
		return err
	}
	s.unname(text(rest))
	if n := s.names[string(old)]; n != nil {
		delete(s.names, n.name)
		n.name = text(rest)
		s.names[n.name] = n
	}
	return nil
}

// forget has the kernel forget what it knows of a file.
func (s *serving) forget(name string) error {
	s.mu.Lock()
	n := s.names[name]
	s.mu.Unlock()
	switch {
	case n == nil:
		return nil // it knows nothing
	case s.quiet.Load() != answersAll:
		return errors.New("a silent server would wait for itself here")
	}
	body := bytesOf(&invalInodeOut{Node: n.id})
	h := outHeader{Len: uint32(outHeaderSize + len(body)), Error: notifyInvalInode}
	_, err := s.connection.Write(append(bytesOf(&h), body...))
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}

func (s *serving) silence(reads bool) {
	if reads {
		s.quiet.Store(silentReads)
		return
	}
	s.quiet.Store(silentAll)
}

// die closes the connection.
func (s *serving) die() { s.once.Do(func() { s.connection.Close() }) }
