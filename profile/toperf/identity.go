package toperf

import (
	"crypto/sha256"

	"hallmark/buildid"
)

// maxID is the most that perf keeps of a build ID, BUILD_ID_SIZE of its
// tools/perf/util/build-id.h. Of longer ones it keeps the beginning.
const maxID = 20

// BuildID returns an identity in the form of perf.data, which knows build IDs of up to
// 20 bytes and no kinds of them.
//
// For the Go toolchain's, which is text and longer, that is what the toolchain itself
// makes a GNU build ID of it by (-B gobuildid of cmd/link, by default since Go 1.24): so
// a file that was linked with a GNU build ID and one that was not have the same here.
// perf itself finds no build ID in a file that has none but that of the toolchain, and
// so takes no symbols from it.
func BuildID(id buildid.ID) []byte {
	b := id.Bytes()
	if id.Kind() == buildid.Go {
		sum := sha256.Sum256(b)
		sum[0] ^= 0xff // cmd/internal/hash, Sum32
		b = sum[:]
	}
	return b[:min(len(b), maxID)]
}
