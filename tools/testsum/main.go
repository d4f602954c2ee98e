// Command testsum reads what 'go test -json' writes, from standard input, and
// tells what people want to know of it: every failure with its output, every
// test that was skipped and why, the packages as they end, and at last one line
//
//	N passed, N failed, N skipped
//
// Its exit status is 1 when anything failed or when no test ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// event is one line of the stream, see 'go doc test2json'.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64
	Output  string
}

type test struct{ pkg, name string }

type summary struct {
	output                  map[test][]string
	passed, failed, skipped int
	skips                   []string
}

func main() {
	s := summary{output: map[test][]string{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Println(lines.Text()) // what go itself says, of a build that failed for instance
			continue
		}
		s.take(e)
	}
	if err := lines.Err(); err != nil {
		fmt.Println("testsum:", err)
		s.failed++
	}
	s.close()
}

func (s *summary) take(e event) {
	key := test{e.Package, e.Test}
	switch e.Action {
	case "output", "build-output":
		s.output[key] = append(s.output[key], e.Output)
		return
	case "pass":
		s.end(e, &s.passed, "ok  ")
	case "skip":
		if e.Test != "" {
			s.skips = append(s.skips, fmt.Sprintf("%s %s: %s", e.Package, e.Test, why(s.output[key])))
		}
		s.end(e, &s.skipped, "none")
	case "fail", "build-fail":
		fmt.Print(strings.Join(s.output[key], ""))
		s.end(e, &s.failed, "FAIL")
	default:
		return
	}
	delete(s.output, key)
}

// end counts a test, or tells that a package has ended.
func (s *summary) end(e event, count *int, word string) {
	if e.Test != "" {
		*count++
		return
	}
	fmt.Printf("%s  %-36s %6.1fs\n", word, e.Package, e.Elapsed)
	if word == "FAIL" && s.failed == 0 {
		s.failed++ // the package failed by itself: its build, or its TestMain
	}
}

// why finds the reason in the output of a skipped test.
func why(output []string) string {
	for _, line := range slices.Backward(output) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			return line
		}
	}
	return "no reason given"
}

func (s *summary) close() {
	if len(s.skips) > 0 {
		fmt.Printf("\nNOT CHECKED, %d tests:\n  %s\n", len(s.skips), strings.Join(s.skips, "\n  "))
	}
	fmt.Printf("\n%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	if s.failed > 0 || s.passed == 0 {
		os.Exit(1)
	}
}
