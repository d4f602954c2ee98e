package compact

import "hash/maphash"

// seed makes collisions a matter of luck: who writes a profile does not know it. The numbers
// that an interner gives do not depend on it.
var seed = maphash.MakeSeed()

func hashOf(b []byte) uint64 { return maphash.Bytes(seed, b) }
