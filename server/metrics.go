package server

import (
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	rtmetrics "runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"hallmark/server/symbols"
)

// metrics are the numbers of a server in Prometheus' text format 0.0.4. All label values are
// words of the server or of its flags, never text of a client, so that their number is bounded.
type metrics struct {
	mu       sync.Mutex
	counters map[string]*atomic.Int64 // by name and labels
	times    map[string]*histogram
	gauges   map[string]func() int64
	help     map[string]string
}

var buckets = []time.Duration{time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 2500 * time.Millisecond, 10 * time.Second}

type histogram struct {
	counts [8]atomic.Int64 // one more than buckets
	sum    atomic.Int64    // nanoseconds
}

func newMetrics() *metrics {
	return &metrics{counters: map[string]*atomic.Int64{}, times: map[string]*histogram{}, gauges: map[string]func() int64{}, help: map[string]string{
		"hallmark_requests_total":          "Requests by kind and status.",
		"hallmark_broken_answers_total":    "Answers that had begun and that the server could not end, by kind.",
		"hallmark_request_seconds":         "Time of requests by kind.",
		"hallmark_sent_bytes_total":        "Bytes of answers.",
		"hallmark_received_bytes_total":    "Bytes of uploads.",
		"hallmark_files_added_total":       "Files that were published, by origin.",
		"hallmark_files_refused_total":     "Files that were refused, by reason.",
		"hallmark_upstream_requests_total": "Files that upstream servers were asked for, by result.",
		"hallmark_upstream_failures_total": "Files for which an upstream server failed, or was not asked because it failed not long before, by server.",
		"hallmark_addresses_total":         "Addresses that were symbolized, by result.",
		"hallmark_indexes_total":           "Indexes that were made, by result.",
		"hallmark_identities":              "Identities in the catalogue.",
		"hallmark_scanned_packages":        "Packages and archives in scanned directories, also those that cannot be read; not plain ELF files.",
		"hallmark_scanned_identities":      "Identities in scanned directories and packages.",
		"hallmark_forwarded_total":         "Messages of profiles that were passed on, by result.",
		"hallmark_forward_retries_total":   "Tries after the first to pass a message on.",
		"hallmark_forward_queue_bytes":     "Bytes of messages that wait to be passed on.",
		"hallmark_profile_locations_total": "Locations of profiles without names, by result.",
		"hallmark_profiles_kept_total":     "Profiles that were kept, by kind.",
		"hallmark_profiles_refused_total":  "Profiles that were refused, by status.",
		"hallmark_profiles_open":           "Profiles that are open for those who look at them.",
		"hallmark_limited_total":           "Requests of clients that had taken all that they may, by limit.",
		"hallmark_refused_total":           "Requests and connections that the server did not want, by reason.",
		"hallmark_requests_under_way":      "Requests under way, by whose they are.",
		"hallmark_pool_size":               "How much there is of what clients share: requests, or bytes.",
		"hallmark_pool_in_use":             "How much of it is taken.",
		"hallmark_pool_clients":            "How many clients have some of it, or wait.",
		"hallmark_heavy_under_way":         "Requests under way that cost much.",
		"hallmark_connections":             "Connections.",
		"hallmark_collected_total":         "What was removed because nothing needs it, by kind.",
		"hallmark_collected_bytes_total":   "Bytes of what was removed.",
		"hallmark_broken_total":            "Objects that were found without their bytes, and damaged lists, by kind.",
		"hallmark_damaged_lists":           "Manifests, entries of sources and records of profiles that are damaged, until somebody brings again what they listed.",
		"hallmark_broken_objects":          "Objects of the store whose bytes are lost, until somebody brings them again.",
		"hallmark_damaged_indexes_total":   "Indexes that were found damaged, and are made anew.",
		"hallmark_store_bytes":             "Bytes of files and indexes in the store when this server collected garbage last, 0 if it never did.",
		"hallmark_build_info":              "1, with the versions of Hallmark, of Go and of the format of indexes.",
		"process_resident_memory_bytes":    "Bytes of memory that the process has.",
		"go_memory_bytes":                  "Bytes of memory that Go has from the system.",
		"hallmark_panics_total":            "Requests that ended with a defect of the server.",
		"hallmark_store_failures_total":    "Operations of the store that failed.",
	}}
}

