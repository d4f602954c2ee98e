package testenv

import "os"

// Thorough reports whether tests are to look at all there is, as HALLMARK_THOROUGH=1 asks
// for, and not at a part of it that is the same each time.
func Thorough() bool { return os.Getenv("HALLMARK_THOROUGH") != "" }
