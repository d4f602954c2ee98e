package procmap

import "fmt"

// A Door is a way to a mapped file or to its identity.
type Door uint8

// The doors.
const (
	NoDoor       Door = iota
	DoorQuery         // the kernel read the build ID: PROCMAP_QUERY
	DoorMapFiles      // /proc/PID/map_files; needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN
	DoorRoot          // the path below /proc/PID/root, as the process sees it
	DoorPath          // the path as this process sees it
	DoorExe           // /proc/PID/exe, which also leads to a deleted file
	DoorMemory        // the memory of the process
)

var doorNames = [...]string{
	NoDoor: "none", DoorQuery: "query", DoorMapFiles: "map_files", DoorRoot: "root",
	DoorPath: "path", DoorExe: "exe", DoorMemory: "memory",
}

// String returns the door as one word, "map_files" for instance.
func (d Door) String() string {
	if int(d) < len(doorNames) {
		return doorNames[d]
	}
	return fmt.Sprintf("door-%d", uint8(d))
}

// MarshalText returns what String returns.
func (d Door) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
