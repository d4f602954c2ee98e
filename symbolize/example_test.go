package symbolize_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"hallmark/symbolize"
)

// Give functions and lines to the frames of a crash report. No file with this build ID is here, so the text
// stays as it is, and the summary has the reason.
func ExampleFilter_Copy() {
	report := "    #0 0x55d0c0401130  (/usr/bin/prog+0x1130) (BuildId: 00112233445566778899aabbccddeeff00112233)\n"
	var f symbolize.Filter
	summary, err := f.Copy(context.Background(), os.Stdout, strings.NewReader(report))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d of %d frames got a function\n", summary.Symbolized, summary.Frames)
	// Output:
	// #0 0x55d0c0401130  (/usr/bin/prog+0x1130) (BuildId: 00112233445566778899aabbccddeeff00112233)
	// 0 of 1 frames got a function
}
