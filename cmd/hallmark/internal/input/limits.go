package input

import (
	"errors"
	"fmt"
	"io"
	"math"

	pprof "github.com/google/pprof/profile"

	"hallmark/cmd/hallmark/internal/perffile"
	"hallmark/profile"
	"hallmark/profile/firefox"
)

// liftLimits advises on a profile that is too large.
const liftLimits = "--max-size takes it whatever memory it needs, up to so many MiB uncompressed"

// AdviseSize adds what helps to the error of a profile that is too large.
func AdviseSize(err error) error {
	if errors.Is(err, profile.ErrTooLarge) {
		return fmt.Errorf("%w: %s", err, liftLimits)
	}
	return err
}

// CheckCalls is for a profile that got functions: inlined calls make stacks deeper.
func (in *Reader) CheckCalls(name string, p *pprof.Profile) error {
	if err := profile.CheckCalls(p, in.limits.Calls); err != nil {
		return AdviseSize(fmt.Errorf("%s: %w", perffile.InputName(name), err))
	}
	return nil
}

// recordingMemory is what the profile of a recording may take, 0 for any.
func (in *Reader) recordingMemory() int64 {
	if in.limits.Memory == math.MaxInt64 {
		return 0
	}
	return in.limits.Memory
}

// MaxStacks is how many stacks of a thread the format of Firefox may have.
func (in *Reader) MaxStacks() int {
	if in.maxSize != 0 {
		return math.MaxInt32
	}
	return firefox.DefaultMaxStacks
}

// Limited returns a writer that fails behind as many bytes as the names of the profile may
// have: a few bytes of a profile can stand for any number of bytes in other formats.
func (in *Reader) Limited(w io.Writer) io.Writer {
	l := &limited{w, in.limits.Text, in.limits.Text}
	if s, ok := w.(io.Seeker); ok {
		return struct {
			io.Writer
			io.Seeker
		}{l, s}
	}
	return l
}

type limited struct {
	to          io.Writer
	left, limit int64
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, fmt.Errorf("%w: the output has more than %d MiB", profile.ErrTooLarge, l.limit>>20)
	}
	return l.to.Write(p)
}
