package debuginfod

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

// Bounds of how slowly a server may send, and of what it can have the client store.
const (
	// A server that sends less than paceBytes in Client.Timeout is given up, as elfutils'
	// client gives it up. So is a server whose bytes add nothing to the file in that time.
	// paceTime is the shortest time for that.
	paceBytes = 100 << 10
	paceTime  = defaultTimeout
	// defaultMaxSize bounds a file where Client.MaxSize does not.
	defaultMaxSize = 4 << 30
	// maxSource bounds a source file.
	maxSource = 64 << 20
	// A file may be maxRatio times as large as what was received for it, and any size up to
	// freeSize. Debug information packs to a quarter or so.
	maxRatio = 100
	freeSize = 16 << 20
	// A download may receive wasteRatio times as many bytes as the file has so far, and wasteFree more.
	// A file that does not pack grows by a thousandth, and the unpacker is 64 KiB behind.
	wasteRatio = 2
	wasteFree  = 256 << 10
)

// receive stores the body of an answer, and gives up when the server is silent or slow.
func (c *Client) receive(ctx context.Context, cancel context.CancelCauseFunc, r *http.Response, k key) error {
	size, most := sizeOf(r), c.MaxSize
	if most == 0 {
		most = defaultMaxSize
	}
	if k.file.isSource() {
		most = min(most, maxSource)
	}
	if size > most {
		return &lastingError{fmt.Errorf("the file of %d bytes is above the limit of %d", size, most)}
	}
	temp, err := c.create(k)
	if err != nil {
		return &lastingError{err}
	}
	defer os.Remove(temp.Name()) // nothing is there any more when it was stored
	defer temp.Close()
	arriving := newArriving(r.Body, c.Timeout, cancel)
	defer arriving.stop()
	d := &download{from: arriving, body: arriving, most: most, isSource: k.file.isSource(), heard: func(n int64) {
		if c.Progress != nil {
			c.Progress(k.id, k.file, n, size)
		}
	}}
	if isPacked(r) {
		if d.body, err = gzip.NewReader(arriving); err != nil {
			return err
		}
	}
	if _, err := io.Copy(temp, d); err != nil {
		return err
	}
	if said := r.Header.Get("X-DEBUGINFOD-SIZE"); k.file.isSource() && said != "" && size != d.n {
		return fmt.Errorf("it sends %d bytes of %d", d.n, size) // nothing else says that a source is whole
	}
	if err := temp.Sync(); err != nil {
		return &lastingError{err}
	}
	// As elfutils' client does it: a debugger compares the time of a source with that of the program.
	if at, err := http.ParseTime(r.Header.Get("Last-Modified")); err == nil {
		if err := os.Chtimes(temp.Name(), time.Now(), at); err != nil {
			return &lastingError{err}
		}
	}
	return c.store(temp.Name(), k)
}

// isPacked reports whether an answer has to be unpacked here. The client asks for gzip by
// itself, to know how much it received.
func isPacked(r *http.Response) bool {
	return r.Header.Get("Content-Encoding") == "gzip" && !r.Uncompressed
}

// sizeOf returns the size of the file in an answer, 0 where it is not known.
func sizeOf(r *http.Response) int64 {
	if n, err := strconv.ParseInt(r.Header.Get("X-DEBUGINFOD-SIZE"), 10, 64); err == nil {
		return max(0, n)
	}
	if isPacked(r) {
		return 0
	}
	return max(0, r.ContentLength)
}

// arriving is the body of an answer as the server sends it. The unpacker reads on until
// something comes of it, and for ever in empty members or blocks. So it is bounded here.
type arriving struct {
	body     io.Reader
	n        int64
	unpacked int64 // what came of it
	silence  *time.Timer
	pace     *time.Timer
	paced    struct{ n, unpacked int64 } // when pace was set
	timeout  time.Duration
}

func newArriving(body io.Reader, timeout time.Duration, cancel context.CancelCauseFunc) *arriving {
	within := max(timeout, paceTime)
	return &arriving{
		body: body, timeout: timeout,
		silence: time.AfterFunc(timeout, func() {
			cancel(fmt.Errorf("it sent nothing for %v: %w", timeout, os.ErrDeadlineExceeded))
		}),
		pace: time.AfterFunc(within, func() {
			cancel(fmt.Errorf("it sent less than %d KiB of a file in %v: %w", paceBytes>>10, within, os.ErrDeadlineExceeded))
		}),
	}
}

func (a *arriving) stop() {
	a.silence.Stop()
	a.pace.Stop()
}

func (a *arriving) Read(b []byte) (int, error) {
	n, err := a.body.Read(b)
	a.n += int64(n)
	if n > 0 {
		a.silence.Reset(a.timeout)
	}
	if a.n-a.paced.n >= paceBytes && a.unpacked > a.paced.unpacked {
		a.paced.n, a.paced.unpacked = a.n, a.unpacked
		a.pace.Reset(max(a.timeout, paceTime))
	}
	if a.n-wasteFree > wasteRatio*a.unpacked {
		return 0, &lastingError{fmt.Errorf("it sends %d bytes that become only %d", a.n, a.unpacked)}
	}
	return n, err
}

// errNoELF is for an answer that is a page of a proxy, for example.
var errNoELF = &lastingError{errors.New("what it sends is no ELF file")}

// download is the file in an answer, bounded.
type download struct {
	from  *arriving
	body  io.Reader // from, or what unpacks it
	n     int64
	magic []byte // the first bytes
	most  int64
	heard func(n int64)

	isSource bool // so it need not be ELF
}

func (d *download) Read(b []byte) (int, error) {
	n, err := d.body.Read(b)
	d.n += int64(n)
	d.from.unpacked = d.n
	if missing := len(elfMagic) - len(d.magic); missing > 0 && !d.isSource {
		d.magic = append(d.magic, b[:min(n, missing)]...)
		if string(d.magic) != elfMagic[:len(d.magic)] {
			return 0, errNoELF
		}
	}
	if d.n > d.most {
		return 0, &lastingError{fmt.Errorf("it sends more than the limit of %d bytes", d.most)}
	}
	if d.n > freeSize && d.n/maxRatio > d.from.n {
		return 0, &lastingError{fmt.Errorf("it sends %d bytes that become more than %d times as many", d.from.n, maxRatio)}
	}
	if n > 0 {
		d.heard(d.n)
	}
	return n, err
}

const elfMagic = "\x7fELF"