// add counts n under a name with labels, which are pairs of names and values.
func (m *metrics) add(n int64, name string, labels ...string) {
	key := withLabels(name, labels...)
	m.mu.Lock()
	c := m.counters[key]
	if c == nil {
		c = new(atomic.Int64)
		m.counters[key] = c
	}
	m.mu.Unlock()
	c.Add(n)
}

func withLabels(name string, labels ...string) string {
	if len(labels) == 0 {
		return name
	}
	var pairs []string
	for i := 0; i+1 < len(labels); i += 2 {
		pairs = append(pairs, fmt.Sprintf("%s=%q", labels[i], labels[i+1]))
	}
	return name + "{" + strings.Join(pairs, ",") + "}"
}

// observe counts a time under a name and a kind.
func (m *metrics) observe(d time.Duration, name, kind string) {
	key := name + "\x00" + kind
	m.mu.Lock()
	h := m.times[key]
	if h == nil {
		h = new(histogram)
		m.times[key] = h
	}
	m.mu.Unlock()
	i, _ := slices.BinarySearch(buckets, d)
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// write writes all numbers.
func (m *metrics) write(w io.Writer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := ""
	head := func(name, kind string) {
		if name != last {
			fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, m.help[name], name, kind)
			last = name
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.counters)) {
		name, _, _ := strings.Cut(key, "{")
		head(name, "counter")
		fmt.Fprintf(w, "%s %d\n", key, m.counters[key].Load())
	}
	for _, name := range slices.Sorted(maps.Keys(m.gauges)) {
		plain, _, _ := strings.Cut(name, "{")
		head(plain, "gauge")
		fmt.Fprintf(w, "%s %d\n", name, m.gauges[name]())
	}
	for _, key := range slices.Sorted(maps.Keys(m.times)) {
		name, kind, _ := strings.Cut(key, "\x00")
		head(name, "histogram")
		m.times[key].write(w, name, kind)
	}
}

func (h *histogram) write(w io.Writer, name, kind string) {
	var n int64
	for i, b := range buckets {
		n += h.counts[i].Load()
		fmt.Fprintf(w, "%s_bucket{kind=%q,le=\"%g\"} %d\n", name, kind, b.Seconds(), n)
	}
	n += h.counts[len(buckets)].Load()
	fmt.Fprintf(w, "%s_bucket{kind=%q,le=\"+Inf\"} %d\n", name, kind, n)
	fmt.Fprintf(w, "%s_sum{kind=%q} %g\n%s_count{kind=%q} %d\n", name, kind, time.Duration(h.sum.Load()).Seconds(), name, kind, n)
}

// describeProcess adds what is known of the process.
func (m *metrics) describeProcess() {
	m.gauges[withLabels("hallmark_build_info", "version", version(), "go", runtime.Version(), "index", symbols.IndexVersion)] = func() int64 { return 1 }
	m.gauges["process_resident_memory_bytes"] = residentMemory
	m.gauges["go_memory_bytes"] = func() int64 {
		sample := []rtmetrics.Sample{{Name: "/memory/classes/total:bytes"}}
		rtmetrics.Read(sample)
		return int64(sample[0].Value.Uint64())
	}
}

// version returns that of Hallmark.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// residentMemory returns the bytes of memory that this process has: statm of proc(5).
func residentMemory() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}

// refusals counts requests and connections that the server did not want, by reason. The log has one line a minute for each
// reason: whoever is refused comes again.
type refusals struct {
	now atomic.Int64 // requests that are being refused

	mu  sync.Mutex
	all map[string]*refusal
}

type refusal struct {
	count, logged int64
	at            time.Time // of the last line in the log
}

// refusalTime is between two lines of the log about refusals of one reason.
const refusalTime = time.Minute

// count counts a refusal. The client may be empty, and the reason, for none.
func (f *refusals) count(s *Server, reason, client string) {
	if reason == "" {
		return
	}
	s.metrics.add(1, "hallmark_refused_total", "reason", reason)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[string]*refusal{}
	}
	one := f.all[reason]
	if one == nil {
		one = new(refusal)
		f.all[reason] = one
	}
	one.count++
	if now := time.Now(); now.Sub(one.at) >= refusalTime {
		s.Log.Warn("clients are refused", "reason", reason, "count", one.count-one.logged, "last", client)
		one.at, one.logged = now, one.count
	}
}

// counts returns how many there were, by reason.
func (f *refusals) counts() map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int64{}
	for reason, one := range f.all {
		out[reason] = one.count
	}
	return out
}
