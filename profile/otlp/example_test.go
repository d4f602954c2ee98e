package otlp_test

import (
	"fmt"

	pprof "github.com/google/pprof/profile"

	"hallmark/profile"
	"hallmark/profile/otlp"
	"hallmark/symbol"
)

// A message arrives with a build ID and an address, and gets the function there.
func ExampleMessage_Symbolize() {
	m := &pprof.Mapping{ID: 1, Start: 0x1000, Limit: 0x9000, Offset: 0x1000, File: "/bin/prog", BuildID: "93ac54aabbccddee00112233445566778899aabb"}
	l := &pprof.Location{ID: 1, Mapping: m, Address: 0x1234}
	bare := &pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}}, Mapping: []*pprof.Mapping{m}, Location: []*pprof.Location{l},
		Sample: []*pprof.Sample{{Location: []*pprof.Location{l}, Value: []int64{3}}},
	}
	sent, err := otlp.FromProfile(bare)
	if err != nil {
		panic(err)
	}
	b, err := sent.Append(nil)
	if err != nil {
		panic(err)
	}

	message, err := otlp.Parse(b, otlp.Options{})
	if err != nil {
		panic(err)
	}
	message.Symbolize(1<<20, func(f otlp.File) []symbol.Result {
		fmt.Printf("%v: %#x\n", f.ID, f.Addresses[0].At)
		return []symbol.Result{{Frames: []symbol.Frame{{Func: "main", File: "prog.c", Line: 12}}}}
	})
	p, err := message.Profile((profile.ReadOptions{}).Limits(int64(len(b))))
	if err != nil {
		panic(err)
	}
	line := p.Sample[0].Location[0].Line[0]
	fmt.Println(line.Function.Name, line.Function.Filename, line.Line)
	// Output:
	// 93ac54aabbccddee00112233445566778899aabb: 0x1234
	// main prog.c 12
}
