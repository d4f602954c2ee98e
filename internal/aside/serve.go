package aside

import (
	"encoding/gob"
	"errors"
	"io"
	"os"
	"sync"
)

// server is a helper at work.
type server struct {
	mu   sync.Mutex // of what follows
	out  *gob.Encoder
	kept map[uint64]Content
}

// The functions that every helper has.
const (
	pingName = "aside.ping"
	readName = "aside.read"
)

// readQuestion asks for bytes of what an earlier answer has kept.
type readQuestion struct {
	Number uint64
	Offset int64
	Size   int
}

type readAnswer struct {
	Bytes []byte
	End   bool // io.EOF came with them
}

// serve answers each question as soon as it can, so that one that takes for ever keeps no
// other one waiting.
func serve(socket *os.File) {
	s := serving
	s.out, s.kept = gob.NewEncoder(socket), map[uint64]Content{}
	in := gob.NewDecoder(socket)
	for {
		var q question
		if in.Decode(&q) != nil {
			return // nobody is there any more
		}
		if q.Name == "" {
			s.drop(q.Number)
			continue
		}
		go s.answer(q)
	}
}

func (s *server) answer(q question) {
	a := answer{Number: q.Number}
	k := new(kept)
	body, err := s.call(q, k)
	if err != nil {
		a.Failed, a.Text = true, err.Error()
		errors.As(err, &a.Errno)
	}
	a.Body = body
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.content != nil {
		s.kept[q.Number], a.Keeps = k.content, true
	}
	if s.out.Encode(&a) != nil {
		os.Exit(0)
	}
}

func (s *server) call(q question, k *kept) ([]byte, error) {
	switch q.Name {
	case pingName:
		return nil, nil
	case readName:
		return s.read(q.Body)
	}
	f := functions[q.Name]
	if f == nil {
		return nil, errors.New("no such question: " + q.Name)
	}
	return f(k, q.Body)
}

func (s *server) read(body []byte) ([]byte, error) {
	var q readQuestion
	if err := decode(body, &q); err != nil {
		return nil, err
	}
	content := s.content(q.Number)
	if content == nil {
		return nil, os.ErrClosed
	}
	b := make([]byte, min(q.Size, maxRead))
	n, err := content.ReadAt(b, q.Offset)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return encode(&readAnswer{b[:n], err == io.EOF})
}

func (s *server) content(number uint64) Content {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept[number]
}

// drop closes what an answer has kept, which may take for ever.
func (s *server) drop(number uint64) {
	s.mu.Lock()
	content := s.kept[number]
	delete(s.kept, number)
	s.mu.Unlock()
	if content != nil {
		go content.Close()
	}
}

// Kept returns what the answer of a question has kept, for other functions that are asked
// about it: see [File.Number]. It is nil when that is closed.
func Kept(number uint64) Content { return serving.content(number) }

// serving is this process as a helper.
var serving = new(server)
