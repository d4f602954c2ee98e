package execwatch

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"hallmark/internal/fstimes"
	"hallmark/internal/leaktest"
	"hallmark/launch"
)

func TestMain(m *testing.M) {
	launch.ExecWhenReady()
	fstimes.BelieveTemporary()
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0") // helpers end at once
	goleak.VerifyTestMain(m, leaktest.HeldUpLooks()...)
}
