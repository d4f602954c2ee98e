package hostile

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/proftest"
	"hallmark/internal/testenv"
)

// buildC builds a program in C, with debug information and frame pointers.
func buildC(t *testing.T, source string) string {
	t.Helper()
	gcc := testenv.Tool(t, "gcc")
	dir := t.TempDir()
	name := filepath.Join(dir, "prog")
	if err := os.WriteFile(name+".c", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-g", "-O1", "-fno-omit-frame-pointer", "-Wl,--build-id", "-o", name, name+".c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return name
}

// repeats is how many damaged files of a kind there are.
func repeats() int {
	if testenv.Thorough() {
		return 200
	}
	return 4
}

// TestDamaged has sound files of all kinds, with a few bytes changed.
func TestDamaged(t *testing.T) {
	p := newPlace(t)
	elfFile, err := os.ReadFile(buildC(t, "static int f(int x) { return x * 3; }\nint main(int c, char **v) { return f(c); }\n"))
	if err != nil {
		t.Fatal(err)
	}
	profile, err := os.Create(p.in("sound.pb.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if err := proftest.Mixed().Write(profile); err != nil {
		t.Fatal(err)
	}
	profile.Close()
	sound := p.write("sound", elfFile)
	for _, c := range []command{
		line("convert", "-o", p.out("sound.perf.data"), p.in("sound.pb.gz")), line("index", "-o", p.out("sound.index"), sound),
		line("convert", "--format", "folded", "-o", p.out("sound.folded"), p.in("sound.pb.gz")),
	} {
		p.run(c)
	}
	log := "==1==ERROR\n    #0 0x401136  (" + sound + "+0x1136) (BuildId: " + buildIDText + ")\n{{{module:0:a:elf:" + buildIDText + "}}}\n{{{bt:0:0x1}}}\n"
	for kind, commands := range map[string]func(in string) []command{
		sound: func(in string) []command {
			return []command{
				line("id", in), line("lookup", in, "1136"), line("index", "-o", p.out("index"), in), line("unwind", "--stats", in),
				{args: []string{"addr2line", "-fie", in, "1136"}, raw: true}, {args: []string{"addr2line", "--as=llvm-symbolizer", "--obj=" + in, "0x1136"}, raw: true},
			}
		},
		p.in("sound.pb.gz"):      func(in string) []command { return p.readers(in)[:4] },
		p.out("sound.perf.data"): func(in string) []command { return p.recordingReaders(in)[2:8] },
		p.out("sound.index"): func(in string) []command {
			return []command{line("index", "--check", in), line("index", "--dump", in), line("lookup", in, "1136")}
		},
		p.out("sound.folded"): func(in string) []command { return []command{{args: []string{"symbolize", in}, raw: true}} },
		p.write("log", []byte(log)): func(in string) []command {
			return []command{{args: []string{"symbolize", "--trust-paths", in}, raw: true}}
		},
	} {
		data, err := os.ReadFile(kind)
		if err != nil {
			t.Fatal(err)
		}
		for i := range repeats() {
			random := rand.New(rand.NewPCG(uint64(i), 16))
			damaged := damage(data, random)
			in := p.write("damaged", damaged)
			for _, c := range commands(in) {
				if len(damaged) == 0 && c.args[0] == "addr2line" {
					continue // GNU addr2line fails without a word, and so does ours
				}
				p.run(c)
			}
			p.clear("home")
		}
	}
}

// steering is what a terminal executes.
const steering = "\x1b[2J\x1b]0;title\a\u009b2J\x9b2J\r\u202e"

// TestSteering shows names that a terminal would execute, on a terminal.
func TestSteering(t *testing.T) {
	p := newPlace(t)
	b := newBuilt()
	b.mapping(1, "/lib/"+steering, steering)
	b.function(1, "f"+steering, "file"+steering)
	b.location(1, 1, 0x401000, 1)
	b.location(2, 1, 0x402000)
	b.sample(func(m *message) {
		m.packed(sampleLocation, 2, 1).num(sampleLocation, 2)
		m.sub(sampleLabel, func(m *message) { m.num(labelKey, b.string("process")).num(labelStr, b.string(steering)) })
	})
	b.num(profComment, b.string(steering))
	prof := p.write("a.pb.gz", b.done())
	prog := p.write("prog", manySymbols(3, "n"+steering))
	log := p.write("log", []byte("    #0 0x401000  ("+prog+"+0x401000)\n"))
	for _, args := range [][]string{
		{"report", prof}, {"report", "--json", prof}, {"convert", "--format", "folded", "-o", "-", prof},
		{"lookup", prog, "1000"}, {"lookup", "--json", "--virtual", prog, "401000"}, {"index", "--dump", p.out("index")},
		{"addr2line", "-fe", prog, "401000"}, {"addr2line", "--as=llvm-symbolizer", "--obj=" + prog, "0x401000"},
		{"addr2line", "--as=llvm-symbolizer", "--output-style=JSON", "--obj=" + prog, "0x401000"},
		{"symbolize", "--trust-paths", log}, {"symbolize", "--json", "--trust-paths", log},
		{"id", prog}, {"unwind", prog}, {"inject", "-o", p.out("x"), prof},
	} {
		if args[0] == "index" {
			p.run(line("index", "-o", p.out("index"), prog))
		}
		shown := p.onTerminal(args)
		var r result
		r.plain("the terminal", []byte(strings.ReplaceAll(shown, "\r\n", "\n")))
		for _, problem := range r.problems {
			t.Errorf("%q: %s", args, problem)
		}
	}
}

// onTerminal returns what a command shows on a terminal.
func (p *place) onTerminal(args []string) string {
	p.t.Helper()
	name, err := hallmark()
	if err != nil {
		p.t.Fatal(err)
	}
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	testenv.Need(p.t, err == nil, "a terminal")
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		p.t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		p.t.Fatal(err)
	}
	terminal, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := p.command(name, command{args: args})
	cmd.Stdout, cmd.Stderr = terminal, terminal
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	terminal.Close()
	var shown []byte
	buffer := make([]byte, 1<<16)
	for {
		n, err := master.Read(buffer)
		if shown = append(shown, buffer[:n]...); err != nil {
			break
		}
	}
	cmd.Wait()
	return string(shown)
}

// TestOtherFiles has pipes, devices and directories where files are looked for: none may be
// opened. Names that lead out of a directory must not.
func TestOtherFiles(t *testing.T) {
	p := newPlace(t)
	trap := testenv.Trap(t, p.in("trap"))
	b := newBuilt()
	files := []string{trap, "/dev/zero", "/dev/watchdog", p.in(""), "../../../../.." + trap, "/proc/self/mem", "/proc/kmsg", "a/../../../" + trap}
	for i, file := range files {
		b.mapping(uint64(i+1), file, fmt.Sprintf("%040x", i+1))
		b.location(uint64(i+1), uint64(i+1), 0x401000)
		b.sample(func(m *message) { m.num(sampleLocation, uint64(i+1)) })
	}
	prof := p.write("a.pb.gz", b.done())
	var log strings.Builder
	for i, file := range files {
		fmt.Fprintf(&log, "    #%d 0x401000  (%s+0x1000)\n", i, file)
	}
	text := p.write("log", []byte(log.String()))
	link := new(dwarf).text("../../../../.." + trap)
	for len(link.b)%4 != 0 {
		link.u8(0)
	}
	debugLink := p.write("linked", program(section(".gnu_debuglink", link.u32(0).b),
		section(".gnu_debugaltlink", append([]byte(trap+"\x00"), buildID...)),
		section(".debug_abbrev", abbreviations), section(".debug_info", unit(root().u8(0).b))))
	// The places of caches and debug files are pipes as well.
	debug := p.in("debug")
	if err := os.MkdirAll(filepath.Join(debug, ".build-id", "ab"), 0o755); err != nil {
		t.Fatal(err)
	}
	testenv.Trap(t, filepath.Join(debug, ".build-id", "ab", buildIDText[2:]+".debug"))
	client := filepath.Join(p.dir, "home", ".cache", "debuginfod_client", buildIDText)
	if err := os.MkdirAll(client, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"debuginfo", "executable"} {
		testenv.Trap(t, filepath.Join(client, name))
	}
	for _, c := range []command{
		line("report", "--debug-path", debug, prof), line("convert", "--debug-path", trap, "-o", p.out("a.pb.gz"), prof),
		{args: []string{"symbolize", "--trust-paths", text}, raw: true}, {args: []string{"symbolize", "--debug-path", debug, text}, raw: true},
		line("lookup", debugLink, "1000"), line("lookup", "--debug-path", debug, debugLink, "1000"), line("index", "-o", p.out("index"), debugLink),
		line("lookup", trap, "1000"), line("id", trap), line("id", "-r", p.in("")), line("index", trap), line("unwind", trap), line("lookup", "/dev/zero", "1"),
		line("lookup", p.in(""), "1"), line("index", "--check", trap), line("index", "--dump", trap),
		{args: []string{"addr2line", "-e", debugLink, "401000"}, raw: true}, {args: []string{"addr2line", "-e", trap, "401000"}, raw: true},
		{args: []string{"addr2line", "--as=llvm-symbolizer", "--obj=" + trap, "0x401000"}, raw: true},
		line("inject", "-o", p.out("b"), p.in("")), line("report", p.in("")),
	} {
		p.run(c)
	}
}

// TestServers asks debuginfod servers that lie.
func TestServers(t *testing.T) {
	endless := func(w http.ResponseWriter, r *http.Request) {
		block := make([]byte, 1<<16)
		for r.Context().Err() == nil {
			if _, err := w.Write(block); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	for name, serve := range map[string]http.HandlerFunc{
		"gzip": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(profiles["zeros"]())
		},
		"endless": endless,
		"length": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "4611686018427387904")
			w.Write([]byte("\x7fELF"))
		},
		"redirects": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path+"/x", http.StatusFound) },
		"elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		},
		"another": func(w http.ResponseWriter, r *http.Request) { w.Write(manySymbols(3, "name")) },
		"steering": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Debuginfod-File", steering)
			w.WriteHeader(500)
			w.Write([]byte(steering))
		},
		"slow": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				w.Write([]byte("x"))
				w.(http.Flusher).Flush()
				time.Sleep(100 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			server := httptest.NewServer(serve)
			defer server.Close()
			b := newBuilt()
			b.mapping(1, "/gone", "cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd")
			b.location(1, 1, 0x401000)
			b.sample(func(m *message) { m.num(sampleLocation, 1) })
			in := p.write("a.pb.gz", b.done())
			p.run(command{args: []string{"report", in}, env: []string{"DEBUGINFOD_URLS=" + server.URL, "DEBUGINFOD_TIMEOUT=1", "DEBUGINFOD_MAXTIME=2", "DEBUGINFOD_MAXSIZE=104857600"}})
		})
	}
}

