package doctor

import (
	"testing"

	"go.uber.org/goleak"

	"hallmark/internal/aside"
	"hallmark/internal/fstimes"
	"hallmark/internal/leaktest"
	"hallmark/internal/testenv"
)

// TestMain gives the tests the helper that main gives to hallmark. Files of tests may be in memory,
// where times do not show all changes.
func TestMain(m *testing.M) {
	aside.Serve()
	fstimes.BelieveTemporary()
	goleak.VerifyTestMain(testenv.Isolated(m), leaktest.HeldUpLooks()...)
}
