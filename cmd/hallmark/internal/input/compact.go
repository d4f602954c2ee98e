package input

import (
	"fmt"

	"hallmark/cmd/hallmark/internal/perffile"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/profile/compact"
)

// ReadCompact is Read for who looks at a profile, and changes nothing but symbols: a pprof profile
// is decoded as it arrives, and takes a part of the memory.
func (in *Reader) ReadCompact(e *verb.Env, name string) (*compact.Profile, error) {
	p, err := in.readCompactAny(e, name)
	return p, AdviseSize(DescribeKind(name, err))
}

func (in *Reader) readCompactAny(e *verb.Env, name string) (*compact.Profile, error) {
	o, err := in.Options()
	if err != nil {
		return nil, err
	}
	rec, rest, err := perffile.Find(e.Stdin, name, o.MaxSize)
	if err != nil {
		return nil, err
	}
	if rec != nil {
		defer rec.Close()
		in.limits = o.Limits(rec.Size)
		all, err := in.convertPerf(e, rec, false)
		if err != nil {
			return nil, err
		}
		return compact.FromPprof(all[0])
	}
	other, err := findOther(name, &rest)
	if err != nil {
		return nil, err
	}
	if other != nil {
		defer other.close()
		all, err := in.convertOther(other, o)
		if err == nil {
			all, err = in.identifyAll(perffile.InputName(name), all)
		}
		if err != nil {
			return nil, err
		}
		return compact.FromPprof(all[0])
	}
	if err := in.forRecordings(name); err != nil {
		return nil, err
	}
	verb.CollectSoon()
	var p *compact.Profile
	if rest == nil {
		p, err = compact.ReadFile(name, o)
	} else if p, err = compact.Read(rest, o); err != nil {
		err = fmt.Errorf("%s: %w", perffile.InputName(name), err)
	}
	if err != nil {
		return nil, err
	}
	return in.identifyCompact(perffile.InputName(name), p)
}
