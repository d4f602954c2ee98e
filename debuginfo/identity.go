package debuginfo

import (
	"errors"

	"hallmark/buildid"
	"hallmark/symbol"
)

// Identify returns the identity of an open file. An error that wraps buildid.ErrFormat
// names the file and the offset of the damage which leaves the identity unknown. The file
// is of use all the same: debug files often keep note segments that lead nowhere, beside
// sections that are sound.
func Identify(file *symbol.File) (buildid.ID, error) {
	info, err := buildid.Read(file.Reader())
	var damage *buildid.FormatError
	if errors.As(err, &damage) {
		damage.Name = file.Name()
	}
	return info.ID, err
}

// identifyIfKnown is Identify, except that an unknown identity is the zero one and no
// error.
func identifyIfKnown(file *symbol.File) (buildid.ID, error) {
	id, err := Identify(file)
	if errors.Is(err, buildid.ErrFormat) {
		return buildid.ID{}, nil
	}
	return id, err
}
