package view

import (
	"maps"
	"strconv"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/plaintext"
)

// tokens hide names of a profile from the driver, which looks for files of these names when
// it fetches one: a build ID such as ../../* would have it list directories of this machine.
type tokens struct {
	names  []string
	tokens map[string]string
}

// hide replaces the names of p's files by numbers. Equal names get equal numbers.
func (t *tokens) hide(p *pprof.Profile) {
	for _, m := range p.Mapping {
		m.File, m.BuildID = t.token(m.File), t.token(m.BuildID)
	}
}

func (t *tokens) token(name string) string {
	if name == "" {
		return ""
	}
	token, ok := t.tokens[name]
	if !ok {
		token = strconv.Itoa(len(t.names))
		t.names = append(t.names, name)
		if t.tokens == nil {
			t.tokens = map[string]string{}
		}
		t.tokens[name] = token
	}
	return token
}

// restore undoes hide.
func (t *tokens) restore(p *pprof.Profile) {
	for _, m := range p.Mapping {
		m.File, m.BuildID = t.name(m.File), t.name(m.BuildID)
	}
}

func (t *tokens) name(token string) string {
	if token == "" {
		return "" // also of the mapping that the driver adds where there is none
	}
	i, err := strconv.Atoi(token)
	if err != nil || i < 0 || i >= len(t.names) {
		return token
	}
	return t.names[i]
}

// clean replaces what the names in p could do to a terminal, and to the order in which a
// browser shows text. The pages escape HTML themselves.
func clean(p *pprof.Profile) {
	for _, f := range p.Function {
		f.Name, f.SystemName, f.Filename = plaintext.Line(f.Name), plaintext.Line(f.SystemName), plaintext.Line(f.Filename)
	}
	for _, m := range p.Mapping {
		m.File, m.BuildID = plaintext.Line(m.File), plaintext.Line(m.BuildID)
	}
	for _, t := range p.SampleType {
		t.Type, t.Unit = plaintext.Line(t.Type), plaintext.Line(t.Unit)
	}
	for i, c := range p.Comments {
		p.Comments[i] = plaintext.Line(c)
	}
	p.DefaultSampleType, p.DocURL = plaintext.Line(p.DefaultSampleType), plaintext.Line(p.DocURL)
	for _, s := range p.Sample {
		cleanLabels(s)
	}
}

func cleanLabels(s *pprof.Sample) {
	for _, values := range []map[string][]string{s.Label, s.NumUnit} {
		for _, v := range values {
			for i := range v {
				v[i] = plaintext.Line(v[i])
			}
		}
	}
	cleanKeys(s.Label)
	cleanKeys(s.NumLabel)
	maps.DeleteFunc(s.NumUnit, func(key string, _ []string) bool { return plaintext.Line(key) != key })
}

// cleanKeys keeps what labels has under a name of plain text: the driver counts on as many
// units as it finds numbers.
func cleanKeys[V any](labels map[string]V) {
	for key, v := range labels {
		plain := plaintext.Line(key)
		if plain == key {
			continue
		}
		delete(labels, key)
		if _, taken := labels[plain]; !taken {
			labels[plain] = v
		}
	}
}
