package defect

import (
	"fmt"
	"strings"
	"testing"
)

func contained(f func()) (err error) {
	defer func() {
		if Escapes() {
			return
		}
		if v := recover(); v != nil {
			err = Caught(v)
		}
	}()
	f()
	return nil
}

func outOfRange(b []byte, i int) byte { return b[i] }

// TestCaught wants the message to name the code that panicked.
func TestCaught(t *testing.T) {
	err := contained(func() { outOfRange(nil, 3) })
	for _, want := range []string{"hallmark has a defect", "report it", "index out of range [3]", "outOfRange (defect_test.go:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if !Is(fmt.Errorf("file: %w", err)) || Is(nil) {
		t.Error("an error that wraps it is one too, and none is not")
	}
	if err := contained(func() {}); err != nil {
		t.Errorf("without a panic: %v", err)
	}
}

// TestEscape wants panics to go on while they escape.
func TestEscape(t *testing.T) {
	undo := Escape(true)
	defer undo()
	defer func() {
		if recover() == nil {
			t.Error("the panic was contained")
		}
		if undo(); Escapes() {
			t.Error("it was not undone")
		}
	}()
	contained(func() { panic("test") })
}
