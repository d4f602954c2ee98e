package doctor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"hallmark/buildid"
	"hallmark/internal/backend"
	"hallmark/internal/bpf"
	"hallmark/internal/patience"
	"hallmark/internal/plaintext"
	"hallmark/internal/procfs"
	"hallmark/inventory"
	"hallmark/reason"
)

// Census is what a machine has of what a build ID could be kept with, and what that
// would cost: the exercise that Al Viro set when the kernel's developers wanted to keep
// it with every open file. A number that could not be had is nil, and in Missing.
type Census struct {
	Processes *int `json:"process_count,omitempty"`
	Tasks     *int `json:"task_count,omitempty"` // threads of all processes and of the kernel

	Files    FileCensus `json:"file_counts"`
	Inodes   *int       `json:"inodes,omitempty"` // in the kernel's caches
	Code     CodeCensus `json:"code_counts"`
	Designs  []Design   `json:"designs"`
	Table    *TableCost `json:"table,omitempty"`
	Missing  []Missing  `json:"missing,omitempty"`
	PageSize int        `json:"page_size"`
}

// FileCensus counts instances of the kernel's struct file: an open of a file is one,
// however many descriptors and mappings it has.
type FileCensus struct {
	Allocated   *int `json:"allocated,omitempty"`   // by the kernel's own count
	Descriptors *int `json:"descriptors,omitempty"` // of processes; what some share counts once
	Open        *int `json:"open,omitempty"`        // instances behind descriptors
	Mapped      *int `json:"mapped,omitempty"`      // instances behind mappings
	Reached     *int `json:"reached,omitempty"`     // instances behind either
}

// CodeCensus counts what is mapped to be executed.
type CodeCensus struct {
	Spaces     *int `json:"address_spaces,omitempty"`
	Mappings   *int `json:"mappings,omitempty"`   // executable ones of files
	Inodes     *int `json:"inodes,omitempty"`     // of files that have such mappings
	Identities *int `json:"identities,omitempty"` // an identity that different contents claim is several
	// Contested are the identities that files of different, or of unknown, content claim.
	Contested *int `json:"contested_ids,omitempty"`
}

// Design is a structure that could have a pointer to a build ID, and what it would cost
// here.
type Design struct {
	Structure string `json:"structure"`
	Cache     string `json:"cache"`   // of the kernel's allocator
	Objects   int    `json:"objects"` // that there are now
	// Bytes is the size of one, Slot what the allocator takes for it, PerSlab how many
	// share one piece of SlabBytes.
	Bytes     int `json:"bytes"`
	Slot      int `json:"slot"`
	PerSlab   int `json:"per_slab"`
	SlabBytes int `json:"slab_bytes"`
	// Absorbed says that as many fit into a slab with a pointer more: it costs nothing.
	Absorbed bool `json:"absorbed"`
	// Cost is what the pointers of all Objects take in memory, in bytes.
	Cost int64 `json:"cost"`
}

// TableCost is what Hallmark's own table takes, in bytes.
type TableCost struct {
	Entries int    `json:"entries"` // that it has room for
	Bytes   uint64 `json:"bytes"`
}

// Missing is what could not be counted, and why.
type Missing struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// pointerBytes is what is added to a structure.
const pointerBytes = 8

// TakeCensus counts. Missing has the things that a user may not see or a kernel does not report.
func TakeCensus() *Census {
	c := &Census{PageSize: os.Getpagesize()}
	if err := procfs.CheckPIDNamespace(); err != nil {
		c.miss("processes outside of this container, and their files", err)
	}
	c.countTasks()
	c.countKernel()
	c.countFiles()
	c.countCode()
	c.weigh()
	c.weighTable()
	return c
}

func (c *Census) miss(what string, err error) {
	why := err.Error()
	var file *fs.PathError
	switch {
	case errors.Is(err, os.ErrPermission) && errors.As(err, &file):
		why = "needs CAP_DAC_READ_SEARCH, for " + file.Path
	case errors.Is(err, os.ErrPermission):
		why = "needs CAP_SYS_ADMIN"
	}
	c.Missing = append(c.Missing, Missing{what, why})
}

// countTasks reads the fourth word of /proc/loadavg: proc_loadavg(5).
func (c *Census) countTasks() {
	if pids, err := procfs.Processes(); err == nil {
		n := len(pids)
		c.Processes = &n
	} else {
		c.miss("processes", err)
	}
	words, err := numberWords("/proc/loadavg")
	if err == nil && len(words) > 3 {
		_, total, _ := strings.Cut(words[3], "/")
		c.Tasks = parsed(total)
	}
	if c.Tasks == nil {
		c.miss("tasks", cmpErr(err, "/proc/loadavg"))
	}
}

