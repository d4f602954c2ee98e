package bpf

import (
	"maps"
	"testing"

	"github.com/cilium/ebpf"

	"hallmark/internal/testenv"
)

// TestTargetedPrograms loads iterators without the library, and compares what the kernel has then
// with what it has from the library.
func TestTargetedPrograms(t *testing.T) {
	testenv.Root(t)
	testenv.Need(t, checkStock() == nil, "Linux 6.7, which has iterators over VMAs")
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){"take_stock": loadSampler, "list_processes": loadInventory, "list_code": loadInventory} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		if err := setTrusted(spec); err != nil {
			t.Fatal(err)
		}
		opts := loadOptions(spec)
		part := partOf(spec, name)
		c, err := ebpf.NewCollectionWithOptions(part, *opts)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if !isPrepared(part.Programs[name]) || targetOf(part.Programs[name]) == 0 {
			t.Errorf("%s has to be loaded by the library", name)
			continue
		}
		p, err := loadTargeted(part.Programs[name], maps.Clone(c.Maps), targetOf(part.Programs[name]))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		defer p.Close()
		want, got := instructions(t, c.Programs[name]), instructions(t, p)
		if len(want) != len(got) {
			t.Errorf("%s has %d instructions, by the library %d", name, len(got), len(want))
			continue
		}
		for i := range want {
			if want[i] != got[i] {
				t.Errorf("%s: instruction %d is %s, by the library %s", name, i, got[i], want[i])
			}
		}
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		whole, err := c.Programs[name].Info()
		if err != nil {
			t.Fatal(err)
		}
		lines, _ := info.LineInfos()
		wholeLines, _ := whole.LineInfos()
		if info.Name != whole.Name || info.Type != whole.Type || len(lines) != len(wholeLines) || len(lines) == 0 {
			t.Errorf("%s is %v with %d lines, by the library %v with %d", name, info, len(lines), whole, len(wholeLines))
		}
	}
}
