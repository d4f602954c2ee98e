package verb

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"hallmark/internal/plaintext"
)

// jsonVersion stands in each object that a verb prints for machines: docs/json.md has what each field
// means. Fields are added in later releases; one that is renamed or removed makes a new version.
const jsonVersion = "2"

// JSONStart is what each object begins with that is written by hand.
const JSONStart = `{"version":` + jsonVersion

// An ObjectWriter writes JSON objects, one a line, with the version in each.
type ObjectWriter struct {
	to   io.Writer
	text bytes.Buffer
	enc  *json.Encoder
}

// NewObjectWriter returns a writer of objects to w.
func NewObjectWriter(w io.Writer) *ObjectWriter {
	o := &ObjectWriter{to: w}
	o.enc = json.NewEncoder(plaintext.JSON(&o.text))
	o.enc.SetEscapeHTML(false)
	return o
}

// Indent has the objects span several lines.
func (o *ObjectWriter) Indent() { o.enc.SetIndent("", "  ") }

// Write writes the object that v is in JSON, which has fields.
func (o *ObjectWriter) Write(v any) error {
	o.text.Reset()
	if err := o.enc.Encode(v); err != nil {
		return err
	}
	start, rest, found := bytes.Cut(o.text.Bytes(), []byte{'"'})
	if !found || start[0] != '{' {
		panic("cli: no object with fields")
	}
	version := JSONStart[1:] + ","
	if len(start) > 1 { // indented
		version = "\n  \"version\": " + jsonVersion + ","
	}
	object := append(append(append([]byte{'{'}, version...), start[1:]...), '"')
	_, err := o.to.Write(append(object, rest...))
	return err
}

// Failure is the object of a verb that failed.
type Failure struct {
	Error string `json:"error"`
}

// WriteFailure prints the error of a verb as an object where its output is JSON. Output that
// goes to a file leaves standard output to a command, or alone.
func WriteFailure(e *Env, cmd *cobra.Command, err error) {
	asJSON, output := cmd.Flags().Lookup("json"), cmd.Flags().Lookup("output")
	if asJSON == nil || asJSON.Value.String() != "true" || output != nil && output.Value.String() != "-" {
		return
	}
	_ = WriteObject(e.Stdout, Failure{err.Error()}) // Main reports that it cannot be written
}

// WriteObjects writes an object for each value of a list.
func WriteObjects[T any](w io.Writer, list []T) error {
	out := NewObjectWriter(w)
	for _, v := range list {
		if err := out.Write(v); err != nil {
			return err
		}
	}
	return nil
}

// WriteObject writes one object.
func WriteObject(w io.Writer, v any) error { return NewObjectWriter(w).Write(v) }
