package capture

import (
	"bufio"
	"math/bits"
	"os"
	"strconv"
	"strings"
	"sync"
)

// addressBits returns how many bits addresses of programs have on this kernel, 0 if that is
// not known. The stack of a process, as this one, is at the end of its addresses.
var addressBits = sync.OnceValue(func() uint8 {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		start, _, _ := strings.Cut(lines.Text(), "-")
		if at, err := strconv.ParseUint(start, 16, 64); err == nil && strings.HasSuffix(lines.Text(), "[stack]") {
			return uint8(bits.Len64(at))
		}
	}
	return 0
})
