package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/server/api"
)

// pressed is when a test of this process has pressed Ctrl-C last.
var pressed struct {
	sync.Mutex
	at time.Time
}

// pressCtrlC sends SIGINT to this process, later than what is taken for the same wish as the last one.
func pressCtrlC(t *testing.T) {
	pressed.Lock()
	defer pressed.Unlock()
	time.Sleep(time.Until(pressed.at.Add(1500 * time.Millisecond)))
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Error(err)
	}
	pressed.at = time.Now()
}

// TestInterruptedPush presses Ctrl-C while a file is sent: it is neither sent nor refused.
func TestInterruptedPush(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/plan" {
			if err := json.NewEncoder(w).Encode(api.Planned{Files: []api.PlannedFile{{Action: api.Upload}}}); err != nil {
				t.Error(err)
			}
			return
		}
		pressCtrlC(t)
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer s.Close()
	var stdout, stderr bytes.Buffer
	e := &verb.Env{Stdout: &stdout, Stderr: &stderr, Stdin: strings.NewReader("")}
	status := run(context.Background(), e, []string{"push", "--server", s.URL, "/proc/self/exe"})
	if status != 130 || stdout.String() != "nothing sent, 0 already there, 0 failed: the next push goes on from here\n" || stderr.String() != "hallmark: interrupted\n" {
		t.Errorf("status %d, %q, %q", status, &stdout, &stderr)
	}
}
