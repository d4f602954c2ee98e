package debuginfod

import (
	"bufio"
	"fmt"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"hallmark/internal/cachedir"
	"hallmark/internal/regular"
)

// FromEnvironment returns a Client as the environment says, in the variables of
// debuginfod-client-config(7): DEBUGINFOD_URLS, _CACHE_PATH, _TIMEOUT (seconds),
// _MAXTIME (seconds), _MAXSIZE (bytes), _RETRY_LIMIT, _HEADERS_FILE. Without
// DEBUGINFOD_URLS the Client asks nobody. Nor does it ask servers behind ima:enforcing, up to another
// policy: nobody checks signatures here. They are in Unsigned. Other than for elfutils' client a timeout of 0 is 15 s,
// which is the default, and a size of 0 is 4 GiB. The error names a
// variable that cannot be understood.
func FromEnvironment() (*Client, error) {
	c := &Client{Dir: CacheDir(), Retries: 2}
	enforcing := false
	for _, url := range strings.Fields(os.Getenv("DEBUGINFOD_URLS")) {
		switch {
		case strings.HasPrefix(url, "ima:"):
			enforcing = url == "ima:enforcing"
		case enforcing:
			c.Unsigned = append(c.Unsigned, strings.TrimRight(url, "/"))
		default:
			c.URLs = append(c.URLs, strings.TrimRight(url, "/"))
		}
	}
	for _, v := range []struct {
		name string
		bits int
		set  func(int64)
	}{
		{"DEBUGINFOD_TIMEOUT", 31, func(n int64) { c.Timeout = time.Duration(n) * time.Second }},
		{"DEBUGINFOD_MAXTIME", 31, func(n int64) { c.MaxTime = time.Duration(n) * time.Second }},
		{"DEBUGINFOD_MAXSIZE", 63, func(n int64) { c.MaxSize = n }},
		{"DEBUGINFOD_RETRY_LIMIT", 31, func(n int64) { c.Retries = int(n) }},
	} {
		text := os.Getenv(v.name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, v.bits)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not a number", v.name, text)
		}
		v.set(int64(n))
	}
	var err error
	if name := os.Getenv("DEBUGINFOD_HEADERS_FILE"); name != "" {
		c.Header, err = readHeader(name)
	}
	return c, err
}

// CacheDir returns where clients keep their cache, as the environment says; "" if it
// does not. Root in the environment of another user has the one in its own home. A Client
// does not use it where another user can change what is in it.
func CacheDir() string {
	if dir := os.Getenv("DEBUGINFOD_CACHE_PATH"); dir != "" {
		if abs, err := filepath.Abs(dir); err == nil {
			return abs
		}
		return dir
	}
	if old := filepath.Join(os.Getenv("HOME"), ".debuginfod_client_cache"); os.Getenv("HOME") != "" {
		if info, err := os.Stat(old); err == nil && info.IsDir() && cachedir.Check(old) == nil {
			return old
		}
	}
	dir, err := cachedir.User()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "debuginfod_client")
}

// readHeader reads lines "Name: value".
func readHeader(name string) (http.Header, error) {
	f, err := regular.Open(name)
	if err != nil {
		return nil, fmt.Errorf("DEBUGINFOD_HEADERS_FILE: %w", err)
	}
	defer f.Close()
	header := http.Header{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		field, value, ok := strings.Cut(lines.Text(), ":")
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		if !ok || textproto.TrimString(field) == "" {
			return nil, fmt.Errorf("%s:%d: not a header line", name, n)
		}
		header.Add(textproto.TrimString(field), textproto.TrimString(value))
	}
	return header, lines.Err()
}
