package store

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// TestDamagedLists flips each bit of the lists of a store: none of them is read as another one.
func TestDamagedLists(t *testing.T) {
	m := &Manifest{Version: manifestVersion, Used: "2026-11-29", Files: []File{{Object: hashOf("x"), Size: 12, Origins: []Origin{{Trust: CI, Path: "/bin/x"}}}}}
	for want, got := range map[any]any{m: new(Manifest), &SourceFile{Path: "/a", Object: hashOf("y")}: new(SourceFile), &Profile{ID: hashOf("z"), Title: "t"}: new(Profile)} {
		b, err := encodeSealed(want)
		if err != nil {
			t.Fatal(err)
		}
		if err := decodeSealed(b, got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, %v", got, err)
		}
		var old bytes.Buffer // what servers of before wrote
		if err := json.NewEncoder(&old).Encode(want); err != nil || decodeSealed(old.Bytes(), got) != nil {
			t.Error("a list without a checksum is refused", err)
		}
		refused := 0
		for at := range b {
			for bit := range 8 {
				damaged := bytes.Clone(b)
				damaged[at] ^= 1 << bit
				again := reflect.New(reflect.TypeOf(want).Elem()).Interface()
				if decodeSealed(damaged, again) != nil {
					refused++
				} else if !reflect.DeepEqual(again, want) {
					t.Errorf("bit %d of byte %d: %s", bit, at, damaged)
				}
			}
		}
		if refused < 8*(len(b)-sealSize) {
			t.Errorf("only %d of %d are refused", refused, 8*len(b))
		}
	}
}
