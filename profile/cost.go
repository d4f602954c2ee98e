package profile

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	pprof "github.com/google/pprof/profile"
)

// Bounds of a profile's memory, where ReadOptions does not say them: so much, and so many
// times what it is in its file. A small file has less: a few kilobytes of gzip can stand for a
// thousand times as many, and those for a dozen times that in memory.
const (
	memoryBase  = 256 << 20
	memoryTimes = 8
	smallBase   = 16 << 20
	smallTimes  = 4096 // until memoryBase is reached
)

// Bounds of what a profile stands for, where ReadOptions does not say them: so much text, each name
// counted as often as it is used, and so many bytes for each that it is in its file. Whoever
// writes or adds up a profile goes through all of that.
const (
	textBase  = 1 << 30
	textTimes = 64
)

// The same for calls: those at a location counted as often as it is in a stack.
const (
	callsBase  = 16 << 20
	callsTimes = 8

	// The same on a page, which takes three hundred bytes for each.
	shownBase = 5 << 18
	shownPart = 32 // bytes of the file for another one
)

// legacyTimes is how many times its size a profile takes that is not in protobuf: text, whose
// shortest line is a sample of its own.
const legacyTimes = 12

// Bytes of memory of what decoding makes. Lists grow by doubling, and leave what they were.
const (
	pointerCost  = 3 * 8
	stringCost   = 3 * 16
	typeCost     = int64(unsafe.Sizeof(pprof.ValueType{})) + pointerCost
	sampleCost   = int64(unsafe.Sizeof(pprof.Sample{})) + pointerCost + 16
	mappingCost  = int64(unsafe.Sizeof(pprof.Mapping{})) + 2*pointerCost
	locationCost = int64(unsafe.Sizeof(pprof.Location{})) + 2*pointerCost
	functionCost = int64(unsafe.Sizeof(pprof.Function{})) + 2*pointerCost
	lineCost     = 2 * int64(unsafe.Sizeof(pprof.Line{}))
	frameCost    = 3*8 + 8 // the number of a location, and the location
	valueCost    = 3 * 8
	commentCost  = 3*8 + 3*16

	// A sample with labels has three maps, each with room for all of its labels, if there
	// are more than eight, and else for eight where there is one at all.
	labelsCost   = 3*48 + 2*(8*40+8)
	labelCost    = 3*32 + 24
	labelMapCost = 3 * 2 * (40 + 1)
)

// Fields of Profile, Sample and Location (pprof's proto/profile.proto).
const (
	fieldType     = 1
	fieldSample   = 2
	fieldMapping  = 3
	fieldLocation = 4
	fieldFunction = 5
	fieldString   = 6
	fieldComment  = 13

	fieldSampleLocation = 1
	fieldSampleValue    = 2
	fieldSampleLabel    = 3
	fieldLocationLine   = 4
)

// checkCost returns ErrTooLarge if decoding the profile would take more memory than the limit.
// A few bytes compressed can stand for very much, and a few uncompressed for ten times that.
func checkCost(data []byte, limit int64) error {
	cost := int64(len(data))
	if cost > limit {
		return tooLarge(len(data), len(data), limit)
	}
	var at int
	sound := eachField(data, func(number int, body []byte, end int) bool {
		cost += fieldCost(number, body)
		at = end
		return cost <= limit
	})
	if cost > limit {
		return tooLarge(at, len(data), limit)
	}
	if !sound && int64(len(data))*legacyTimes > limit {
		return tooLarge(len(data), len(data), limit)
	}
	return nil
}

func tooLarge(at, size int, limit int64) error {
	return fmt.Errorf("%w: at offset %d of %d, uncompressed, it takes more than %d MiB of memory", ErrTooLarge, at, size, limit>>20)
}

// fieldCost is what a field of the profile takes.
func fieldCost(number int, body []byte) int64 {
	switch number {
	case fieldType:
		return typeCost
	case fieldSample:
		return costOfSample(body)
	case fieldMapping:
		return mappingCost
	case fieldLocation:
		lines := int64(0)
		eachField(body, func(number int, _ []byte, _ int) bool {
			if number == fieldLocationLine {
				lines++
			}
			return true
		})
		return locationCost + lines*lineCost
	case fieldFunction:
		return functionCost
	case fieldString:
		return stringCost + int64(len(body))
	case fieldComment:
		return commentCost * varints(body)
	}
	return 0
}

