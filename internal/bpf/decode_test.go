package bpf

import (
	"encoding/binary"
	"testing"

	"hallmark/buildid"
	"hallmark/unwind"
)

func TestJoinPath(t *testing.T) {
	for chars, want := range map[string]string{
		"gzip\x00bin\x00usr\x00\x00\x00": "/usr/bin/gzip",
		"memfd:x\x00\x00":                "/memfd:x",
		"cut":                            "/cut",
		"":                               "/",
	} {
		if got := joinPath([]byte(chars)); got != want {
			t.Errorf("joinPath(%q) = %q, want %q", chars, got, want)
		}
	}
}

type ignore struct{}

func (ignore) File(File)                          {}
func (ignore) Identity(uint32, buildid.ID)        {}
func (ignore) Stack(StackID, []Frame, unwind.End) {}
func (ignore) Copy(*Copy)                         {}
func (ignore) Space(*Space)                       {}

// TestDispatchRefuses wants an error for events that are cut off or unknown.
func TestDispatchRefuses(t *testing.T) {
	for kind := range uint32(8) {
		if kind == wakeEvent {
			continue
		}
		for _, size := range []int{0, 4, 16} {
			event := binary.NativeEndian.AppendUint32(nil, kind)
			event = append(event, make([]byte, size)...)
			if err := dispatch(event, ignore{}); err == nil {
				t.Errorf("an event of kind %d with %d bytes was taken", kind, len(event))
			}
		}
	}
	many := binary.NativeEndian.AppendUint32(nil, stackEvent)
	many = binary.NativeEndian.AppendUint32(many, 1<<15)
	if err := dispatch(append(many, make([]byte, 64)...), ignore{}); err == nil {
		t.Error("a stack of more frames than bytes was taken")
	}
}
