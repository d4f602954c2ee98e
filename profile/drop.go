package profile

import (
	"fmt"
	"regexp/syntax"
	"slices"

	pprof "github.com/google/pprof/profile"
)

// maxDropSteps bounds the work of matching drop_frames and keep_frames: instructions of the two, times the bytes of
// all names of functions. A heap profile of a large program, with the expression that pprof's readers of old formats
// give it, takes a twentieth.
const maxDropSteps = 1 << 33

// DropUninteresting removes from the stacks what the profile says is not worth to be shown, as 'go tool pprof' does:
// a frame whose function matches DropFrames and not KeepFrames, and what it called, unless nothing else has called it.
// It is for profiles with names that are shown, and not to be kept. Where nothing could be removed, a comment says why.
func DropUninteresting(p *pprof.Profile) {
	if p.DropFrames == "" {
		return
	}
	if err := dropUninteresting(p); err != nil {
		p.Comments = append(slices.Clip(p.Comments), "drop_frames and keep_frames are not used: "+err.Error())
	}
}

func dropUninteresting(p *pprof.Profile) error {
	instructions := 0
	for _, text := range []string{p.DropFrames, p.KeepFrames} {
		n, err := countInstructions(text)
		if err != nil {
			return err
		}
		instructions += n
	}
	names := 0
	for _, f := range p.Function {
		names += len(f.Name)
	}
	if names > 0 && instructions > maxDropSteps/names {
		return fmt.Errorf("to match them with %d bytes of names is too much work", names)
	}
	return p.RemoveUninteresting()
}

// countInstructions returns how large the machine for an expression is.
func countInstructions(text string) (int, error) {
	parsed, err := syntax.Parse("^("+text+")$", syntax.Perl)
	if err != nil {
		return 0, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, err
	}
	return len(program.Inst), nil
}
