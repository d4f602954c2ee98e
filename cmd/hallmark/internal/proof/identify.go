package proof

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/perffile"
	"hallmark/internal/plaintext"
	"hallmark/perfdata"
)

// An Identifier finds the identities that a recording by perf lacks, of files that are proven to
// be those that were mapped, or with trust of those that are at the paths.
type Identifier struct {
	Recording *perffile.Recording
	Reader    *perfdata.Reader
	Trust     bool // of files without proof, those at the paths

	prover  *prover
	info    *perfdata.Info // with the times of samples
	trusted int            // files without proof
	until   time.Time      // contents are read
	why     error          // of a file that is not proven, or is not there, why not
	file    string         // which that is: see note
}

// Identify returns the identity of a file, zero where it is not proven.
func (k *Identifier) Identify(file, kernel *perfdata.Mmap2) buildid.ID {
	if k.prover == nil {
		k.prover = k.newProver(kernel)
	}
	k.prover.image = kernel
	if k.Reader.Pipe() && k.Recording.Size < 0 {
		k.prover.info = k.Reader.Info() // which grows
	}
	v := k.prover.mapped(file)
	if k.prover.info.Hostname == "" && !v.ID.IsZero() { // disks of other machines may be alike
		v.Trusted, v.Err = true, fmt.Errorf("%w: the recording does not name its machine", errUnproven)
		if !k.Trust {
			v = Verdict{Err: v.Err}
		}
	}
	switch {
	case v.Trusted:
		k.trusted++
	case v.Err != nil:
		k.note(file.Name, v.Err)
	}
	return v.ID
}

// note remembers why a file has no identity, if that is what Advice shows: of files that are there but not
// proven, else of those that are not there, the one with the least name. Files come in any order.
func (k *Identifier) note(file string, why error) {
	isThere, wasThere := errors.Is(why, errUnproven), errors.Is(k.why, errUnproven)
	if k.why == nil || isThere && !wasThere || isThere == wasThere && file < k.file {
		k.why, k.file = why, file
	}
}

// contentTime bounds how long contents of files are read for one recording.
const contentTime = 5 * time.Second

// Content returns the content of a file that was identified, zero where it is not proven to
// be the one that was mapped, or takes too long to read.
func (k *Identifier) Content(file *perfdata.Mmap2) buildid.Content {
	if k.prover == nil || k.prover.info.Hostname == "" {
		return buildid.Content{}
	}
	if k.until.IsZero() {
		k.until = time.Now().Add(contentTime)
	}
	return k.prover.content(file, k.until)
}

// newProver returns what proves files. When it was recorded is not known of a stream before
// it ends.
func (k *Identifier) newProver(kernel *perfdata.Mmap2) *prover {
	p := &prover{info: k.Timed(), image: kernel, trust: k.Trust}
	if p.info.FirstSample != 0 {
		p.began = p.beganBefore(p.info.FirstSample, p.info.LastSample, k.Recording.Written)
	}
	return p
}

// Timed returns what the recording says of itself, with the times of its samples. perf does not
// write these where records are compressed, and into no stream: then all records are read once
// more, if they can be.
func (k *Identifier) Timed() *perfdata.Info {
	if k.info != nil {
		return k.info
	}
	info := *k.Reader.Info()
	k.info = &info
	if info.FirstSample != 0 && info.Hostname != "" {
		return k.info
	}
	if r, err := k.Recording.Reader(perfdata.ReaderOptions{FileOrder: true}, true); err == nil {
		defer r.Close()
		first, last := sampleTimes(r)
		*k.info = *r.Info()
		k.info.FirstSample, k.info.LastSample = first, last
	}
	return k.info
}

// sampleTimes reads all records, and returns the times of the first sample and of the last one.
func sampleTimes(r *perfdata.Reader) (first, last uint64) {
	for {
		rec, err := r.Next()
		if err != nil {
			return first, last
		}
		if s, ok := rec.(*perfdata.Sample); ok && s.Time != 0 {
			if first == 0 || s.Time < first {
				first = s.Time
			}
			last = max(last, s.Time)
		}
	}
}

// Notes says how many files were taken without proof.
func (k *Identifier) Notes() []string {
	if k.trusted == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s taken from the recorded paths without proof", plaintext.Plural(int64(k.trusted), "file"))}
}

// Advice returns what helps where frames are in files without identity, "" where there are none.
func (k *Identifier) Advice(unrecorded int64) string {
	if unrecorded == 0 || k.Trust {
		return ""
	}
	info := k.Reader.Info()
	var uts unix.Utsname
	here := unix.Uname(&uts) == nil && unix.ByteSliceToString(uts.Nodename[:]) == info.Hostname
	switch {
	case !here:
		return strings.TrimSpace("run 'hallmark inject' on the machine that recorded "+info.Hostname) +
			k.orRecord(", or record with %s") + "; --trust-paths takes this machine's files at the paths, without proof"
	case k.Recording.Size < 0:
		return "a stream proves nothing before its end: pass it through 'hallmark inject -' first" + k.orRecord(", or record with %s") +
			"; --trust-paths takes the files at the paths, without proof"
	case errors.Is(k.why, errUnproven):
		return fmt.Sprintf("%s: %v; --trust-paths takes the files at the paths, without proof", plaintext.Name(k.file), k.why) + k.orRecord(", and %s records build IDs")
	case k.why != nil: // there is no file that could be trusted
		return fmt.Sprintf("%s: %v", plaintext.Name(k.file), k.why) + cmp.Or(k.orRecord("; %s records build IDs"), ", and the kernel found no build ID in it")
	}
	return k.orRecord("record with %s; ") + "--trust-paths takes the files at the paths, without proof"
}

// orRecord returns text with the way to record build IDs, "" for a recording that was made so.
func (k *Identifier) orRecord(format string) string {
	if slices.ContainsFunc(k.Reader.Events(), func(e *perfdata.Event) bool { return e.Attr.Flags&perfdata.AttrBuildID != 0 }) {
		return ""
	}
	return fmt.Sprintf(format, "'perf record --buildid-mmap'")
}
