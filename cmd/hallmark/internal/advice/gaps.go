package advice

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"hallmark/internal/plaintext"
	"hallmark/reason"
)

// Gaps counts what is missing, by reason.
type Gaps map[reason.Reason]int64

// Add counts a reason.
func (g Gaps) Add(r reason.Reason) {
	if r != reason.None {
		g[r]++
	}
}

// Write says what can be done about the gaps.
func (g Gaps) Write(w io.Writer) {
	for _, r := range slices.Sorted(maps.Keys(g)) {
		if advice := liveAdvice(r); advice != "" && !ofWalks[r] {
			fmt.Fprintf(w, "hallmark: %s (%s): %s\n", r, plaintext.Plural(g[r], "time"), advice)
		}
	}
}

// OnError says what can be done about a process that may not be looked at.
func OnError(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w (%s)", err, liveAdvice(reason.NotPermitted))
	}
	return err
}

// ofWalks are reasons whose advice is on how stacks were walked: addresses that somebody asks
// for come from no walk.
var ofWalks = map[reason.Reason]bool{reason.NotMapped: true, reason.NotExecutable: true, reason.BadOffset: true}
