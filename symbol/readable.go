package symbol

// readableNames are names for people that were made. A nil one remembers nothing.
type readableNames map[linkageName]string

// linkageName is what a name for people is made of.
type linkageName struct {
	name string
	isGo bool
}

func (f *Frame) linkageName() linkageName { return linkageName{f.Linkage, f.Lang == LangGo} }

func (n linkageName) readable() string {
	f := Frame{Linkage: n.name}
	if n.isGo {
		f.Lang = LangGo
	}
	return f.Readable()
}

// set sets Func of frames.
func (known readableNames) set(frames []Frame) {
	for i := range frames {
		if known == nil {
			frames[i].Func = frames[i].Readable()
			continue
		}
		key := frames[i].linkageName()
		name, ok := known[key]
		if !ok {
			name = key.readable()
			known[key] = name
		}
		frames[i].Func = name
	}
}
