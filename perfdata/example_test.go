package perfdata_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"

	"hallmark/perfdata"
)

// Read a recording: each record, in the order of time. This one is written here, as a stream, which
// 'perf report -i -' reads as well.
func ExampleReader_Next() {
	var stream bytes.Buffer
	w, err := perfdata.NewWriter(&stream, perfdata.WriterOptions{Pipe: true})
	if err != nil {
		log.Fatal(err)
	}
	if err := w.AddEvent(&perfdata.Event{Name: "cpu-clock", Attr: perfdata.Attr{Type: 1, Fields: perfdata.SampleTID}, IDs: []uint64{1}}); err != nil {
		log.Fatal(err)
	}
	if err := w.Write(&perfdata.Comm{OwnerPID: 4711, OwnerTID: 4711, Name: "gzip", Exec: true}, nil); err != nil {
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}

	r, err := perfdata.NewReader(&stream, perfdata.ReaderOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err) // with the offset in the file
		}
		if c, ok := record.(*perfdata.Comm); ok {
			fmt.Printf("process %d is called %s\n", c.OwnerPID, c.Name)
		}
	}
	// Output: process 4711 is called gzip
}
