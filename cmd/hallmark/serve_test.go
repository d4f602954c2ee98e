package main

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/buildid"
	"hallmark/internal/certtest"
	"hallmark/internal/perftest"
	"hallmark/internal/proftest"
	"hallmark/internal/testenv"
	"hallmark/procmap"
	"hallmark/symbol"
)

// serveCommand starts 'hallmark serve' over an empty directory, and returns its URL. It is ended by SIGTERM, and
// has to take that well.
func serveCommand(t *testing.T, args ...string) (base string) {
	t.Helper()
	cmd := exec.Command("hallmark", append([]string{"serve", "--listen", "127.0.0.1:0", "--no-upstream", "--quiet", "--store", t.TempDir(), "--cache", t.TempDir()}, args...)...)
	cmd.Stderr = t.Output()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer time.AfterFunc(testenv.Patience, func() { cmd.Process.Kill() }).Stop()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("no line on standard output: %v", err)
	}
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "Serving" {
		t.Fatalf("the first line is %q", line)
	}
	return words[1]
}

// elsewhere runs hallmark as on another machine, with caches and a configuration of its own.
func elsewhere(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs strings.Builder
	cmd := exec.Command("hallmark", args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir(), "DEBUGINFOD_URLS=", "HALLMARK_SERVER=")
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// buildOrders builds a program with an inlined call in a directory. With an argument it waits for a signal.
func buildOrders(t *testing.T, dir string) (prog string, info buildid.Info) {
	t.Helper()
	prog = filepath.Join(dir, "prog")
	source := "#include <unistd.h>\nstatic inline __attribute__((always_inline)) int price_of_order(int x) { return x * 7; }\n__attribute__((noinline)) int sum_of_orders(int x) { return price_of_order(x) + 1; }\nint main(int c, char **v) { if (c > 1) pause(); return sum_of_orders(c); }\n"
	if err := os.WriteFile(prog+".c", []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-g", "-O2", "-Wl,--build-id", "-o", prog, prog+".c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := buildid.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	return prog, info
}

// TestServe pushes a program to a server, removes it from this machine, and asks for its functions and lines
// and for the file itself.
func TestServe(t *testing.T) {
	testenv.Tool(t, "gcc")
	dir := t.TempDir()
	prog, info := buildOrders(t, dir)
	content, err := os.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	outer := functionOf(t, prog, "sum_of_orders")
	base := serveCommand(t)

	if out, errs, err := elsewhere(t, "push", "--server", base, prog); err != nil || !strings.Contains(out, "1 file sent (") || errs != "" {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	if out, _, err := elsewhere(t, "push", "--server", base, "--json", prog); err != nil || !strings.Contains(out, `"action":"skipped"`) {
		t.Errorf("once more: %v: %s", err, out)
	}
	if out, err := exec.Command("strip", prog).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	stranger := exec.Command(prog, "wait")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { stranger.Process.Kill(); stranger.Wait() }()
	code := mapped(t, stranger.Process.Pid, prog)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}

	text := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(text, fmt.Appendf(nil, "    #0 0x1  (/gone/prog+%#x) (BuildId: %v)\n", outer+1, info.ID), 0o644); err != nil {
		t.Fatal(err)
	}
	m := &pprof.Mapping{ID: 1, Start: 0, Limit: 1 << 20, File: "/gone/prog", BuildID: info.ID.String()}
	l := &pprof.Location{ID: 1, Mapping: m, Address: outer}
	saved := proftest.Save(t, &pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}},
		Sample:     []*pprof.Sample{{Location: []*pprof.Location{l}, Value: []int64{1}}},
		Location:   []*pprof.Location{l}, Mapping: []*pprof.Mapping{m},
	})
	for _, args := range [][]string{
		{"symbolize", text},
		{"report", saved},
		{"convert", "--format", "folded", "-o", "-", saved},
		{"addr", strconv.Itoa(stranger.Process.Pid), fmt.Sprintf("%x", uint64(code.Start)+outer-uint64(code.Offset))},
		{"convert", "--format", "html", "-o", "-", saved},
	} {
		out, errs, err := elsewhere(t, append(args, "--server", base)...)
		if err != nil || !strings.Contains(out, "sum_of_orders") || !strings.Contains(out, "price_of_order") {
			t.Errorf("%s: %v:\n%.2000s%s", args, err, out, errs)
		}
		if out, _, err := elsewhere(t, args...); err != nil || strings.Contains(out, "sum_of_orders") {
			t.Errorf("%s without a server: %v:\n%s", args, err, out)
		}
	}
	lacked := filepath.Join(t.TempDir(), "lacked")
	if err := os.WriteFile(lacked, fmt.Appendf(nil, "    #0 0x1  (/gone/other+0x1) (BuildId: %040x)\n", 7), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, errs, _ := elsewhere(t, "symbolize", "--server", base, lacked); !strings.Contains(errs, "send it to the server with 'hallmark push'") {
		t.Errorf("of a file that the server lacks: %s", errs)
	}
	if _, errs, _ := elsewhere(t, "symbolize", lacked); strings.Contains(errs, "hallmark push") || !strings.Contains(errs, "install its package") {
		t.Errorf("of a file that nobody has: %s", errs)
	}
	if out, errs, err := elsewhere(t, "report", "--server", "http://127.0.0.1:1", saved); err != nil || !strings.Contains(errs, "symbol server http://127.0.0.1:1: ") || !strings.Contains(out, "prog [unknown]") {
		t.Errorf("without a server at that port: %v:\n%s%s", err, out, errs)
	}

	resp, err := http.Get(fmt.Sprintf("%s/buildid/%v/executable", base, info.ID))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != string(content) {
		t.Errorf("the server has %d other bytes, %v", len(got), err)
	}
	question, err := json.Marshal(map[string]any{"files": []any{map[string]any{"id": info.ID.String(), "addresses": []uint64{outer}}}})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Post(base+"/v1/symbolize", "application/json", strings.NewReader(string(question)))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if got, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(got), `"sum_of_orders"`) || !strings.Contains(string(got), "prog.c") {
		t.Errorf("%v: %s", err, got)
	}
}

