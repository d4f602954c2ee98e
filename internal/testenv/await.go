package testenv

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"
)

// Patience is how long tests wait for what comes at once on a machine with nothing else to do.
const Patience = 2 * time.Minute

// Await waits until seen reports true. If that takes longer than [Patience] on a busy machine,
// time is what the test lacks.
func Await(t testing.TB, what string, seen func() bool) {
	t.Helper()
	for w := BeginWait(); !seen(); time.Sleep(time.Millisecond) {
		if w.Over() {
			w.Lack(t, "%s: not in %v", what, Patience)
		}
	}
}

// A Wait is how long a test has waited for something, and how busy the machine was meanwhile.
type Wait struct {
	since       time.Time
	idle, total uint64 // of the time of all processors, in the kernel's ticks
}

// BeginWait begins to wait.
func BeginWait() Wait {
	w := Wait{since: time.Now()}
	w.idle, w.total = processorTime()
	return w
}

// Over reports whether the test has waited longer than [Patience].
func (w Wait) Over() bool { return time.Since(w.since) > Patience }

// Lack ends the test, which has waited in vain. That is a [Lack] where the machine was busy; of
// one that was idle for half of its time, what did not come was lost, and the test has failed.
func (w Wait) Lack(t testing.TB, format string, args ...any) {
	t.Helper()
	idle, total := processorTime()
	if all := total - w.total; all > 0 && 2*(idle-w.idle) > all {
		t.Fatalf("%s; the machine was idle for %d %% of that time", fmt.Sprintf(format, args...), 100*(idle-w.idle)/all)
	}
	Lack(t, format, args...)
}

// processorTime reads /proc/stat: proc_stat(5). Without it no machine is idle.
func processorTime() (idle, total uint64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	var user, nice, system, wait, irq, softirq, steal uint64
	if _, err := fmt.Sscanf(string(line), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &softirq, &steal); err != nil {
		return 0, 0
	}
	return idle, user + nice + system + idle + wait + irq + softirq + steal
}
