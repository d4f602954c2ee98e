package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"regexp"
)

// Lists are JSON objects whose last field is the CRC-32C of all that is before it, so that a flipped bit makes no other
// list. Servers of before wrote none, and leave the field out when they change a list: one without it is taken as it is.

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	sealOf     = regexp.MustCompile(`,"sum":"([0-9a-f]{8})"}$`)
	errSum     = errors.New("it does not agree with its checksum")
)

const sealSize = len(`,"sum":"01234567"}`)

// encodeSealed returns a struct as JSON with its checksum.
func encodeSealed(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	b = b[:len(b)-1]
	return fmt.Appendf(b, `,"sum":"%08x"}`, crc32.Checksum(b, castagnoli)), nil
}

// decodeSealed decodes what encodeSealed returned.
func decodeSealed(b []byte, v any) error {
	if seal := sealOf.FindSubmatch(b); seal != nil && string(seal[1]) != fmt.Sprintf("%08x", crc32.Checksum(b[:len(b)-sealSize], castagnoli)) {
		return errSum
	}
	return json.Unmarshal(b, v)
}
