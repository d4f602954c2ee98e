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
	"syscall"
	"testing"

	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/server/api"
)

// TestInterruptedPush presses Ctrl-C while a file is sent: it is neither sent nor refused.
func TestInterruptedPush(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/plan" {
			if err := json.NewEncoder(w).Encode(api.Planned{Files: []api.PlannedFile{{Action: api.Upload}}}); err != nil {
				t.Error(err)
			}
			return
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
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
