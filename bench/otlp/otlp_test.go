// Package otlp has other programs send profiles to 'hallmark serve --forward' and take them from it: the client of
// grpc-go, and the OpenTelemetry Collector.
package otlp

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
)

const patience = time.Minute

// build builds a command.
func build(t *testing.T, dir, pkg string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-o", out, pkg)
	cmd.Dir = dir
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return out
}

// run runs a command as on a machine without caches and settings, and returns what it prints.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir(), "DEBUGINFOD_URLS=", "HALLMARK_SERVER=")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return string(out)
}

// sink takes messages and keeps the last one.
type sink struct {
	*httptest.Server
	came chan []byte
}

func newSink(t *testing.T) *sink {
	s := &sink{came: make(chan []byte, 16)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		b, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		s.came <- b
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *sink) next(t *testing.T) []byte {
	t.Helper()
	select {
	case b := <-s.came:
		return b
	case <-time.After(patience):
		t.Fatal("no message came")
		return nil
	}
}

// serve starts a server and returns its URL.
func serve(t *testing.T, hallmark string, args ...string) string {
	t.Helper()
	cmd := exec.Command(hallmark, append([]string{"serve", "--listen", "127.0.0.1:0", "--no-upstream", "--quiet", "--store", t.TempDir(), "--cache", t.TempDir()}, args...)...)
	cmd.Stderr = t.Output()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(t, cmd)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(line)[1]
}

// start starts a program, which ends by SIGTERM when the test does.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer time.AfterFunc(patience, func() { cmd.Process.Kill() }).Stop()
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
	})
}

// message has one stack, and a string of so many bytes.
func message(size int) pprofile.Profiles {
	p := pprofile.NewProfiles()
	d := p.Dictionary()
	d.StringTable().Append("", "samples", "count", strings.Repeat("x", size))
	d.MappingTable().AppendEmpty()
	d.LocationTable().AppendEmpty()
	d.LocationTable().AppendEmpty().SetAddress(0x1234)
	d.FunctionTable().AppendEmpty()
	d.LinkTable().AppendEmpty()
	d.AttributeTable().AppendEmpty()
	d.StackTable().AppendEmpty()
	d.StackTable().AppendEmpty().LocationIndices().Append(1)
	one := p.ResourceProfiles().AppendEmpty().ScopeProfiles().AppendEmpty().Profiles().AppendEmpty()
	one.SampleType().SetTypeStrindex(1)
	one.SampleType().SetUnitStrindex(2)
	s := one.Samples().AppendEmpty()
	s.SetStackIndex(1)
	s.Values().Append(3)
	return p
}

