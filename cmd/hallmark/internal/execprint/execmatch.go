package execprint

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/identity"
	"hallmark/debuginfo"
	"hallmark/execwatch"
)

// Match is what --match asks for; nothing means everything.
type Match struct {
	heads        []string // of identities
	paths, names map[string]bool
}

// NewMatch reads what is asked for. Text that can be the head of an identity may be a name
// all the same.
func NewMatch(args []string) (*Match, error) {
	m := &Match{paths: map[string]bool{}, names: map[string]bool{}}
	for _, arg := range args {
		switch {
		case arg == "":
			return nil, fmt.Errorf("--match has nothing in it")
		case strings.Contains(arg, "/"):
			if err := m.addPath(arg); err != nil {
				return nil, err
			}
		default:
			if identity.IsHead(arg) {
				m.heads = append(m.heads, arg)
			}
			m.names[arg] = true
		}
	}
	return m, nil
}

// addPath wants what is executed from a path, and what is there by another name.
func (m *Match) addPath(arg string) error {
	path, err := filepath.Abs(arg)
	if err != nil {
		return err
	}
	m.paths[arg], m.paths[path] = true, true
	if real, err := filepath.EvalSymlinks(path); err == nil {
		m.paths[real] = true
	}
	return nil
}

// IsAny reports whether nothing was asked for: every event matches.
func (m *Match) IsAny() bool { return len(m.paths)+len(m.names) == 0 }

// Has reports whether an event is to be printed. A loss always is.
func (m *Match) Has(ev *execwatch.Event) bool {
	if m.IsAny() || ev.Kind == execwatch.Missed || m.names[ev.Name] || m.hasScript(ev.Script) {
		return true
	}
	for _, b := range []*execwatch.Binary{ev.Program, ev.Library} {
		if b != nil && m.names[filepath.Base(b.Path)] {
			return true
		}
	}
	for _, b := range []*execwatch.Binary{ev.Program, ev.Interpreter, ev.Library} {
		if b != nil && (m.paths[b.Path] || m.hasID(b.ID)) {
			return true
		}
	}
	return false
}

// hasScript recognizes a script that was asked for relative to a directory if what is wanted ends
// so: one too many is better than the one that was missed.
func (m *Match) hasScript(script string) bool {
	if script == "" {
		return false
	}
	if m.paths[script] || m.names[filepath.Base(script)] {
		return true
	}
	if filepath.IsAbs(script) {
		return false
	}
	end := filepath.Clean("/" + script) // without the .. that it begins with
	for path := range m.paths {
		if strings.HasSuffix(path, end) {
			return true
		}
	}
	return false
}

func (m *Match) hasID(id buildid.ID) bool {
	return slices.ContainsFunc(m.heads, func(head string) bool { return debuginfo.HasHead(id, head) })
}
