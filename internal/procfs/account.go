package procfs

import (
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
)

// AccountOf returns the user who answers for a process: its effective user or, if that is a subordinate
// number, the user who was given the number (subuid(5)). So nobody has more shares of something for
// having 65,536 numbers.
func AccountOf(pid uint32) uint32 { return AccountOfUser(UserOf(pid)) }

// AccountOfUser returns the user who answers for what a user does: see AccountOf.
func AccountOfUser(uid uint32) uint32 {
	for _, r := range subordinates() {
		if r.first <= uid && uid-r.first < r.count {
			return r.owner
		}
	}
	return uid
}

// subordinate is a range of user numbers that a user was given.
type subordinate struct{ owner, first, count uint32 }

// maxSubordinates bounds the ranges that are remembered.
const maxSubordinates = 1 << 12

var subordinates = sync.OnceValue(func() []subordinate {
	text, err := os.ReadFile("/etc/subuid")
	if err != nil {
		return nil // nobody was given any
	}
	return parseSubordinates(string(text), func(name string) (string, error) {
		u, err := user.Lookup(name)
		if err != nil {
			return "", err
		}
		return u.Uid, nil
	})
})

// parseSubordinates reads lines of a user, by name or number, the first number and how many there are.
func parseSubordinates(text string, lookup func(name string) (uid string, err error)) (all []subordinate) {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 || len(all) == maxSubordinates {
			continue
		}
		owner, err := strconv.ParseUint(f[0], 10, 32)
		if err != nil {
			uid, lookErr := lookup(f[0])
			if owner, err = strconv.ParseUint(uid, 10, 32); lookErr != nil || err != nil {
				continue
			}
		}
		first, err1 := strconv.ParseUint(f[1], 10, 32)
		count, err2 := strconv.ParseUint(f[2], 10, 32)
		if err1 == nil && err2 == nil && count > 0 {
			all = append(all, subordinate{uint32(owner), uint32(first), uint32(count)})
		}
	}
	return all
}