// countKernel reads the kernel's own counts: Documentation/admin-guide/sysctl/fs.rst.
func (c *Census) countKernel() {
	words, err := numberWords("/proc/sys/fs/file-nr")
	if err == nil && len(words) > 0 {
		c.Files.Allocated = parsed(words[0])
	}
	if c.Files.Allocated == nil {
		c.miss("allocated files", cmpErr(err, "/proc/sys/fs/file-nr"))
	}
	words, err = numberWords("/proc/sys/fs/inode-nr")
	if err == nil && len(words) > 0 {
		c.Inodes = parsed(words[0])
	}
	if c.Inodes == nil {
		c.miss("inodes in cache", cmpErr(err, "/proc/sys/fs/inode-nr"))
	}
}

func numberWords(file string) ([]string, error) {
	b, err := os.ReadFile(file)
	return strings.Fields(string(b)), err
}

func parsed(s string) *int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return nil
	}
	return &n
}

// cmpErr returns err, or an error that says that a file was not understood.
func cmpErr(err error, file string) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%s is not understood", file)
}

// countFiles has BPF go through descriptors and mappings.
func (c *Census) countFiles() {
	seen, err := patience.InTime(patience.EveryProcess, 2*patience.ProcessTime, bpf.TakeCensus) // which loads programs
	if err != nil {
		c.miss("open files, mappings", errors.New(backend.WhyNot(backend.Unusable(backend.BPF, err))))
		return
	}
	c.Files.Descriptors, c.Files.Open, c.Files.Mapped, c.Files.Reached = &seen.Descriptors, &seen.Open, &seen.Mapped, &seen.All
	c.Code.Spaces, c.Code.Mappings, c.Code.Inodes = &seen.Spaces, &seen.CodeMappings, &seen.CodeInodes
}

// countCode counts identities: files of different inodes may be the same build.
func (c *Census) countCode() {
	inv, err := inventory.Take(inventory.Options{})
	if err != nil {
		c.miss("identities", err)
		return
	}
	inv.FindContested()
	type build struct {
		id      buildid.ID
		content buildid.Content
	}
	builds, contested, silent := map[build]bool{}, map[buildid.ID]bool{}, map[string]bool{}
	for _, p := range inv.Processes {
		for _, code := range p.Code {
			if code.Reason == reason.FileUnresponsive {
				silent[code.Path] = true
			}
			if code.ID.IsZero() {
				continue
			}
			one := build{id: code.ID}
			if code.Contested {
				contested[code.ID] = true
				one.content = code.Content
			}
			builds[one] = true
		}
	}
	for _, path := range slices.Sorted(maps.Keys(silent)) {
		c.Missing = append(c.Missing, Missing{"identity of " + path, reason.FileUnresponsive.String()})
	}
	n, m := len(builds), len(contested)
	c.Code.Identities = &n
	if m > 0 {
		c.Code.Contested = &m
	}
	unseen := map[reason.Reason]int{}
	for _, u := range inv.Unseen {
		unseen[u.Reason]++
	}
	for _, why := range slices.Sorted(maps.Keys(unseen)) {
		c.Missing = append(c.Missing, Missing{"code of " + processCount(unseen[why]), why.String()})
	}
}

func processCount(n int) string {
	if n == 1 {
		return "1 process"
	}
	return plaintext.Plural(int64(n), "process", "processes")
}

// weigh says what a pointer in each open file, and in each inode, would cost.
func (c *Census) weigh() {
	caches, err := readSlabs()
	if err != nil {
		c.miss("cost of designs", err)
		return
	}
	sizes, _ := bpf.StructSizes("file") // without its types the allocator is believed
	for _, s := range caches {
		switch {
		case s.name == "filp":
			if n := sizes["file"]; n > 0 {
				s.bytes = n
			}
			c.Designs = append(c.Designs, s.design("struct file"))
		case isInodeCache(s.name) && s.objects > 0:
			c.Designs = append(c.Designs, s.design("struct inode"))
		}
	}
	slices.SortStableFunc(c.Designs, func(a, b Design) int { return b.Objects - a.Objects })
	slices.SortStableFunc(c.Designs, func(a, b Design) int { return strings.Compare(a.Structure, b.Structure) })
}

