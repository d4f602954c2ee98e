package unwindtables

import (
	"testing"

	"go.uber.org/goleak"

	"hallmark/internal/aside"
	"hallmark/internal/fstimes"
)

func TestMain(m *testing.M) {
	aside.Serve()
	fstimes.BelieveTemporary()
	goleak.VerifyTestMain(m)
}
