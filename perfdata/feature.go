package perfdata

import (
	"bytes"
	"fmt"
	"math"

	"hallmark/internal/cursor"
)

// Feature is the number of a feature section, HEADER_* of perf's tools/perf/util/header.h.
type Feature uint64

// The features that Info is made of.
const (
	FeatureBuildID     Feature = 2
	FeatureHostname    Feature = 3
	FeatureOSRelease   Feature = 4
	FeatureVersion     Feature = 5
	FeatureArch        Feature = 6
	FeatureCPUs        Feature = 7
	FeatureCPUDesc     Feature = 8
	FeatureCPUID       Feature = 9
	FeatureTotalMemory Feature = 10
	FeatureCmdline     Feature = 11
	FeatureEventDesc   Feature = 12
	FeaturePMUs        Feature = 16
	FeatureGroups      Feature = 17
	FeatureSampleTime  Feature = 21
	FeatureClockID     Feature = 23
	FeatureDirFormat   Feature = 24
	FeatureCompressed  Feature = 27
	FeatureClockData   Feature = 29

	featureHostname = uint(FeatureHostname)
	featureCount    = 256
)

// Info is what a file says of the machine and the recording. Fields that it does not
// have are zero.
type Info struct {
	Hostname  string
	OSRelease string // uname -r
	Version   string // of perf
	Arch      string // uname -m
	CPUDesc   string
	CPUID     string

	CPUsAvailable, CPUsOnline uint32
	TotalMemory               uint64 // KiB
	Cmdline                   []string
	// BuildIDs are of files that samples were in.
	BuildIDs []HeaderBuildID
	// FirstSample and LastSample are times (ns of the event's clock).
	FirstSample, LastSample uint64
	ClockResolution         uint64 // ns
	Clock                   *ClockData
	PMUs                    []PMU
	Groups                  []Group
	Compression             *Compression
	// DirFormat is the version of a directory whose other files have the records that the
	// kernel wrote, 0 of a recording in one file.
	DirFormat uint64
}

// ClockData is one moment on two clocks, both ns.
type ClockData struct {
	ClockID    uint32
	Wall, Time uint64
}

// PMU is a source of events with the number that attributes name it by.
type PMU struct {
	Type uint32
	Name string
}

// Group is a group of events that were counted together.
type Group struct {
	Name            string
	Leader, Members uint32 // index of the first in Events, how many
}

// Compression says how records were compressed.
type Compression struct {
	Version, Type, Level, Ratio uint32
	MmapLen                     uint32 // bytes of a ring, and so of what one record holds at most
}

// learn takes a feature section in. Features that it does not know are left alone.
func (i *Info) learn(f Feature, data []byte, big bool, evs []*Event) error {
	c := cursor.New(data, 0, big)
	if text := i.text(f); text != nil {
		*text = featureString(&c)
		return featureError(f, &c)
	}
	switch f {
	case FeatureBuildID:
		return i.learnBuildIDs(data, big)
	case FeatureCPUs:
		i.CPUsAvailable, i.CPUsOnline = c.U32(), c.U32()
	case FeatureTotalMemory:
		i.TotalMemory = c.U64()
	case FeatureCmdline:
		i.Cmdline = nil
		for n := c.U32(); n > 0 && c.Err() == nil; n-- {
			i.Cmdline = append(i.Cmdline, featureString(&c))
		}
	case FeatureEventDesc:
		describeEvents(&c, big, evs)
	case FeaturePMUs:
		i.PMUs = nil
		for n := c.U32(); n > 0 && c.Err() == nil; n-- {
			i.PMUs = append(i.PMUs, PMU{Type: c.U32(), Name: featureString(&c)})
		}
	case FeatureGroups:
		i.Groups = nil
		for n := c.U32(); n > 0 && c.Err() == nil; n-- {
			i.Groups = append(i.Groups, Group{Name: featureString(&c), Leader: c.U32(), Members: c.U32()})
		}
	case FeatureSampleTime:
		i.FirstSample, i.LastSample = c.U64(), c.U64()
	case FeatureClockID:
		i.ClockResolution = c.U64()
	case FeatureDirFormat:
		i.DirFormat = c.U64()
	case FeatureCompressed:
		i.Compression = &Compression{c.U32(), c.U32(), c.U32(), c.U32(), c.U32()}
	case FeatureClockData:
		c.Skip(4) // version
		i.Clock = &ClockData{ClockID: c.U32(), Wall: c.U64(), Time: c.U64()}
	}
	return featureError(f, &c)
}

func (i *Info) text(f Feature) *string {
	switch f {
	case FeatureHostname:
		return &i.Hostname
	case FeatureOSRelease:
		return &i.OSRelease
	case FeatureVersion:
		return &i.Version
	case FeatureArch:
		return &i.Arch
	case FeatureCPUDesc:
		return &i.CPUDesc
	case FeatureCPUID:
		return &i.CPUID
	}
	return nil
}

func featureError(f Feature, c *cursor.Cursor) error {
	if c.Err() == nil {
		return nil
	}
	return fmt.Errorf("feature %d: %w", f, c.Err())
}

// featureString reads a string with its length, which includes padding.
func featureString(c *cursor.Cursor) string { return untilNUL(c.Bytes(uint64(c.U32()))) }

func untilNUL(b []byte) string {
	if n := bytes.IndexByte(b, 0); n >= 0 {
		b = b[:n]
	}
	return string(b)
}

func float64frombits(b uint64) float64 { return math.Float64frombits(b) }

// learnBuildIDs reads records one behind the other.
func (i *Info) learnBuildIDs(data []byte, big bool) error {
	at := 0
	for len(data)-at >= HeaderSize {
		n := recordSize(data[at:], big)
		if n < HeaderSize || n > len(data)-at {
			return fmt.Errorf("feature %d: offset %#x: record of %d bytes", FeatureBuildID, at, n)
		}
		c := cursor.New(data[at:at+n], int64(at), big)
		c.Skip(4)
		misc := c.U16()
		c.Skip(2)
		id := headerBuildID(&c, misc)
		if err := featureError(FeatureBuildID, &c); err != nil {
			return err
		}
		i.BuildIDs = append(i.BuildIDs, *id)
		at += n
	}
	return nil
}

// describeEvents gives events their names. They are found by their numbers, or by
// their place when they have none.
func describeEvents(c *cursor.Cursor, big bool, evs []*Event) {
	n, attrSize := c.U32(), c.U32()
	for i := uint32(0); i < n && c.Err() == nil; i++ {
		attr := cursor.New(c.Bytes(uint64(attrSize)), c.Offset()-int64(attrSize), big)
		a := readAttr(&attr, big)
		ids := c.U32()
		name := featureString(c)
		if uint64(ids)*8 > uint64(c.Len()) {
			c.Fail("%d numbers of an event in %d bytes", ids, c.Len())
			return
		}
		var first uint64
		for k := range ids {
			if id := c.U64(); k == 0 {
				first = id
			}
		}
		if e := described(evs, int(i), ids > 0, first, a); e != nil && c.Err() == nil {
			e.Name = name
		}
	}
}

func described(evs []*Event, i int, hasID bool, id uint64, a Attr) *Event {
	if hasID {
		for _, e := range evs {
			if len(e.IDs) > 0 && e.IDs[0] == id {
				return e
			}
		}
	}
	if i < len(evs) && evs[i].Attr == a {
		return evs[i]
	}
	return nil
}
