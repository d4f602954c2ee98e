package fromperf

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/unwind"
)

// TestPlacesFollowTheMappings asks for the same addresses again and again, while what is
// mapped there changes.
func TestPlacesFollowTheMappings(t *testing.T) {
	p := newReplay(nil, Options{})
	mmap := func(pid uint32, name string, offset addr.Offset) {
		p.mmap(&perfdata.Mmap2{Owner: pid, Start: 0x1000, Size: 0x1000, Offset: offset, Prot: perfdata.ProtExec, Name: name})
	}
	expect := func(what string, pid uint32, name string, at uint64, why reason.Reason) {
		t.Helper()
		for range 2 {
			got := p.known.all[p.place(p.process(pid), 0x1010, perfdata.ModeUser)]
			if got.why != why || got.at != at || (got.file == nil) != (name == "") || name != "" && got.file.name != name {
				t.Errorf("%s: %+v", what, got)
			}
		}
	}
	expect("nothing is mapped", 1, "", 0, reason.NotMapped)
	expect("nothing is mapped", 2, "", 0, reason.NotMapped)
	mmap(1, "/a", 0x5000)
	expect("mapped", 1, "/a", 0x5010, reason.None)
	expect("another process", 2, "", 0, reason.NotMapped)
	p.task(&perfdata.Task{ParentPID: 1, ParentTID: 1, ChildPID: 3, ChildTID: 3})
	expect("forked", 3, "/a", 0x5010, reason.None)
	mmap(3, "/b", 0)
	expect("mapped over it", 3, "/b", 0x10, reason.None)
	expect("in the parent", 1, "/a", 0x5010, reason.None)
	mmap(1, "/a", 0x6000)
	expect("elsewhere in the file", 1, "/a", 0x6010, reason.None)
	p.comm(&perfdata.Comm{OwnerPID: 1, OwnerTID: 1, Exec: true})
	expect("executed", 1, "", 0, reason.NotMapped)

	inKernel := func() place { return p.known.all[p.place(p.process(1), 0x1010, perfdata.ModeKernel)] }
	if got := inKernel(); got.why != reason.KernelHidden {
		t.Errorf("kernel without mappings: %+v", got)
	}
	p.ksymbol(&perfdata.Ksymbol{Addr: 0x1000, Size: 0x100, Name: "bpf_prog"})
	if got := inKernel(); got.program != "bpf_prog" {
		t.Errorf("generated code: %+v", got)
	}
	mmap(perfdata.NoTask, "[kernel.kallsyms]_text", 0)
	if got := inKernel(); got.file == nil || got.at != 0x10 {
		t.Errorf("kernel: %+v", got)
	}
}

// TestNobodyHasNoMappings has processes with the number 0, as all have that are outside of the
// PID namespace that perf recorded in: one's mappings and name are not another's.
func TestNobodyHasNoMappings(t *testing.T) {
	p := newReplay(nil, Options{})
	tell := func() {
		p.comm(&perfdata.Comm{Name: "a", Exec: true})
		p.mmap(&perfdata.Mmap2{Start: 0x1000, Size: 0x1000, Prot: perfdata.ProtExec, Name: "/a"})
		p.task(&perfdata.Task{ChildPID: 0, ChildTID: 0})
		p.task(&perfdata.Task{ChildPID: 5, ChildTID: 5})
	}
	tell()
	if got := p.process(perfdata.Idle); got.name != idleName || !got.space.IsEmpty() {
		t.Errorf("nobody is %+v", got)
	}
	tell()
	for pid, want := range map[uint32]reason.Reason{perfdata.Idle: reason.Outside, 5: reason.NotMapped} {
		if got := p.known.all[p.place(p.process(pid), 0x1010, perfdata.ModeUser)]; got != (place{why: want}) {
			t.Errorf("process %d: %+v, want %v", pid, got, want)
		}
	}
	if got := p.process(5); got.name != "" {
		t.Errorf("a child of somebody outside is called %q", got.name)
	}
}

