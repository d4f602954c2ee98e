package top

import (
	"bufio"
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// Terminal is a terminal whose keys are read one by one, and whose screen is another one until
// Close.
type Terminal struct {
	in, out *os.File
	before  *term.State
	close   sync.Once
}

// Sequences that terminals know (xterm's): the other screen and back, the cursor, the top left
// corner, and clearing what is right of the cursor or below it.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearRight  = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// OpenTerminal takes a terminal. It is as it was after Close.
func OpenTerminal(in, out *os.File) (*Terminal, error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, err
	}
	t := &Terminal{in: in, out: out, before: before}
	if _, err := io.WriteString(out, enterScreen); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Close makes the terminal what it was. It can be called several times.
func (t *Terminal) Close() {
	t.close.Do(func() {
		io.WriteString(t.out, leaveScreen)
		term.Restore(int(t.in.Fd()), t.before)
	})
}

// size returns the size of the screen.
func (t *Terminal) size() (width, height int) {
	width, height, err := term.GetSize(int(t.out.Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24
	}
	return min(width, 1000), min(height, 1000)
}

// draw draws what the state shows.
func (t *Terminal) draw(s *State) error {
	width, height := t.size()
	var b strings.Builder
	b.WriteString(home)
	lines := s.Screen(width, height)
	for i, line := range lines {
		b.WriteString(line + clearRight)
		if i < len(lines)-1 {
			b.WriteString("\r\n")
		}
	}
	b.WriteString(clearBelow)
	_, err := io.WriteString(t.out, b.String())
	return err
}

// Show shows rounds until a key ends that, rounds end, or ctx is done. States of rounds have Sum
// and Round.
func (t *Terminal) Show(ctx context.Context, s *State, rounds <-chan State) error {
	keys := make(chan rune)
	go readKeys(t.in, keys)
	resized := time.NewTicker(250 * time.Millisecond)
	defer resized.Stop()
	width, height := t.size()
	var waiting *State // the last round while the show is paused
	for {
		if err := t.draw(s); err != nil {
			return err
		}
		for drawn := false; !drawn; {
			select {
			case <-ctx.Done():
				return nil
			case key, ok := <-keys:
				if !ok || s.Key(key) {
					return nil
				}
				if waiting != nil && !s.Paused {
					s.Sum, s.Round, waiting = waiting.Sum, waiting.Round, nil
				}
				drawn = true
			case round, ok := <-rounds:
				if !ok {
					return nil
				}
				if waiting = &round; !s.Paused {
					s.Sum, s.Round, waiting, drawn = round.Sum, round.Round, nil, true
				}
			case <-resized.C:
				w, h := t.size()
				drawn = w != width || h != height
				width, height = w, h
			}
		}
	}
}

// sequences are what terminals send for keys that are no characters.
var sequences = map[string]rune{
	"[A": Up, "[B": Down, "OA": Up, "OB": Down, "[5~": PageUp, "[6~": PageDown,
}

// readKeys sends the keys that are read, until there are no more.
func readKeys(r io.Reader, keys chan<- rune) {
	defer close(keys)
	in := bufio.NewReaderSize(r, 256)
	for {
		key, n, err := in.ReadRune()
		if err != nil {
			return
		}
		if key == utf8.RuneError && n == 1 {
			continue
		}
		if key == escape && in.Buffered() > 0 { // sequences come in one piece
			key = sequence(in)
		}
		if key != 0 {
			keys <- key
		}
	}
}

// sequence returns the key of a sequence, 0 for one that is not known.
func sequence(in *bufio.Reader) rune {
	var text string
	for in.Buffered() > 0 && len(text) < 16 {
		b, err := in.ReadByte()
		if err != nil {
			return 0
		}
		text += string(rune(b))
		if len(text) > 1 && b >= 0x40 && b <= 0x7e {
			break
		}
	}
	return sequences[text]
}