// TestServeForward has a server put names into a message for another server, and wants the names that 'hallmark
// convert' gives the same profile.
func TestServeForward(t *testing.T) {
	testenv.Tool(t, "gcc")
	dir := t.TempDir()
	prog, info := buildOrders(t, dir)
	m := &pprof.Mapping{ID: 1, Start: 0, Limit: 1 << 20, File: "/gone/prog", BuildID: info.ID.String()}
	p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}}, Mapping: []*pprof.Mapping{m}}
	first := functionOf(t, prog, "sum_of_orders")
	for i, at := range []uint64{first, first + 1, functionOf(t, prog, "main"), 1 << 19} {
		l := &pprof.Location{ID: uint64(i + 1), Mapping: m, Address: at}
		p.Location = append(p.Location, l)
		p.Sample = append(p.Sample, &pprof.Sample{Location: []*pprof.Location{l}, Value: []int64{int64(i + 1)}})
	}
	saved, bare, named := proftest.Save(t, p), filepath.Join(dir, "bare.otlp"), filepath.Join(dir, "named.otlp")

	got := make(chan error, 1)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		z, err := gzip.NewReader(r.Body)
		if err == nil {
			var b []byte
			if b, err = io.ReadAll(z); err == nil {
				err = os.WriteFile(named, b, 0o600)
			}
		}
		if r.Header.Get("Authorization") != "Bearer secret" || r.URL.Path != "/otlp/v1development/profiles" {
			err = fmt.Errorf("%s %v", r.URL, r.Header)
		}
		got <- err
	}))
	defer backend.Close()
	headers := filepath.Join(dir, "headers")
	if err := os.WriteFile(headers, []byte("\nAuthorization: Bearer secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	base := serveCommand(t, "--forward", backend.URL+"/otlp", "--forward-headers", headers)
	if out, errs, err := elsewhere(t, "push", "--server", base, prog); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	if err := os.Remove(prog); err != nil {
		t.Fatal(err)
	}
	if out, errs, err := elsewhere(t, "convert", "--no-symbols", "-o", bare, saved); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	message, err := os.Open(bare)
	if err != nil {
		t.Fatal(err)
	}
	defer message.Close()
	resp, err := http.Post(base+"/v1development/profiles", "application/x-protobuf", message)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(testenv.Patience):
		t.Fatal("nothing was passed on")
	}
	want, _, err := elsewhere(t, "convert", "--server", base, "--format", "pprof", "-o", "-", saved)
	if err != nil {
		t.Fatal(err)
	}
	out, errs, err := elsewhere(t, "convert", "--no-symbols", "--format", "pprof", "-o", "-", named)
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	if got, want := locations(t, out), locations(t, want); got != want || !strings.Contains(want, "price_of_order") || !strings.Contains(want, "prog.c:2 ") {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// locations returns the functions, files and lines of a profile as text.
func locations(t *testing.T, data string) string {
	t.Helper()
	p, err := pprof.ParseData([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, l := range p.Location {
		fmt.Fprintf(&all, "%#x", l.Address)
		for _, line := range l.Line {
			f := line.Function
			fmt.Fprintf(&all, " %s (%s) %s:%d from %d", f.Name, f.SystemName, f.Filename, line.Line, f.StartLine)
		}
		all.WriteString("\n")
	}
	return all.String()
}

// functionOf returns the file offset of a function.
func functionOf(t *testing.T, path, name string) uint64 {
	t.Helper()
	file, err := symbol.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	functions, err := file.Functions()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range functions {
		if f.Name == name {
			o, ok := file.Offset(f.Virt)
			if !ok {
				break
			}
			return uint64(o)
		}
	}
	t.Fatalf("%s has no %s", path, name)
	return 0
}

// mapped returns the code of a file that a process has mapped.
func mapped(t *testing.T, pid int, path string) (code procmap.VMA) {
	t.Helper()
	testenv.Await(t, path, func() bool {
		p, err := procmap.Open(pid)
		if err != nil {
			return false
		}
		defer p.Close()
		vmas, err := p.Executable()
		i := slices.IndexFunc(vmas, func(v procmap.VMA) bool { return v.Name == path })
		if err != nil || i < 0 {
			return false
		}
		code = vmas[i]
		return true
	})
	return code
}

// TestPushKernel pushes what a profile of the machine needs that has code of the kernel: the vdso is sent, and that
// the kernel has no file here is no failure.
func TestPushKernel(t *testing.T) {
	vdso, err := buildid.ReadVDSO()
	testenv.Need(t, err == nil, "a vdso")
	p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}}}
	for i, m := range []*pprof.Mapping{
		{File: "[kernel]", BuildID: "0102030405060708090a0b0c0d0e0f1011121314"},
		{File: "[ext4]", BuildID: "1102030405060708090a0b0c0d0e0f1011121314"},
		{File: "[vdso]", BuildID: vdso.ID.String()},
	} {
		m.ID, m.Limit = uint64(i+1), 1<<20
		l := &pprof.Location{ID: m.ID, Mapping: m, Address: 0x800}
		p.Mapping, p.Location = append(p.Mapping, m), append(p.Location, l)
		p.Sample = append(p.Sample, &pprof.Sample{Location: []*pprof.Location{l}, Value: []int64{1}})
	}
	base := serveCommand(t)
	out, errs, err := elsewhere(t, "push", "--server", base, proftest.Save(t, p))
	if err != nil || errs != "" || !strings.Contains(out, vdso.ID.String()+" [vdso]") || !strings.Contains(out, "1 file sent (") {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	resp, err := http.Get(strings.TrimSuffix(base, "/") + "/buildid/" + vdso.ID.String() + "/executable")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	name := filepath.Join(t.TempDir(), "vdso")
	b, err := io.ReadAll(resp.Body)
	if err == nil {
		err = os.WriteFile(name, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if info, err := buildid.ReadFile(name); err != nil || info.ID != vdso.ID {
		t.Errorf("the server has another vdso: %v, %v", info.ID, err)
	}
	// Another kernel's is missing.
	p.Mapping[2].BuildID = "2102030405060708090a0b0c0d0e0f1011121314"
	if _, errs, err := elsewhere(t, "push", "--server", base, proftest.Save(t, p)); err == nil || !strings.Contains(errs, "[vdso]: no file") {
		t.Errorf("the vdso of another kernel: %v: %s", err, errs)
	}
}

// TestServeCertificates has clients with certificates push to a server, and ask it, without any token.
func TestServeCertificates(t *testing.T) {
	testenv.Tool(t, "gcc")
	prog, info := buildOrders(t, t.TempDir())
	authority := certtest.NewAuthority(t)
	ca := authority.Write(t)
	host := certtest.Write(t, authority.Issue(t, x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}))
	build := certtest.Write(t, authority.Issue(t, x509.Certificate{DNSNames: []string{"build.example.org"}}))
	stranger := certtest.Write(t, authority.Issue(t, x509.Certificate{DNSNames: []string{"stranger.example.org"}}))
	tokens := filepath.Join(t.TempDir(), "tokens.json")
	if out, errs, err := elsewhere(t, "serve", "token", "--tokens", tokens, "--name", "build", "--role", "upload:ci", "--role", "symbolize", "--certificate", "dns:build.example.org"); err != nil || out != "" {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	if _, errs, err := elsewhere(t, "serve", "token", "--tokens", tokens, "--name", "other", "--role", "read", "--certificate", "build.example.org"); err == nil || !strings.Contains(errs, "dns:NAME") {
		t.Errorf("a name of no kind: %v: %s", err, errs)
	}
	base := serveCommand(t, "--tokens", tokens, "--tls-cert", host, "--tls-key", host, "--client-ca", ca)
	t.Setenv("SSL_CERT_FILE", ca)
	if out, errs, err := elsewhere(t, "push", "--server", base, "--client-cert", build, prog); err != nil || !strings.Contains(out, "1 file sent (") {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	text := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(text, fmt.Appendf(nil, "    #0 0x1  (/gone/prog+%#x) (BuildId: %v)\n", functionOf(t, prog, "sum_of_orders")+1, info.ID), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, errs, err := elsewhere(t, "symbolize", "--server", base, "--client-cert", build, text); err != nil || !strings.Contains(out, "sum_of_orders") {
		t.Errorf("%v: %s%s", err, out, errs)
	}
	if _, errs, err := elsewhere(t, "push", "--server", base, "--client-cert", stranger, prog); err == nil || !strings.Contains(errs, "dns:stranger.example.org") {
		t.Errorf("a certificate that the file of tokens does not have: %v: %s", err, errs)
	}
	if _, _, err := elsewhere(t, "push", "--server", base, prog); err == nil {
		t.Error("no certificate is needed")
	}
	if _, errs, err := elsewhere(t, "push", "--server", base, "--client-key", build, prog); err == nil || !strings.Contains(errs, "--client-cert") {
		t.Errorf("a key alone: %v: %s", err, errs)
	}
	if _, errs, err := elsewhere(t, "push", "--server", strings.Replace(base, "https:", "http:", 1), "--client-cert", build, prog); err == nil || !strings.Contains(errs, "https://") {
		t.Errorf("a certificate that nobody would see: %v: %s", err, errs)
	}
	if _, errs, err := elsewhere(t, "push", "--server", base, "--client-cert", prog, prog); err == nil || !strings.Contains(errs, prog) {
		t.Errorf("a certificate that is none: %v: %s", err, errs)
	}

	// The server takes up other authorities as the file has them: none of before, and those of now.
	next := certtest.NewAuthority(t)
	renewed := certtest.Write(t, next.Issue(t, x509.Certificate{DNSNames: []string{"build.example.org"}}))
	push := func(certificate string) error {
		_, _, err := elsewhere(t, "push", "--server", base, "--client-cert", certificate, prog)
		return err
	}
	if push(renewed) == nil {
		t.Error("a certificate of an authority that the file does not have")
	}
	become := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(ca+".new", text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(ca+".new", ca); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SSL_CERT_FILE", authority.Write(t)) // a copy, as the server's own certificate stays
	theirs, err := os.ReadFile(next.Write(t))
	if err != nil {
		t.Fatal(err)
	}
	become(theirs)
	if err := push(renewed); err != nil {
		t.Errorf("a certificate of a new authority: %v", err)
	}
	if push(build) == nil {
		t.Error("a certificate of an authority that the file has no longer")
	}
	become(nil)
	if push(renewed) == nil {
		t.Error("the file of authorities is empty")
	}
}

// TestPushCopiedStacks pushes a recording by perf whose stacks are copies: only this machine can find the callers in them.
func TestPushCopiedStacks(t *testing.T) {
	gcc := testenv.Tool(t, "gcc")
	dir := t.TempDir()
	program, file := filepath.Join(dir, "deep"), filepath.Join(dir, "perf.data")
	build := exec.Command(gcc, "-g", "-O2", "-fomit-frame-pointer", "-Wl,--build-id", "-xc", "-", "-o", program)
	build.Stdin = strings.NewReader(`
volatile int n;
__attribute__((noinline)) int innermost(void) { for (int i = 0; i < 300000000; i++) n++; return n; }
__attribute__((noinline)) int between(void) { return innermost() + 1; }
int main(void) { return between() + 2 == 7; }
`)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	perftest.Record(t, file, perftest.Asks, "-e", "cpu-clock:u", "--call-graph", "dwarf,4096", "-F", "199", "--", program)
	base := serveCommand(t)
	out, errs, err := elsewhere(t, "push", "--json", "--server", base, "--profile", file)
	var exit *exec.ExitError // what perf saw of the kernel's is no file here
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	var id string
	for line := range strings.Lines(out) {
		var r struct{ Profile string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		id = cmp.Or(r.Profile, id)
	}
	resp, err := http.Get(base + "/v1/profiles/" + id + "?named=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	p, err := pprof.Parse(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	deep, all := 0, 0
	for _, s := range p.Sample {
		var names []string
		for _, l := range s.Location {
			for _, line := range l.Line {
				names = append(names, line.Function.Name)
			}
		}
		if text := strings.Join(names, " "); strings.HasPrefix(text, "innermost") {
			all++
			if strings.HasPrefix(text, "innermost between main") {
				deep++
			}
		}
	}
	if all == 0 {
		testenv.Lack(t, "%d samples, none in the loop", len(p.Sample))
	}
	if deep == 0 {
		t.Errorf("none of %d stacks has the callers of the loop", all)
	}
	// push sends the readable part of a damaged one, and its exit status says that it is not all.
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, err = elsewhere(t, "push", "--server", base, "--profile", file)
	if !errors.As(err, &exit) || !strings.Contains(errs, "unexpected EOF") || !strings.Contains(out, "/profiles/") {
		t.Errorf("a damaged recording: %v: %s%s", err, out, errs)
	}
}

// TestPushProfileElsewhere pushes a profile whose file is gone from this machine: that is no failure where the server
// has it, and one where it does not.
func TestPushProfileElsewhere(t *testing.T) {
	base := serveCommand(t)
	prog, info := buildOrders(t, t.TempDir())
	if _, stderr, err := elsewhere(t, "push", "--server", base, prog); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if err := os.Remove(prog); err != nil {
		t.Fatal(err)
	}
	profileOf := func(id, name string) string {
		m := &pprof.Mapping{ID: 1, Start: 0x1000, Limit: 0x2000, File: "/gone/" + name, BuildID: id}
		l := &pprof.Location{ID: 1, Mapping: m, Address: 0x1100}
		p := &pprof.Profile{
			SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}},
			Sample:     []*pprof.Sample{{Location: []*pprof.Location{l}, Value: []int64{1}}},
			Mapping:    []*pprof.Mapping{m}, Location: []*pprof.Location{l},
		}
		return proftest.Save(t, p)
	}
	stdout, stderr, err := elsewhere(t, "push", "--server", base, "--profile", profileOf(info.ID.String(), "known"))
	if err != nil || stderr != "" || !strings.Contains(stdout, "1 already there, 0 failed") {
		t.Errorf("of a file that the server has: %v\n%s%s", err, stdout, stderr)
	}
	stdout, stderr, err = elsewhere(t, "push", "--server", base, "--profile", profileOf(strings.Repeat("ab", 20), "unknown"))
	if err == nil || !strings.Contains(stderr, "no file with this identity is on this machine, nor at the server") || !strings.Contains(stdout, "0 already there, 1 failed") {
		t.Errorf("of a file that nobody has: %v\n%s%s", err, stdout, stderr)
	}
}
