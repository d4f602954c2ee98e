package addr2line

import (
	"os"
	"testing"

	"hallmark/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Isolated(m).Run()) }
