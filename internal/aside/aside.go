// Package aside asks questions in another process, which can be left behind.
//
// A thread that waits for the server of a file system (FUSE, a network) may wait for ever, and
// neither a signal nor the end of its process helps: a process ends when its last thread has.
// So what may wait so is done in a helper, the same executable in a process of its own, which
// is asked over a socket. It is started by the first question, and ends soon after the last
// answer. An answer that does not come in time is given up, and so is the helper with it when
// it does not answer at all any more. On a busy machine, where the helper has work and too little
// CPU time, an answer may take longer, within bounds.
//
// A program whose main calls [Serve] first can have a helper. In others no question is asked:
// every answer is [ErrUnanswered].
package aside

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"hallmark/internal/mounts"
)

// ErrUnanswered says that no answer came in time, or that nobody could be asked. The error that
// is returned says why: a silent server, a busy machine ([ErrBusy]), no helper.
var ErrUnanswered = errors.New("no answer")

// A RemoteError is the error of a question that was answered.
type RemoteError struct {
	Text  string
	Errno syscall.Errno // 0 where it was another error
}

// Error returns what the helper said.
func (e *RemoteError) Error() string { return e.Text }

// Unwrap returns the number of the error, so that errors.Is knows it.
func (e *RemoteError) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return e.Errno
}

// helperName is the name under which the copy of the executable is started.
const helperName = "hallmark-asks-aside"

// helperFD is the helper's end of the socket.
const helperFD = 3

var available atomic.Bool

// Serve allows this process to have a helper. In a process that was started to be one it
// answers until nobody asks any more, and does not return. It must be called first thing in
// main.
func Serve() {
	if os.Args[0] != helperName {
		available.Store(true)
		mounts.LeaveDirs()
		return
	}
	available.Store(false)
	mounts.TrustAll()
	syscall.CloseOnExec(helperFD)
	serve(os.NewFile(helperFD, "questions"))
	os.Exit(0)
}

// Available reports whether questions can be asked.
func Available() bool { return available.Load() }

// question and answer are what goes over the socket.
type question struct {
	Number uint64
	Name   string // of the function; "" to close what the answer of this number has kept
	Body   []byte
}

type answer struct {
	Number uint64
	Body   []byte
	Keeps  bool // a file is open
	Failed bool
	Text   string
	Errno  syscall.Errno
}

// functions are what a helper can be asked, by their names.
var functions = map[string]func(*kept, []byte) ([]byte, error){}

// kept is what a function has the helper keep for later questions.
type kept struct{ content Content }

// A Content is a file that a helper keeps open.
type Content interface {
	io.ReaderAt
	io.Closer
}

// A Function is asked with a Q and answers with an A. Both are plain values for encoding/gob.
type Function[Q, A any] struct{ name string }

// New gives a function a name. It is for variables of packages, so that the helper knows the
// same functions.
func New[Q, A any](name string, f func(Q) (A, error)) Function[Q, A] {
	serveAs(name, func(_ *kept, q Q) (A, error) { return f(q) })
	return Function[Q, A]{name}
}

// Named returns a function that has yet to be given its name, by Answer: one that asks itself.
func Named[Q, A any](name string) Function[Q, A] { return Function[Q, A]{name} }

// Answer gives a function the name. The result is for a variable of a package.
func (f Function[Q, A]) Answer(answer func(Q) (A, error)) bool {
	New(f.name, answer)
	return true
}

// NewOpener gives a function a name that opens a file, which stays open in the helper.
func NewOpener[Q, A any](name string, f func(Q) (A, Content, error)) Opener[Q, A] {
	serveAs(name, func(k *kept, q Q) (A, error) {
		a, content, err := f(q)
		k.content = content
		return a, err
	})
	return NamedOpener[Q, A](name)
}

// NamedOpener is Named for an Opener.
func NamedOpener[Q, A any](name string) Opener[Q, A] {
	return Opener[Q, A]{Function[Q, A]{name}}
}

// Answer is Function.Answer.
func (f Opener[Q, A]) Answer(answer func(Q) (A, Content, error)) bool {
	NewOpener(f.function.name, answer)
	return true
}

func serveAs[Q, A any](name string, f func(*kept, Q) (A, error)) {
	functions[name] = func(k *kept, body []byte) ([]byte, error) {
		var q Q
		if err := decode(body, &q); err != nil {
			return nil, err
		}
		a, err := f(k, q)
		if err != nil {
			return nil, err
		}
		return encode(&a)
	}
}

// Ask asks the function in a helper. about names what may not answer, a file system for
// instance: once it did not, it is not asked again for a while.
func (f Function[Q, A]) Ask(about string, q Q) (a A, err error) {
	_, a, err = f.ask(about, q)
	return a, err
}

func (f Function[Q, A]) ask(about string, q Q) (r *reply, a A, err error) {
	body, err := encode(&q)
	if err != nil {
		return nil, a, err
	}
	if r, err = ask(about, question{Name: f.name, Body: body}); err != nil {
		return nil, a, err
	}
	return r, a, decode(r.Body, &a)
}

// An Opener is a Function that opens a file.
type Opener[Q, A any] struct{ function Function[Q, A] }

// Ask asks the function, and returns the file for the caller to close, nil where the function
// opened none.
func (f Opener[Q, A]) Ask(about string, q Q) (a A, file *File, err error) {
	r, a, err := f.function.ask(about, q)
	if err != nil {
		return a, nil, err
	}
	if !r.Keeps {
		return a, nil, nil
	}
	r.helper.keep()
	return a, &File{helper: r.helper, number: r.Number, about: about}, nil
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(v); err != nil {
		return nil, fmt.Errorf("asking a helper: %w", err)
	}
	return b.Bytes(), nil
}

func decode(b []byte, v any) error {
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(v); err != nil {
		return fmt.Errorf("asking a helper: %w", err)
	}
	return nil
}