// TestGRPC has the Collector's client of gRPC send messages of up to 64 MiB.
func TestGRPC(t *testing.T) {
	hallmark := build(t, "../..", "./cmd/hallmark")
	s := newSink(t)
	base := serve(t, hallmark, "--forward", s.URL)
	conn, err := grpc.NewClient(strings.TrimPrefix(base, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := pprofileotlp.NewGRPCClient(conn)
	marshal := pprofile.ProtoMarshaler{}
	const most = 64 << 20
	rest := marshal.ProfilesSize(message(most)) - most
	for _, size := range []int{10, 1 << 20, most - rest, most - rest + 1} {
		for _, opts := range [][]grpc.CallOption{nil, {grpc.UseCompressor("gzip")}} {
			m := message(size)
			want, err := marshal.MarshalProfiles(m)
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			_, err = client.Export(context.Background(), pprofileotlp.NewExportRequestFromProfiles(m), opts...)
			if size > most-rest {
				if status.Code(err) != codes.ResourceExhausted {
					t.Errorf("%d bytes: %v", len(want), err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%d bytes: %v", len(want), err)
			}
			t.Logf("%d bytes, %d options: %v", len(want), len(opts), time.Since(begin))
			if got := s.next(t); string(got) != string(want) {
				t.Errorf("%d bytes came as %d", len(want), len(got))
			}
		}
	}
	bad := message(1)
	bad.Dictionary().StackTable().At(1).LocationIndices().Append(99)
	if _, err := client.Export(context.Background(), pprofileotlp.NewExportRequestFromProfiles(bad)); status.Code(err) != codes.InvalidArgument || !strings.Contains(status.Convert(err).Message(), "location 99 of 2") {
		t.Errorf("a damaged message: %v", err)
	}
}

const source = `
static inline __attribute__((always_inline)) unsigned price_of_order(unsigned x) { return x * 7 ^ x >> 3; }
__attribute__((noinline)) unsigned sum_of_orders(unsigned x) { unsigned s = 0; for (unsigned i = 0; i < 30000; i++) s += price_of_order(s ^ x ^ i); return s; }
__attribute__((noinline)) unsigned month(unsigned x) { return sum_of_orders(x) + 1; }
int main(int c, char **v) { unsigned s = 0; for (int i = 0; i < 20000; i++) s += month(i); return s & 1; }
`

// TestCollector records a program, has 'serve --forward' name the profile, has the Collector receive it and send it
// further, and compares the names with those of 'hallmark report'.
func TestCollector(t *testing.T) {
	hallmark, collector := build(t, "../..", "./cmd/hallmark"), build(t, ".", "./collector")
	dir := t.TempDir()
	prog := filepath.Join(dir, "prog")
	if err := os.WriteFile(prog+".c", []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-g", "-O2", "-Wl,--build-id", "-o", prog, prog+".c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	recorded, bare, named := filepath.Join(dir, "prog.pb.gz"), filepath.Join(dir, "bare.otlp"), filepath.Join(dir, "named.otlp")
	cmd := exec.Command(hallmark, "record", "--no-symbols", "-o", recorded, "--", prog)
	cmd.Stderr = t.Output()
	if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() > 1 {
		t.Fatal(err)
	}

	last := newSink(t)
	port := freePort(t)
	config := fmt.Sprintf(`yaml:
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:%d"}}}}
exporters: {debug: {verbosity: detailed}, otlphttp: {endpoint: %q}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {profiles: {receivers: [otlp], exporters: [debug, otlphttp]}}
`, port, last.URL)
	c := exec.Command(collector, "--feature-gates=service.profilesSupport", "--config", config)
	var printed strings.Builder
	c.Stdout, c.Stderr = &printed, &printed
	start(t, c)
	await(t, fmt.Sprintf("127.0.0.1:%d", port))

	base := serve(t, hallmark, "--forward", fmt.Sprintf("http://127.0.0.1:%d", port))
	run(t, hallmark, "push", "--server", base, prog)
	if err := os.Remove(prog); err != nil {
		t.Fatal(err)
	}
	run(t, hallmark, "convert", "--no-symbols", "-o", bare, recorded)
	f, err := os.Open(bare)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	resp, err := http.Post(base+"/v1development/profiles", "application/x-protobuf", f)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	if err := os.WriteFile(named, last.next(t), 0o600); err != nil {
		t.Fatal(err)
	}
	want, got := run(t, hallmark, "report", "--server", base, recorded), run(t, hallmark, "report", named)
	if !strings.Contains(want, "price_of_order") || got != want {
		t.Errorf("by way of the Collector:\n%s\nwant\n%s", got, want)
	}
	lines := func(name string) string {
		return run(t, hallmark, "convert", "--server", base, "--format", "folded", "-o", "-", name)
	}
	if got, want := lines(named), lines(recorded); got != want {
		t.Errorf("stacks by way of the Collector:\n%s\nwant\n%s", got, want)
	}
	for _, word := range []string{"price_of_order", "sum_of_orders", "prog.c"} {
		if !strings.Contains(printed.String(), word) {
			t.Errorf("the Collector does not print %s", word)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// await waits until somebody listens.
func await(t *testing.T, address string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return
		}
	}
	t.Fatalf("nobody listens at %s", address)
}
