package profile_test

import (
	"bytes"
	"fmt"
	"log"

	"hallmark/buildid"
	"hallmark/profile"
	"hallmark/reason"
)

// Write a profile with one stack of two frames, and read from it which build each frame is from.
func Example() {
	id, err := buildid.Parse("5dc767c02e183bb92c91cd56be96c493d8255f86")
	if err != nil {
		log.Fatal(err)
	}
	gzip := &profile.Binary{ID: id, Path: "/usr/bin/gzip"}
	b := profile.NewBuilder(10e6) // a sample each 10 ms
	b.Add([]profile.Frame{
		{Binary: gzip, Offset: 0x4290},
		{Reason: reason.FileGone, Path: "/tmp/plugin.so", Addr: 0x1120},
	}, &profile.Labels{PID: 4711, Process: "gzip"}, 3, 30e6)
	var file bytes.Buffer
	if err := profile.Write(&file, b.Profile()); err != nil {
		log.Fatal(err)
	}

	p, err := profile.Read(&file, profile.ReadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range p.Sample {
		name, pid := profile.Process(s)
		fmt.Printf("%s (%d): %d samples\n", name, pid, s.Value[0])
		for _, l := range s.Location {
			if id, ok := profile.Identity(l.Mapping); ok {
				fmt.Printf("  %v at offset %v of %s\n", id, profile.FileOffset(l), l.Mapping.File)
			} else {
				fmt.Printf("  unknown, because: %v\n", profile.ReasonOf(l.Mapping))
			}
		}
	}
	// Output:
	// gzip (4711): 3 samples
	//   5dc767c02e183bb92c91cd56be96c493d8255f86 at offset 0x4290 of /usr/bin/gzip
	//   unknown, because: mapped file cannot be reached any more
}
