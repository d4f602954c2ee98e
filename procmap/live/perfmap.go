package live

import (
	"errors"
	"time"

	"hallmark/addr"
	"hallmark/internal/perfmap"
	"hallmark/reason"
	"hallmark/symbol"
)

// generated returns what finds the names of code that the process generated.
func (p *Process) generated() lookup[addr.Abs] {
	if p.jit == nil {
		p.jit = readPerfMap(p.maps.PID())
	}
	return p.jit
}

func readPerfMap(pid int) lookup[addr.Abs] {
	f, err := perfmap.Open(pid, time.Time{})
	if err != nil {
		return miss[addr.Abs](reason.NoPerfMap)
	}
	defer f.Close()
	m, err := symbol.ReadPerfMap(f)
	switch {
	case errors.Is(err, symbol.ErrPerfMapTooLarge):
		return miss[addr.Abs](reason.MapTooLarge)
	case err != nil:
		return miss[addr.Abs](reason.BadSymbols)
	}
	return m.Lookup
}