// isInodeCache reports whether a cache has the inodes of a file system, with the inode of
// the kernel in each. That of security modules is a part of its own.
func isInodeCache(name string) bool {
	return name != "lsm_inode_cache" && (strings.HasSuffix(name, "inode_cache") || strings.HasSuffix(name, "_inode") || name == "fuse_inode")
}

// slab is a cache of the kernel's allocator.
type slab struct {
	name                        string
	objects                     int
	bytes, slot, perSlab, total int // total: bytes of a slab
	align                       int
}

// slabAlign is what objects are aligned to where nobody asks for more
// (ARCH_SLAB_MINALIGN).
const slabAlign = 8

// design says what one pointer more in each object would take.
func (s *slab) design(structure string) Design {
	d := Design{
		Structure: structure, Cache: s.name, Objects: s.objects,
		Bytes: s.bytes, Slot: s.slot, PerSlab: s.perSlab, SlabBytes: s.total,
	}
	fit := s.perSlab
	if larger := s.larger(); larger > s.slot {
		fit = min(fit, s.total/larger)
	}
	d.Absorbed = fit >= s.perSlab
	if !d.Absorbed && fit > 0 {
		slabs := (s.objects+fit-1)/fit - (s.objects+s.perSlab-1)/s.perSlab
		d.Cost = int64(slabs) * int64(s.total)
	}
	return d
}

// larger returns the slot of an object that has one pointer more. What a slot has besides
// the object and its alignment stays: the allocator's own pointer, where it cannot lie in
// an object that is free (calculate_sizes of mm/slub.c), and what finds errors.
func (s *slab) larger() int {
	align := func(n int) int { return (n + s.align - 1) / s.align * s.align }
	if s.slot == align(s.bytes+pointerBytes) && s.slot != align(s.bytes) {
		return align(s.bytes + 2*pointerBytes)
	}
	return align(s.bytes+pointerBytes) + s.slot - align(s.bytes)
}

// readSlabs reads /proc/slabinfo, and of the caches in /sys/kernel/slab how large their
// objects are without the padding: slabinfo(5). Only root may.
func readSlabs() ([]slab, error) {
	b, err := os.ReadFile("/proc/slabinfo")
	if err != nil {
		return nil, err
	}
	slabs, err := parseSlabs(b, os.Getpagesize())
	for i := range slabs {
		s := &slabs[i]
		if n := slabAttribute(s.name, "object_size"); n > 0 && n <= s.slot {
			s.bytes = n
		}
		if n := slabAttribute(s.name, "align"); n > slabAlign {
			s.align = n
		}
	}
	return slabs, err
}

func slabAttribute(cache, attribute string) int {
	words, err := numberWords(filepath.Join("/sys/kernel/slab", cache, attribute))
	if err != nil || len(words) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(words[0]) // 0 means that it is not known
	return n
}

// parseSlabs reads the text of version 2.1: name, active objects, objects, size of one,
// objects in a slab, pages of a slab.
func parseSlabs(text []byte, page int) ([]slab, error) {
	var slabs []slab
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if n <= 2 || len(words) == 0 {
			continue
		}
		s := slab{name: words[0], align: slabAlign}
		var pages int
		for i, to := range []*int{1: &s.objects, 3: &s.slot, 4: &s.perSlab, 5: &pages} {
			if to == nil {
				continue
			}
			if i >= len(words) {
				return nil, fmt.Errorf("/proc/slabinfo, line %d: %d words", n, len(words))
			}
			v, err := strconv.Atoi(words[i])
			if err != nil || v < 0 || v > 1<<40 {
				return nil, fmt.Errorf("/proc/slabinfo, line %d: %q is no count", n, words[i])
			}
			*to = v
		}
		if s.slot == 0 || s.perSlab == 0 || pages == 0 {
			return nil, fmt.Errorf("/proc/slabinfo, line %d: a cache of nothing", n)
		}
		s.bytes, s.total = s.slot, pages*page
		slabs = append(slabs, s)
	}
	return slabs, lines.Err()
}

// weighTable loads the programs and asks what their table takes.
func (c *Census) weighTable() {
	s, err := bpf.NewSampler(bpf.Options{})
	if err != nil {
		c.miss("Hallmark's table", errors.New(backend.WhyNot(backend.Unusable(backend.BPF, err))))
		return
	}
	defer s.Close()
	m, err := s.Memory()
	if err != nil {
		c.miss("Hallmark's table", err)
		return
	}
	c.Table = &TableCost{bpf.DefaultEntries, m.Table}
}