// texts are logs that nobody wrote as such.
var texts = map[string]func() []byte{
	"one line": func() []byte { return streamedZeros(size(200, 900)*mib, []byte("a")) },
	"frames": func() []byte {
		return streamedZeros(size(200, 500)*mib, []byte("    #0 0x401000  (/bin/none+0x1000) (BuildId: "+buildIDText+")\n"))
	},
	"folded": func() []byte { return streamedZeros(size(60, 500)*mib, []byte("a;b;[none+0x1000] 1\n")) },
	"modules": func() []byte {
		return compressed(many(size(20_000, 200_000), func(d *dwarf, i int) {
			d.b = fmt.Appendf(d.b, "{{{module:%d:name%d:elf:%040x}}}\n{{{mmap:%#x:0x1000:load:%d:rx:0x0}}}\n{{{pc:%#x}}}\n", i, i, i, 0x1000*(i+1), i, 0x1000*(i+1))
		}))
	},
	"identities": func() []byte {
		return compressed(many(size(20_000, 200_000), func(d *dwarf, i int) {
			d.b = fmt.Appendf(d.b, "    #0 0x401000  (/bin/none%d+0x1000) (BuildId: %040x)\n", i, i)
		}))
	},
	"maps of perf": func() []byte {
		return compressed(many(size(30_000, 300_000), func(d *dwarf, i int) {
			d.b = fmt.Appendf(d.b, "prog %d 1.0: PERF_RECORD_MMAP2 %d/%d: [%#x(0x1000) @ 0 00:00 %d 0]: r-xp /bin/none%d\n\nprog %d 1.0: 1 cycles:\n\t%x f+0x1 (/bin/none%d)\n\n", i, i, i, 0x1000*(i+1), i, i, i, 0x1000*(i+1), i)
		}))
	},
}

func streamedZeros(size int, piece []byte) []byte {
	return streamed(func(w io.Writer) { repeat(w, size/len(piece), piece) })
}

func TestTexts(t *testing.T) {
	for name, make := range texts {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			in := p.write("log.gz", make())
			p.runAll(line("symbolize", "-o", p.out("a"), in), line("symbolize", "--json", "-o", p.out("b"), in),
				line("symbolize", "--trust-paths", "--format", "folded", "-o", p.out("c"), in))
		})
	}
}
