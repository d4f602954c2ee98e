package trust

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// ownGroup reports whether nobody but this user is in a group, as where each user has a group
// of the same number and the umask leaves the group all rights. It asks the files of this
// machine alone: a group that they do not have may have anybody in it.
func ownGroup(gid uint32) bool {
	return int(gid) == geteuid() && isAlone(strconv.Itoa(int(gid)), "/etc/group", "/etc/passwd")
}

// isAlone reports whether the group of a number is in a file of groups, without members, and
// is the group of one user with that number in a file of users: group(5), passwd(5).
func isAlone(number, groups, users string) bool {
	known, others := false, false
	ok := eachLine(groups, func(f []string) {
		if len(f) == 4 && f[2] == number {
			known = true
			others = others || f[3] != ""
		}
	}) && eachLine(users, func(f []string) {
		others = others || len(f) == 7 && f[3] == number && f[2] != number
	})
	return ok && known && !others
}

// eachLine calls fn with the fields of each line of a file. It reports whether all were read.
func eachLine(name string, fn func(fields []string)) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fn(strings.Split(lines.Text(), ":"))
	}
	return lines.Err() == nil
}
