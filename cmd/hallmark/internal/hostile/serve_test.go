package hostile

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"hallmark/internal/elftest"
	"hallmark/internal/testenv"
)

// A target is a symbol server under attack.
type target struct {
	t     *testing.T
	place *place
	base  string
	start time.Time
	sent  atomic.Int64 // bytes of requests
	http  http.Client
}

// underAttack runs serve, and wants it to answer and to end well after the attack.
func (p *place) underAttack(attack func(*target), args ...string) {
	p.t.Helper()
	name, err := hallmark()
	if err != nil {
		p.t.Fatal(err)
	}
	before := p.list()
	c := line(append([]string{"serve", "--listen", "127.0.0.1:0", "--no-upstream", "--store", p.out("store")}, args...)...)
	cmd := p.command(name, c)
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	stderr := p.stream("stderr")
	defer stderr.Close()
	cmd.Stderr = stderr
	forget()
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	killed := guard(cmd.Process.Pid)
	children := childrenPeak(cmd.Process.Pid)
	first, _ := bufio.NewReader(out).ReadString('\n')
	at := strings.Index(first, "http://")
	if at < 0 {
		p.t.Fatalf("the first line is %q: %s", first, head(stderr))
	}
	base, _, _ := strings.Cut(first[at:], " ")
	s := &target{t: p.t, place: p, base: base, start: time.Now(), http: http.Client{Timeout: hangs, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	attack(s)
	s.http.CloseIdleConnections()
	if answer := s.ask("GET", "/healthz", nil); answer.status != http.StatusOK {
		p.t.Errorf("after the attack the server answers %d %.200q", answer.status, answer.body)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	why := killed()
	r := result{input: p.size("in") + s.sent.Load()}
	r.measure(cmd)
	r.stderr = head(stderr)
	if r.status != 0 {
		r.problem("exit status %d after SIGTERM", r.status)
	}
	if bytes.Contains(r.stderr, []byte("a defect of the server")) {
		r.problem("has a defect")
	}
	if peak := children(); peak > r.memoryLimit() {
		r.problem("a child takes %d MiB of memory, more than %d MiB", peak/mib, r.memoryLimit()/mib)
	}
	p.judge(&r, why, c)
	r.compare(before, p.list())
	p.report(c, &r)
}

// childrenPeak looks at the memory of all children of a process until it is asked for the most.
func childrenPeak(pid int) func() int64 {
	done, peak := make(chan struct{}), make(chan int64)
	go func() {
		var most int64
		for {
			tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
			for _, task := range tasks {
				text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
				for _, child := range strings.Fields(string(text)) {
					if n, err := strconv.Atoi(child); err == nil {
						most = max(most, resident(n))
					}
				}
			}
			select {
			case <-done:
				peak <- most
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() int64 { close(done); return <-peak }
}

// An answer is what a server said.
type answer struct {
	status int
	header http.Header
	body   []byte // its start
}

// ask makes a request. Headers are pairs.
func (s *target) ask(method, path string, body []byte, headers ...string) answer {
	s.t.Helper()
	s.sent.Add(int64(len(path) + len(body)))
	q, err := http.NewRequest(method, s.base+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.http.Do(q)
	if err != nil {
		s.t.Logf("%s %.100s: %v", method, path, err)
		return answer{}
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	a.body, _ = io.ReadAll(io.LimitReader(resp.Body, kept))
	n, _ := io.Copy(io.Discard, resp.Body)
	s.t.Logf("%s %.100q: %d, %d bytes: %.100q", method, path, a.status, int64(len(a.body))+n, a.body)
	s.harmless(a, path)
	return a
}

// harmless wants nothing that a browser or a terminal executes: no content that is taken for a page,
// no control characters where text is answered, and no answer 500.
func (s *target) harmless(a answer, path string) {
	s.t.Helper()
	if a.status >= 500 && a.status != http.StatusServiceUnavailable {
		s.t.Errorf("%.100q: %d %.300q", path, a.status, a.body)
	}
	kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	if len(a.body) > 0 && a.status != http.StatusMovedPermanently && a.status != http.StatusTemporaryRedirect && a.status != http.StatusPermanentRedirect &&
		kind != "text/plain" && kind != "application/json" && kind != "application/octet-stream" && kind != "application/x-protobuf" && !isPage(kind, a.header) {
		s.t.Errorf("%.100q: the answer has the type %q", path, kind)
	}
	if len(a.body) > 0 && a.status != http.StatusRequestHeaderFieldsTooLarge && a.header.Get("X-Content-Type-Options") != "nosniff" {
		s.t.Errorf("%.100q: a browser may guess the type", path)
	}
	var r result
	if kind == "application/json" || kind == "text/plain" {
		r.plain("the answer", a.body)
	}
	for name, values := range a.header {
		for _, v := range values {
			r.plain("the header "+name, []byte(v))
		}
	}
	for _, problem := range r.problems {
		s.t.Errorf("%.100q: %s", path, problem)
	}
}

// isPage reports whether an answer is a page of the server's own, or what such a page loads: its policy lets no other
// script run.
func isPage(kind string, h http.Header) bool {
	own := strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; ")
	return own && slices.Contains([]string{"text/html", "text/css", "text/javascript", "application/vnd.google.protobuf+gzip"}, kind)
}

// raw sends bytes, whatever they are, and returns the start of the answer.
func (s *target) raw(request string) string {
	s.t.Helper()
	s.sent.Add(int64(len(request)))
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(hangs))
	if _, err := io.WriteString(conn, request); err != nil {
		return err.Error()
	}
	text, _ := io.ReadAll(io.LimitReader(conn, kept))
	if strings.HasPrefix(string(text), "HTTP/1.1 5") && !strings.HasPrefix(string(text), "HTTP/1.1 50") {
		s.t.Errorf("%.100q: %.200q", request, text)
	}
	return string(text)
}

// push sends a file under its SHA-256.
func (s *target) push(file []byte, query string, headers ...string) answer {
	s.t.Helper()
	return s.ask("PUT", fmt.Sprintf("/v1/files/%x?%s", sha256.Sum256(file), query), file, headers...)
}

// symbolize asks for functions and lines of all programs' identity.
func (s *target) symbolize(virtual bool, addresses ...int) answer {
	s.t.Helper()
	q, err := json.Marshal(map[string]any{"files": []any{map[string]any{"id": buildIDText, "virtual": virtual, "addresses": addresses}}})
	if err != nil {
		s.t.Fatal(err)
	}
	return s.ask("POST", "/v1/symbolize", q, "Content-Type", "application/json")
}

// secret is in a file that no request may bring.
const secret = "a secret of this machine"

func (p *place) writeSecret() string {
	p.t.Helper()
	return p.write("secret", []byte(secret))
}

// TestServePrograms sends programs to a server, and asks for their functions and sections.
func TestServePrograms(t *testing.T) {
	names := sortedNames(programs)
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			if !testenv.Thorough() && i%6 != 3 {
				t.Skip("left to HALLMARK_THOROUGH=1")
			}
			newPlace(t).underAttack(func(s *target) {
				s.push(programs[name](t), "name="+url.QueryEscape("/lib/"+steering))
				s.symbolize(false, 0x1000, 0x1008, 0x1010, 0x1ff0)
				s.symbolize(true, 0x401000, 0x401008, 0x401ff0, 0)
				for _, path := range []string{"executable", "debuginfo", "section/.debug_info", "section/.text", "section/.symtab"} {
					s.ask("HEAD", "/buildid/"+buildIDText+"/"+path, nil)
				}
				s.ask("GET", "/v1/identities/"+buildIDText, nil)
				s.ask("GET", "/metadata?key=glob&value=*", nil)
			})
		})
	}
}

// TestServePaths asks for paths that lead elsewhere, and with headers that nobody sends.
func TestServePaths(t *testing.T) {
	p := newPlace(t)
	outside := p.writeSecret()
	p.underAttack(func(s *target) {
		s.push(manySymbols(3, "n"+steering), "name=prog")
		id := "/buildid/" + buildIDText
		up := strings.Repeat("../", 30)
		encoded := strings.Repeat("%2e%2e%2f", 30)
		paths := []string{
			outside, "/" + outside, "/../.." + outside, "/buildid/" + up + outside, "/buildid/" + encoded + outside[1:], "/buildid/" + up + "etc/passwd/executable",
			id + "/source" + outside, id + "/source/" + up + outside[1:], id + "/source/" + encoded + outside[1:], id + "/source/%00", id + "/source/%2f..%2f", id + "/source/",
			id + "/section/../../../../.." + outside, id + "/section/%00", id + "/section/", id + "/section/" + strings.Repeat("a", 1<<19), id + "/" + steering,
			id + "/executable/..", id + "//executable", id + "/executable%00", "/buildid/%00/executable", "/buildid/" + strings.Repeat("ab", 1<<18) + "/executable", "/buildid/zz/executable", "/buildid//executable",
			"/v1/identities/" + encoded + "x", "/v1/identities/%00", "/v1/identities/..", "/v1/uploads/..%2f..%2fx/0", "/metadata", "/metadata?key=file&value=%00", "/metadata?key=buildid&value=../..",
			"/metadata?key=glob&value=" + strings.Repeat("*a", 1<<17), "/metadata?key=glob&value=" + strings.Repeat("[", 1<<18), "/metadata?" + strings.Repeat("a&", 1<<18), "//evil.example/%2e%2e", "/\\evil.example", "*", "http://evil.example/",
		}
		for _, path := range paths {
			for _, method := range []string{"GET", "HEAD", "PUT", "POST", "DELETE", "TRACE", "\x01"} {
				text := s.raw(method + " " + strings.NewReplacer(" ", "%20", "\r", "%0d", "\n", "%0a").Replace(path) + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
				if strings.Contains(text, secret) || strings.Contains(text, "root:") {
					t.Errorf("%s %.100q answers with a file of the server: %.300q", method, path, text)
				}
				if location := strings.Index(text, "\r\nLocation: "); location >= 0 && strings.Contains(text[location:min(len(text), location+200)], "evil.example") && !strings.Contains(text[location:min(len(text), location+200)], "Location: /evil") {
					t.Errorf("%s %.100q leads elsewhere: %.300q", method, path, text)
				}
			}
		}
		var ranges strings.Builder
		for i := range 50_000 {
			fmt.Fprintf(&ranges, "%d-%d,", i, i)
		}
		for _, header := range []string{
			"Range: bytes=0-" + strings.Repeat("9", 18), "Range: bytes=-" + strings.Repeat("9", 30), "Range: bytes=9223372036854775807-9223372036854775807", "Range: bytes=" + ranges.String() + "0-0",
			"Range: bytes=" + strings.Repeat("0-,", 100_000) + "0-", "Range: bytes=" + strings.Repeat("0-,", 200) + "0-", "If-None-Match: " + strings.Repeat(`"a",`, 100_000), "If-Match: *", "X-Forwarded-For: " + strings.Repeat("a,", 100_000),
			"X-Forwarded-For: \x1b[2J", "Transfer-Encoding: chunked\r\nContent-Length: 5", "Content-Length: -1", "Content-Length: 99999999999999999999", "Host: evil.example", "Expect: 100-continue", "Upgrade: websocket\r\nConnection: upgrade",
			"A: " + strings.Repeat("a", 4*mib), strings.Repeat("A: a\r\n", 100_000) + "B: b",
		} {
			s.raw("GET " + id + "/executable HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + header + "\r\n\r\n")
		}
		for _, text := range []string{"", "\r\n\r\n", "GET", strings.Repeat("A", 4*mib), "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"} {
			// The half that is sent ends: a server that waits for more would be tried for its patience alone.
			s.half(text)
		}
	}, "--log", "text")
}

// half sends something and no more.
func (s *target) half(text string) {
	s.t.Helper()
	s.sent.Add(int64(len(text)))
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second)) // no answer will do, too
	_, _ = io.WriteString(conn, text)
	_ = conn.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, io.LimitReader(conn, kept))
}

// zstdOf compresses what is too large for memory.
func zstdOf(window int, f func(io.Writer)) []byte {
	var out bytes.Buffer
	w, _ := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
	f(w)
	w.Close()
	return out.Bytes()
}

// TestServeUploads sends what is no file, or another one than is claimed.
func TestServeUploads(t *testing.T) {
	sound := func() []byte { return manySymbols(3, "name") }
	sum := func(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }
	for name, attack := range map[string]func(s *target){
		"a stream that grows": func(s *target) {
			for _, window := range []int{1 << 20, 256 << 20} {
				bomb := zstdOf(window, func(w io.Writer) { repeat(w, size(100, 2000)*mib, []byte{0}) })
				s.push(bomb, "", "Content-Encoding", "zstd")
				s.ask("PUT", "/v1/sources/"+buildIDText+"?path=/a.c", bomb, "Content-Encoding", "zstd")
			}
		},
		"streams that are none": func(s *target) {
			for _, b := range [][]byte{nil, {0}, []byte("\x28\xb5\x2f\xfd"), bytes.Repeat([]byte{0x28, 0xb5, 0x2f, 0xfd}, mib), bytes.Repeat([]byte("\x50\x2a\x4d\x18\x00\x00\x00\x00"), mib)} {
				s.push(b, "", "Content-Encoding", "zstd")
				s.push(b, "", "Content-Encoding", "gzip")
				s.push(b, "")
			}
		},
		"parts": func(s *target) {
			file := sound()
			for _, offset := range []string{"-1", "1", "9223372036854775807", "99999999999999999999", "0x0", "..", "0%2f..", strconv.Itoa(1 << 40)} {
				s.ask("PUT", "/v1/uploads/"+sum(file)+"/"+offset, file)
			}
			for range 20 {
				s.ask("PUT", "/v1/uploads/"+sum(file)+"/0", file)
			}
			s.ask("PUT", "/v1/uploads/"+sum(file)+"/0", make([]byte, 17*mib))
			s.ask("POST", "/v1/uploads/"+sum(file)+"?id=00", nil)
			s.ask("POST", "/v1/uploads/"+sum([]byte("another")), nil)
			for _, object := range []string{"..", strings.Repeat("0", 64), strings.Repeat("/", 64), strings.Repeat(".", 64), strings.Repeat("A", 64), strings.Repeat("0", 63) + "%2f", "%00"} {
				s.ask("PUT", "/v1/files/"+object, file)
				s.ask("PUT", "/v1/uploads/"+object+"/0", file)
				s.ask("POST", "/v1/uploads/"+object, nil)
			}
		},
		"names": func(s *target) {
			file := sound()
			for i, text := range []string{steering, "../../../../tmp/x", "/", "\x00", strings.Repeat("n", 500_000), "<script>alert(1)</script>", strings.Repeat("../", 10_000), "\xff\xfe"} {
				v := url.QueryEscape(text)
				s.push(append(slices.Clone(file), byte(i)), "name="+v+"&package="+v[:min(len(v), 100_000)]+"&build="+v[:min(len(v), 100_000)]+"&archive="+v[:min(len(v), 100_000)])
				s.ask("GET", "/buildid/"+buildIDText+"/executable", nil)
				s.ask("PUT", "/v1/sources/"+buildIDText+"?path="+v, []byte("text"))
				s.ask("PUT", "/v1/sources/"+v[:min(len(v), 1000)]+"?path=/a.c", []byte("text"))
				s.ask("GET", "/buildid/"+buildIDText+"/source/"+v[:min(len(v), 5000)], nil)
			}
			s.ask("GET", "/metadata?key=glob&value=*", nil)
			s.ask("GET", "/v1/identities/"+buildIDText, nil)
		},
		"many of one identity": func(s *target) {
			for i := range 100 {
				s.push(append(sound(), byte(i)), fmt.Sprintf("name=%d", i))
			}
			for i := range size(300, 5000) {
				s.ask("PUT", fmt.Sprintf("/v1/sources/%s?path=/%d.c", buildIDText, i), []byte(strconv.Itoa(i)))
			}
			s.ask("GET", "/v1/identities/"+buildIDText, nil)
		},
		"identities": func(s *target) {
			for _, id := range [][]byte{{}, {0}, make([]byte, 20), bytes.Repeat([]byte{0xff}, 64), make([]byte, 100_000)} {
				s.push(elftest.File{Type: elf.ET_EXEC, Sections: []elftest.Section{{Name: ".note.gnu.build-id", Type: elf.SHT_NOTE, Flags: elf.SHF_ALLOC, Addr: 0x400200, Align: 4, Data: elftest.Notes(nil, 4, elftest.GNU(id))}},
					Segments: []elftest.Segment{{Type: elf.PT_NOTE, Flags: elf.PF_R, From: ".note.gnu.build-id", Vaddr: 0x400200}}}.Build(), "")
			}
			s.push(sound(), "id="+strings.Repeat("cd", 20))
			s.push(sound(), "id="+strings.Repeat("cd", 200_000))
			s.push(sound(), "id=..%2f..%2fx")
			s.push([]byte("\x7fELF"), "")
			s.push([]byte("no file at all"), "id="+buildIDText)
			s.push(append([]byte("\x7fELF\x02\x01\x01"), bytes.Repeat([]byte{0xff}, 4*mib)...), "")
		},
		"plans": func(s *target) {
			for _, body := range []string{
				"", "null", "[]", `{"files":null}`, `{"files":[` + strings.Repeat(`{},`, 600_000) + `{}]}`, `{"files":[` + strings.Repeat(`{},`, 999) + `{}]}`, strings.Repeat(`{"files":[`, 200_000), strings.Repeat("[", 2_000_000),
				`{"files":[{"id":"` + buildIDText + `","sha256":"../../x","size":1}]}`, `{"files":[{"id":"` + buildIDText + `","sha256":"` + strings.Repeat("0", 64) + `","size":-1}]}`, `{"files":[{"size":1e400}]}`, strings.Repeat(" ", 3*mib),
			} {
				s.ask("POST", "/v1/plan", []byte(body), "Content-Type", "application/json")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.writeSecret()
			p.underAttack(attack)
		})
	}
}

// TestServeQuestions asks for functions and lines in ways that cost much.
func TestServeQuestions(t *testing.T) {
	list := func(n int, f func(i int) string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(f(i))
		}
		return b.String()
	}
	one := func(addresses string) string {
		return `{"files":[{"id":"` + buildIDText + `","addresses":[` + addresses + `]}]}`
	}
	for name, attack := range map[string]func(s *target){
		"addresses of long names": func(s *target) {
			s.push(manySymbols(4000, strings.Repeat("n", 60_000)), "")
			s.ask("POST", "/v1/symbolize", []byte(one(list(size(100_000, 1_000_000), func(i int) string { return strconv.Itoa(0x1000 + i%0x1000) }))), "Content-Type", "application/json")
		},
		"addresses of nested calls": func(s *target) {
			s.push(nestedCalls(size(100, 200)), "")
			s.ask("POST", "/v1/symbolize", []byte(one(list(size(20_000, 1_000_000), func(i int) string { return strconv.Itoa(0x1000 + i%0x1000) }))), "Content-Type", "application/json")
		},
		"nested calls in columns": func(s *target) {
			s.push(nestedCalls(size(100, 200)), "")
			s.ask("POST", "/v1/symbolize", columnsOf(size(100_000, 1_000_000)), "Content-Type", "application/x-protobuf")
		},
		"files": func(s *target) {
			s.push(manySymbols(3, "name"), "")
			s.ask("POST", "/v1/symbolize", []byte(`{"files":[`+list(size(200_000, 800_000), func(i int) string { return fmt.Sprintf(`{"id":"%08x"}`, i) })+`]}`), "Content-Type", "application/json")
			s.ask("POST", "/v1/symbolize", []byte(`{"files":[`+list(size(50_000, 500_000), func(i int) string { return `{"id":"` + buildIDText + `","addresses":[4096]}` })+`]}`), "Content-Type", "application/json")
		},
		"bodies": func(s *target) {
			for _, body := range []string{
				"", "null", "[]", "{}", strings.Repeat("[", size(1, 4)*mib), strings.Repeat(`{"files":[`, size(mib/8, mib)), one("-1"), one("1e300"), one(`"0x` + strings.Repeat("f", mib) + `"`), one(`"` + "\x1b[2J" + `"`), one("null"), one(list(1<<21, func(int) string { return "1" })),
				`{"wait_seconds":1e308,"files":[]}`, `{"wait_seconds":-1e308,"files":[{"id":"` + buildIDText + `"}]}`, `{"files":[{"id":"` + strings.Repeat("a", size(2, 8)*mib) + `"}]}`, `{"files":[{"id":"` + `\u001b[2J\u202e` + `"}]}`, strings.Repeat(" ", 33*mib),
			} {
				s.ask("POST", "/v1/symbolize", []byte(body), "Content-Type", "application/json")
				s.ask("POST", "/v1/symbolize", []byte(body), "Content-Type", "application/x-protobuf")
			}
			for _, body := range [][]byte{columnsOf(1 << 21), bytes.Repeat([]byte{0x0a, 0}, size(2, 16)*mib), bytes.Repeat([]byte{0xff}, mib), append(varint([]byte{0x0a}, 1<<62), 1)} {
				s.ask("POST", "/v1/symbolize", body, "Content-Type", "application/x-protobuf")
			}
		},
	} {
		t.Run(name, func(t *testing.T) { newPlace(t).underAttack(attack) })
	}
}

// nestedCalls is a program in which calls of short names are nested, at each address.
func nestedCalls(n int) []byte {
	body := new(dwarf).u8(5).u32(0).u64(textAt).u32(textSize).b
	body = append(body, many(n, func(d *dwarf, i int) { d.u8(6).u32(len(unit(root().b))).u64(textAt).u32(textSize).u8(i) })...)
	body = append(body, make([]byte, n+1)...)
	return program(section(".debug_abbrev", abbreviations), section(".debug_str", []byte("name\x00")), section(".debug_line", lineTable(nil)), section(".debug_info", unit(append(root().b, body...))))
}

// columnsOf is a question in columns for so many addresses, which ascend by one and start again.
func columnsOf(n int) []byte {
	const each = 4000
	var q message
	for n > 0 {
		q.sub(1, func(m *message) {
			m.bytes(1, []byte(buildIDText))
			m.bytes(3, append(varint(nil, 0x1000), bytes.Repeat([]byte{1}, min(n, each)-1)...))
		})
		n -= each
	}
	return q.b
}

// keepAndLook has a server keep a profile, and asks for all that its pages ask.
func (s *target) keepAndLook(b []byte, headers ...string) {
	s.t.Helper()
	a := s.ask("POST", "/v1/profiles?title="+url.QueryEscape("<script>alert(1)</script>"+steering), b, headers...)
	var kept struct{ ID string }
	if a.status != http.StatusCreated || json.Unmarshal(a.body, &kept) != nil {
		if a.status < 400 {
			s.t.Errorf("a profile is neither kept nor refused: %d %.200s", a.status, a.body)
		}
		return
	}
	page := "/profiles/" + kept.ID
	for _, path := range pages {
		s.ask("GET", page+"/"+path, nil)
	}
	s.ask("GET", page+"/vs/"+kept.ID+"/api/tree", nil)
	s.ask("GET", page+"/vs/"+kept.ID+"/api/functions?sort=change", nil)
	s.ask("GET", "/v1/profiles/"+kept.ID, nil)
	s.ask("GET", "/v1/profiles/"+kept.ID+"?named=1", nil)
	s.ask("GET", "/v1/profiles", nil)
}

// TestServeKeptProfiles has a server keep and show profiles of each format.
func TestServeKeptProfiles(t *testing.T) {
	each := func(kind string, part int, all map[string]func() []byte) {
		for i, name := range sortedNames(all) {
			t.Run(kind+" "+name, func(t *testing.T) {
				if !testenv.Thorough() && i%part != 0 {
					t.Skip("left to HALLMARK_THOROUGH=1")
				}
				newPlace(t).underAttack(func(s *target) { s.keepAndLook(all[name]()) }, "--view-memory", "256")
			})
		}
	}
	each("pprof", 5, profiles)
	each("OTLP", 2, messages)
	each("text", 5, stackTexts)
	for i, name := range sortedNames(recordings) {
		t.Run("perf.data "+name, func(t *testing.T) {
			if !testenv.Thorough() && i%3 != 0 {
				t.Skip("left to HALLMARK_THOROUGH=1")
			}
			p := newPlace(t)
			data, err := os.ReadFile(p.recordingOf("perf.data", recordings[name]))
			if err != nil {
				t.Fatal(err)
			}
			p.underAttack(func(s *target) { s.keepAndLook(data) }, "--view-memory", "256")
		})
	}
	t.Run("wrong kinds", func(t *testing.T) {
		newPlace(t).underAttack(func(s *target) {
			for _, b := range [][]byte{nil, []byte("x"), manySymbols(3, "name"), []byte("<html><script>alert(1)</script>"), []byte("PERFILE2"), bytes.Repeat([]byte{0}, mib), []byte("{}"), []byte("\x1f\x8b"), compressed(compressed([]byte("a;b 1\n")))} {
				s.keepAndLook(b)
				s.keepAndLook(b, "Content-Encoding", "gzip")
				s.keepAndLook(b, "Content-Encoding", "zstd")
			}
			s.keepAndLook(zstdOf(1<<20, func(w io.Writer) { repeat(w, size(100, 2000)*mib, []byte("a;b 1\n")) }), "Content-Encoding", "zstd")
			s.keepAndLook(streamed(func(w io.Writer) { repeat(w, size(100, 2000)*mib, []byte("a;b 1\n")) }))
			s.keepAndLook(make([]byte, 65*mib))
		})
	})
	t.Run("too many", func(t *testing.T) {
		newPlace(t).underAttack(func(s *target) {
			for i := range size(60, 2000) {
				s.keepAndLook(fmt.Appendf(nil, "main;f%d;<script>alert(1)</script>;%s 1\n", i, strings.ReplaceAll(steering, "\n", "")))
			}
			var list struct{ Total int }
			if a := s.ask("GET", "/v1/profiles?limit=1", nil); json.Unmarshal(a.body, &list) != nil || list.Total != 7 {
				s.t.Errorf("%d profiles are kept, of 7 that may be", list.Total)
			}
		}, "--profile-count", "7")
	})
	t.Run("paths", func(t *testing.T) {
		newPlace(t).underAttack(func(s *target) {
			zero := strings.Repeat("0", 64)
			for _, path := range []string{"..", "%2e%2e", "..%2f..%2fx", zero, zero + "/", zero + "/api/profile", zero + "/vs/" + zero + "/api/tree", zero + "/vs/..%2f/api/tree", zero + "/vs/", zero + "/..%2f..%2fetc%2fpasswd", zero + "/app/../../x", zero + "/app/%2e%2e/%2e%2e/web.go", strings.Repeat("a", 500_000), "%00", zero + "?base=%0d%0aX:%20y", zero + "?base=//evil.example"} {
				s.ask("GET", "/profiles/"+path, nil)
				s.ask("GET", "/v1/profiles/"+path, nil)
			}
			for _, query := range []string{"limit=-1", "limit=99999999999999999999", "after=" + zero, "after=99999999999999999999-" + zero, "after=-1-" + zero, "q=" + strings.Repeat("q", 400_000), "after=%00"} {
				s.ask("GET", "/v1/profiles?"+query, nil)
			}
			s.ask("POST", "/v1/profiles?title="+strings.Repeat("t", 900_000), []byte("a;b 1\n"))
			s.ask("POST", "/v1/profiles?title=%ff%fe%00", []byte("a;b 2\n"))
		})
	})
}

// TestServeSite asks for the pages of the server, with markup where names are, and for a token in ways that nobody does.
func TestServeSite(t *testing.T) {
	look := func(s *target) {
		markup := url.QueryEscape("\"><script>alert(1)</script>" + steering)
		for _, path := range []string{"/", "/login", "/login?next=" + markup, "/login?next=//evil.example", "/login?" + strings.Repeat("next=/&", 20_000), "/app/js/site.js", "/app/css/site.css", "/app/site.html", "/app/..%2fweb.go", "/app/", "/app/js/%00.js"} {
			a := s.ask("GET", path, nil, "Accept", "text/html")
			if bytes.Contains(a.body, []byte("<script>alert")) {
				s.t.Errorf("%.100s: a name is markup: %.500s", path, a.body)
			}
		}
		for _, query := range []string{"q=" + markup, "q=" + strings.Repeat("a", 100_000), "q=%00", "limit=201", "offset=99999999999999999999", "offset=1000000000", "q=%ff"} {
			for _, path := range []string{"/v1/search", "/v1/missing", "/v1/health", "/v1/profiles"} {
				s.ask("GET", path+"?"+query, nil)
			}
		}
		for _, form := range []string{"", "token=" + markup, "token=x&next=" + markup, "token=x&next=https://evil.example/", strings.Repeat("token=x&", 50_000), "token=%", "next=" + strings.Repeat("/", 7000)} {
			a := s.ask("POST", "/login", []byte(form), "Content-Type", "application/x-www-form-urlencoded")
			if at := a.header.Get("Location"); at != "" && (!strings.HasPrefix(at, "/") || strings.HasPrefix(at, "//")) || bytes.Contains(a.body, []byte("<script>alert")) {
				s.t.Errorf("%.100q leads to %q: %.300s", form, at, a.body)
			}
			s.ask("POST", "/login", []byte(form), "Content-Type", "multipart/form-data; boundary=x")
			s.ask("POST", "/login", []byte(form), "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "cross-site")
		}
		s.ask("POST", "/logout", nil, "Cookie", strings.Repeat("hallmark=x; ", 3000))
		s.ask("GET", "/v1/search", nil, "Cookie", strings.Repeat("hallmark=x; ", 3000))
	}
	t.Run("open", func(t *testing.T) {
		newPlace(t).underAttack(func(s *target) {
			s.push(manySymbols(3, "name"), "name="+url.QueryEscape("<script>alert(1)</script>"+steering))
			s.ask("GET", "/v1/identities/"+buildIDText+"?sections=1", nil)
			for i := range size(120, 600) {
				s.symbolizeMany(i, 100)
			}
			s.ask("GET", "/v1/missing?limit=200", nil)
			look(s)
		})
	})
	t.Run("tokens", func(t *testing.T) {
		q := newPlace(t)
		q.underAttack(look, "--tokens", q.write("tokens.json", []byte("[]")))
	})
}

// symbolizeMany asks for n identities that nobody has.
func (s *target) symbolizeMany(series, n int) {
	s.t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,{"id":"%040x","addresses":[1]}`, series*n+i)
	}
	s.ask("POST", "/v1/symbolize", []byte(`{"files":[`+b.String()[1:]+`]}`), "Content-Type", "application/json")
}
