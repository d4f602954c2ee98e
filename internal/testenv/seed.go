package testenv

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
)

// seedVar has the seed that a test is to be repeated with.
const seedVar = "HALLMARK_SEED"

// Seed returns what the choices of a test depend on: another number each time. A test that fails
// prints it, and HALLMARK_SEED=NUMBER repeats its choices.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(seedVar); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 0, 64); err != nil {
			t.Fatalf("%s: %v", seedVar, err)
		}
	}
	t.Logf("%s=%d repeats the choices of this test", seedVar, seed)
	return seed
}

// Rand makes the choices of a test by its Seed. Several goroutines may ask it.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(&sharedSource{source: rand.NewPCG(Seed(t), 0)})
}

// A sharedSource is a source for several goroutines.
type sharedSource struct {
	mu     sync.Mutex
	source rand.Source
}

func (s *sharedSource) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source.Uint64()
}
