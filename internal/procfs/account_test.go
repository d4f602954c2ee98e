package procfs

import (
	"errors"
	"slices"
	"testing"
)

func TestParseSubordinates(t *testing.T) {
	lookup := func(name string) (string, error) {
		if name == "mallory" {
			return "1001", nil
		}
		return "", errors.New("nobody")
	}
	text := "mallory:100000:65536\n1002:165536:65536\nnobody:1:2\nmallory:x:1\nmallory:1:0\n\n1003:4294967295:5\nmallory:300000"
	want := []subordinate{{1001, 100000, 65536}, {1002, 165536, 65536}, {1003, 4294967295, 5}}
	if got := parseSubordinates(text, lookup); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
