package cachedir

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"hallmark/internal/trust"
)

// User returns this user's cache directory, whether it is there or not: $XDG_CACHE_HOME, else
// ~/.cache. Root in the environment of another user, as with sudo -E, gets the one in the home
// that the password file gives root. A home that is not there is not made: the error wraps
// fs.ErrNotExist then.
func User() (string, error) {
	dir, err := userCacheDir()
	if err != nil || os.Geteuid() != 0 || trust.PrivateDir(dir) {
		return dir, err
	}
	home, err := rootHome(passwd)
	if err != nil {
		return dir, nil // which Dir does not use
	}
	if err := checkHome(home); err != nil {
		return "", err
	}
	return filepath.Join(home, ".cache"), nil
}

// userCacheDir is os.UserCacheDir where there is a home for it.
func userCacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err == nil && os.Getenv("XDG_CACHE_HOME") == "" {
		err = checkHome(os.Getenv("HOME"))
	}
	return dir, err
}

// checkHome returns an error if there is no such directory.
func checkHome(home string) error {
	info, err := os.Stat(home)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		return nil
	}
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return &fs.PathError{Op: "home directory", Path: home, Err: err}
}

// Refused returns why User is not the directory that the environment names, nil if it is.
func Refused() error {
	dir, err := userCacheDir()
	if err != nil {
		return nil
	}
	if used, err := User(); err != nil || used == dir {
		return nil
	}
	return Check(dir)
}

// passwd is the password file: passwd(5).
const passwd = "/etc/passwd"

// rootHome returns root's home directory by a password file.
func rootHome(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Split(lines.Text(), ":"); len(fields) == 7 && fields[2] == "0" && filepath.IsAbs(fields[5]) {
			return fields[5], nil
		}
	}
	return "", &fs.PathError{Op: "find root in", Path: file, Err: fs.ErrNotExist}
}

// InUserCache returns where a directory of this name is in this program's part of the user's
// cache directory, whether it is there or not; "" is that part itself.
func InUserCache(name string) (string, error) {
	cache, err := User()
	if err != nil {
		return "", err
	}
	ours := filepath.Join(cache, "hallmark")
	dir := filepath.Join(ours, name)
	closeToOthers(ours)
	closeToOthers(dir)
	return dir, nil
}

// closeToOthers takes the right to write to a directory of this user's from everybody else:
// earlier versions made directories as the umask was. A file that others wrote there before is no
// file of this user's, so it is not used.
func closeToOthers(dir string) {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 == 0 {
		return
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok && int(st.Uid) == os.Geteuid() && trust.PrivateDir(filepath.Dir(dir)) {
		_ = os.Chmod(dir, info.Mode().Perm()&^0o022)
	}
}

// PerfDir returns perf's cache of files by build ID, ~/.debug: perf-buildid-cache(1). The
// error wraps ErrShared if others can change what is in it.
func PerfDir() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(home, ".debug")
	return dir, Check(dir)
}