func costOfSample(body []byte) int64 {
	cost, labels := sampleCost, int64(0)
	eachField(body, func(number int, body []byte, _ int) bool {
		switch number {
		case fieldSampleLocation:
			cost += frameCost * varints(body)
		case fieldSampleValue:
			cost += valueCost * varints(body)
		case fieldSampleLabel:
			labels++
		}
		return true
	})
	if labels > 0 {
		cost += labelsCost + labels*labelCost
	}
	if labels > 8 {
		cost += labels * labelMapCost
	}
	return cost
}

// varints returns how many numbers there are in a packed field; a field of its own, which has
// no body, is one.
func varints(body []byte) int64 {
	if body == nil {
		return 1
	}
	n := int64(0)
	for _, b := range body {
		if b < 0x80 {
			n++
		}
	}
	return n
}

// eachField calls f with each field of a message, the body of those that have a length, and
// where it ends, as long as f returns true. It reports whether the message is sound to its end
// (https://protobuf.dev/programming-guides/encoding).
func eachField(data []byte, f func(number int, body []byte, end int) bool) (sound bool) {
	for at := 0; at < len(data); {
		key, n := binary.Uvarint(data[at:])
		if n <= 0 {
			return false
		}
		at += n
		var body []byte
		var size uint64
		switch key & 7 {
		case 0:
			_, n := binary.Uvarint(data[at:])
			if n <= 0 {
				return false
			}
			size = uint64(n)
		case 1:
			size = 8
		case 2:
			length, n := binary.Uvarint(data[at:])
			if n <= 0 || length > uint64(len(data)-at-n) {
				return false
			}
			at += n
			body, size = data[at:at+int(length):at+int(length)], length
		case 5:
			size = 4
		default:
			return false
		}
		if size > uint64(len(data)-at) {
			return false
		}
		at += int(size)
		if !f(int(key>>3), body, at) {
			return true
		}
	}
	return true
}

// Check returns ErrTooLarge if p stands for more names or calls than the limits allow.
func Check(p *pprof.Profile, l Limits) error {
	if err := checkText(p, l.Text); err != nil {
		return err
	}
	return CheckCalls(p, l.Calls)
}

// checkText returns ErrTooLarge if the names in p are used so often that they are more than
// limit bytes together.
func checkText(p *pprof.Profile, limit int64) error {
	sum := int64(0)
	for i, l := range p.Location {
		if l.Mapping != nil {
			sum += int64(len(l.Mapping.File) + len(l.Mapping.BuildID))
		}
		for _, line := range l.Line {
			if f := line.Function; f != nil {
				sum += int64(len(f.Name) + len(f.SystemName) + len(f.Filename))
			}
		}
		if sum > limit {
			return fmt.Errorf("%w: location %d of %d: names are used so often that they make more than %d MiB", ErrTooLarge, i+1, len(p.Location), limit>>20)
		}
	}
	for i, s := range p.Sample {
		for key, values := range s.Label {
			sum += int64(len(key))
			for _, v := range values {
				sum += int64(len(v))
			}
		}
		if sum > limit {
			return fmt.Errorf("%w: sample %d of %d: labels are used so often that they make more than %d MiB", ErrTooLarge, i+1, len(p.Sample), limit>>20)
		}
	}
	return nil
}

// CheckCalls returns ErrTooLarge if the stacks of p have more calls than limit together,
// those that are inlined counted.
func CheckCalls(p *pprof.Profile, limit int64) error {
	sum := int64(0)
	for i, s := range p.Sample {
		for _, l := range s.Location {
			sum += int64(max(1, len(l.Line)))
		}
		if sum > limit {
			return fmt.Errorf("%w: sample %d of %d: the stacks so far have more than %d frames", ErrTooLarge, i+1, len(p.Sample), limit)
		}
	}
	return nil
}
