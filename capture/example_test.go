package capture_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"hallmark/capture"
	"hallmark/profile"
)

// Record this process for a second, and print the functions that most samples are in. It has no output
// to check: what runs is sampled.
func Example() {
	ctx := context.Background()
	s, err := capture.Start(ctx, capture.Options{PIDs: []int{os.Getpid()}, Duration: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if err := s.Run(ctx); err != nil {
		log.Fatal(err)
	}
	recording, err := s.Finish(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := recording.Symbolize(ctx); err != nil {
		log.Fatal(err)
	}
	samples := map[string]int64{}
	for _, one := range recording.Profile.Sample {
		for call := range profile.Calls(one) { // innermost first
			samples[call.Name()] += one.Value[0]
			break
		}
	}
	for name, n := range samples {
		fmt.Printf("%5d %s\n", n, name)
	}
}