// TestStacksComeBack numbers stacks that are parts of each other.
func TestStacksComeBack(t *testing.T) {
	s := newStacks()
	byFP := profile.Walk{End: unwind.FramePointers, Methods: profile.Methods(0).With(unwind.ByFP)}
	walks := []profile.Walk{{}, byFP}
	stacks := [][]uint32{{7}, {8, 7}, {7, 8}, {0, 0, 7}, {0}, {}, {1 << 20, 8, 7}}
	for place := range uint32(3 * maxListed) {
		stacks = append(stacks, []uint32{100 + place, 8, 7})
	}
	numbers := map[uint32]bool{}
	for range 2 {
		for _, walk := range walks {
			for _, stack := range stacks {
				n := s.number(stack, walk)
				numbers[n] = true
				if got, w := s.appendTo(nil, n); !slices.Equal(got, stack) || w != walk {
					t.Errorf("%v %v came back as %v %v", stack, walk, got, w)
				}
			}
		}
	}
	if len(numbers) != len(walks)*len(stacks) {
		t.Errorf("%d numbers", len(numbers))
	}
}

// TestGuests has samples and call chains of virtual machines and of a hypervisor: an address of
// theirs is in this kernel's code, or in a file of the process, by chance.
func TestGuests(t *testing.T) {
	for name, test := range map[string]struct {
		mode  perfdata.Mode
		chain []uint64
		want  reason.Reason
	}{
		"kernel":                {perfdata.ModeKernel, nil, reason.None},
		"user":                  {perfdata.ModeUser, nil, reason.None},
		"unknown":               {perfdata.ModeUnknown, nil, reason.None},
		"guest's kernel":        {perfdata.ModeGuestKernel, nil, reason.Guest},
		"guest's user":          {perfdata.ModeGuestUser, nil, reason.Guest},
		"hypervisor":            {perfdata.ModeHypervisor, nil, reason.Guest},
		"chain, kernel":         {perfdata.ModeKernel, []uint64{perfdata.ContextKernel, 0x1010}, reason.None},
		"chain, guest":          {perfdata.ModeGuestKernel, []uint64{perfdata.ContextGuest, 0x1010}, reason.Guest},
		"chain, guest's kernel": {perfdata.ModeGuestKernel, []uint64{perfdata.ContextGuestKernel, 0x1010}, reason.Guest},
		"chain, guest's user":   {perfdata.ModeGuestUser, []uint64{perfdata.ContextGuestUser, 0x1010}, reason.Guest},
		"chain, hypervisor":     {perfdata.ModeHypervisor, []uint64{perfdata.ContextHypervisor, 0x1010}, reason.Guest},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "perf.data")
			out, err := os.Create(file)
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			w, err := perfdata.NewWriter(out, perfdata.WriterOptions{})
			if err != nil {
				t.Fatal(err)
			}
			e := &perfdata.Event{Name: "cycles", IDs: []uint64{11}, Attr: perfdata.Attr{Flags: perfdata.AttrSampleIDAll,
				Fields: perfdata.SampleIP | perfdata.SampleTID | perfdata.SampleTime | perfdata.SampleCallchain | perfdata.SampleIdentifier}}
			if err := w.AddEvent(e); err != nil {
				t.Fatal(err)
			}
			id := perfdata.ID{Event: 11, PID: 7, TID: 7, Time: 1}
			for _, r := range []perfdata.Record{
				&perfdata.Mmap2{ID: perfdata.ID{Event: 11}, Type: perfdata.TypeMmap2, Owner: perfdata.NoTask, Start: 0x1000, Size: 0x1000, Prot: perfdata.ProtExec, Name: "[kernel.kallsyms]_text"},
				&perfdata.Mmap2{ID: perfdata.ID{Event: 11}, Type: perfdata.TypeMmap2, Owner: 7, Thread: 7, Start: 0x1000, Size: 0x1000, Prot: perfdata.ProtExec, Name: "/a"},
				&perfdata.Sample{ID: perfdata.ID{Event: 11, PID: id.PID, TID: id.TID, Time: id.Time, Misc: uint16(test.mode)}, IP: 0x1010, Callchain: test.chain},
			} {
				if err := w.Write(r, e); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			p, _ := readFile(t, file, Options{})
			if len(p.Location) != 1 {
				t.Fatalf("%d places, want one:\n%v", len(p.Location), p)
			}
			isGuest := strings.HasPrefix(p.Location[0].Mapping.File, "["+reason.Guest.Code()+"]")
			if isGuest != (test.want == reason.Guest) {
				t.Errorf("it is in %s", p.Location[0].Mapping.File)
			}
		})
	}
}
