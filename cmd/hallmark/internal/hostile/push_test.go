package hostile

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hallmark/internal/testenv"
)

// member is one of an archive.
type member struct {
	name string
	kind byte // of tar, a regular file where it is 0
	link string
	data []byte
}

func tarOf(members ...member) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Typeflag: tar.TypeReg, Linkname: m.link, Mode: 0o4777, Size: int64(len(m.data)), Format: tar.FormatPAX}
		if m.kind != 0 {
			h.Typeflag, h.Size = m.kind, 0
		}
		if err := w.WriteHeader(h); err != nil {
			panic(err)
		}
		w.Write(m.data)
	}
	w.Close()
	return out.Bytes()
}

// longLink makes the first header of an archive that of a long name.
type longLink struct {
	w    io.Writer
	done bool
}

func (l *longLink) Write(b []byte) (int, error) {
	if !l.done && len(b) == 512 {
		l.done = true
		changed := bytes.Clone(b)
		changed[156] = 'L'
		copy(changed[148:156], "        ")
		sum := 0
		for _, c := range changed {
			sum += int(c)
		}
		copy(changed[148:156], fmt.Sprintf("%06o\x00 ", sum))
		b = changed
	}
	return l.w.Write(b)
}

// arOf is a package of Debian, or what looks like one.
func arOf(members ...member) []byte {
	out := []byte("!<arch>\n")
	for _, m := range members {
		out = fmt.Appendf(out, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", m.name, 0, 0, 0, 0o644, len(m.data))
		out = append(out, m.data...)
		if len(m.data)%2 == 1 {
			out = append(out, '\n')
		}
	}
	return out
}

func debOf(control, data []byte, suffix string) []byte {
	return arOf(member{name: "debian-binary", data: []byte("2.0\n")}, member{name: "control.tar", data: control}, member{name: "data.tar" + suffix, data: data})
}

// rpmOf is a package of rpm with one header for both, and a payload.
func rpmOf(n, size int, table, payload []byte) []byte {
	out := append([]byte{0xed, 0xab, 0xee, 0xdb}, make([]byte, 92)...)
	empty := append([]byte{0x8e, 0xad, 0xe8, 1, 0, 0, 0, 0}, make([]byte, 8)...)
	out = append(out, empty...)
	out = append(out, 0x8e, 0xad, 0xe8, 1, 0, 0, 0, 0)
	out = binary.BigEndian.AppendUint32(out, uint32(n))
	out = binary.BigEndian.AppendUint32(out, uint32(size))
	return append(append(out, table...), payload...)
}

func cpioOf(name string, size, nameSize int, data []byte) []byte {
	out := fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", 0, 0o100644, 0, 0, 1, 0, size, 0, 0, 0, 0, nameSize, 0)
	out = append(out, name...)
	for len(out)%4 != 0 || len(out) < 110+len(name)+1 {
		out = append(out, 0)
	}
	return append(out, data...)
}

// hostilePackages are packages and archives, with the names that they have.
var hostilePackages = map[string]func() (name string, content []byte){
	"elf of zeros": func() (string, []byte) {
		return "a.tar.gz", streamed(func(w io.Writer) {
			n := size(100, 4000) * mib
			h := &tar.Header{Name: "prog", Mode: 0o755, Size: int64(n)}
			tw := tar.NewWriter(w)
			tw.WriteHeader(h)
			tw.Write([]byte("\x7fELF"))
			repeat(tw, n-4, []byte{0})
			tw.Close()
		})
	},
	"many elfs": func() (string, []byte) {
		return "a.tar.gz", streamed(func(w io.Writer) {
			tw := tar.NewWriter(w)
			prog := manySymbols(3, "name")
			for i := range size(300, 3000) {
				tw.WriteHeader(&tar.Header{Name: fmt.Sprintf("prog%d", i), Mode: 0o755, Size: int64(len(prog) + 4)})
				tw.Write(binary.LittleEndian.AppendUint32(bytes.Clone(prog), uint32(i)))
			}
			tw.Close()
		})
	},
	"members": func() (string, []byte) {
		return "a.tar.gz", streamed(func(w io.Writer) { repeat(w, size(50_000, 2_000_000), tarOf(member{name: "a"})[:512]) })
	},
	"names": func() (string, []byte) {
		prog := manySymbols(3, "n"+steering)
		return "a.tar", tarOf(member{name: "../../../../../../tmp/hostile-escaped", data: prog}, member{name: "/etc/hostile-escaped", data: prog}, member{name: "steering" + strings.ReplaceAll(steering, "\x9b", ""), data: prog},
			member{name: "link", kind: tar.TypeSymlink, link: "/etc"}, member{name: "link/hostile-escaped", data: prog}, member{name: "hard", kind: tar.TypeLink, link: "/etc/passwd"},
			member{name: "device", kind: tar.TypeChar}, member{name: "pipe", kind: tar.TypeFifo}, member{name: strings.Repeat("d/", 20_000) + "prog", data: prog})
	},
	"long name": func() (string, []byte) {
		return "a.tar.gz", streamed(func(w io.Writer) {
			// The name is the content of a member of its own, as GNU's tar has it.
			n := size(10, 100) * mib
			tw := tar.NewWriter(&longLink{w: w})
			tw.WriteHeader(&tar.Header{Name: "././@LongLink", Size: int64(n)})
			repeat(tw, n, []byte("n"))
			tw.Close()
		})
	},
	"sparse": func() (string, []byte) {
		h := &tar.Header{Name: "prog", Mode: 0o755, Size: 1 << 20, Format: tar.FormatPAX, PAXRecords: map[string]string{"HALLMARK.sparse": "1"}}
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		w.WriteHeader(h)
		w.Write(make([]byte, 1<<20))
		w.Close()
		// Of GNU's sparse files of format 1.0, whose map says that the file has 1 PiB.
		return "a.tar", bytes.ReplaceAll(out.Bytes(), []byte("HALLMARK.sparse=1"), []byte("GNU.sparse.size=9"))
	},
	"layers in layers": func() (string, []byte) {
		layer := tarOf(member{name: "prog", data: manySymbols(3, "name")})
		for i := range 20 {
			layer = tarOf(member{name: fmt.Sprintf("blobs/sha256/%d", i), data: compressed(layer)}, member{name: "layer.tar", data: layer[:min(len(layer), 1<<20)]})
		}
		return "image.tar", layer
	},
	"packed layers": func() (string, []byte) {
		bomb := streamed(func(w io.Writer) {
			w.Write(tarOf(member{name: "prog", data: append([]byte("\x7fELF"), make([]byte, 1020)...)})[:1536])
			repeat(w, size(300, 2000)*mib, []byte{0})
		})
		var members []member
		for i := range size(10, 100) {
			members = append(members, member{name: fmt.Sprintf("blobs/sha256/%d", i), data: bomb})
		}
		return "image.oci", tarOf(members...)
	},
	"window of zstd": func() (string, []byte) {
		return "a.tar.zst", zstdOf(512<<20, func(w io.Writer) { repeat(w, size(100, 2000)*mib, []byte{0}) })
	},
	"dictionary of xz": func() (string, []byte) {
		// A header of a block whose dictionary has 4 GiB (LZMA2, 40), without the block.
		return "a.tar.xz", []byte("\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x28\x00\x00\x00\x8c\x29\xd7\x3b\xe0\xff\xff\xff\xff\x5d\x00")
	},
	"control of zeros": func() (string, []byte) {
		return "a.deb", debOf(streamed(func(w io.Writer) {
			tw := tar.NewWriter(w)
			tw.WriteHeader(&tar.Header{Name: "./control", Size: int64(size(300, 2000) * mib)})
			repeat(tw, size(300, 2000)*mib, []byte("a"))
			tw.Close()
		}), nil, "")
	},
	"control of fields": func() (string, []byte) {
		fields := "Package: p" + strings.ReplaceAll(steering, "\n", "") + "\n" + strings.Repeat("Build-Ids: abababababababababab\n", 20_000) + "Build-Ids:" + strings.Repeat(" ab", 100_000) + "\n"
		return "a.deb", debOf(tarOf(member{name: "./control", data: []byte(fields)}), compressed(tarOf(member{name: "./prog", data: manySymbols(3, "name")})), ".gz")
	},
	"sizes of ar": func() (string, []byte) {
		var out []byte
		for _, size := range []string{"-1", "9999999999", "0x10", "", "1e9"} {
			out = append(out, fmt.Sprintf("!<arch>\n%-16s%-12d%-6d%-6d%-8o%-10s`\n", "data.tar.gz", 0, 0, 0, 0o644, size)...)
		}
		return "a.deb", out
	},
	"header of rpm": func() (string, []byte) {
		return "a.rpm", rpmOf(1<<16, 256<<20, make([]byte, mib), nil)
	},
	"texts of rpm": func() (string, []byte) {
		n := 60_000
		var table []byte
		for i := range n {
			for _, v := range []uint32{[]uint32{1047, 1113, 1000, 1001, 1044}[i%5], 8, 0, 0xffffffff} {
				table = binary.BigEndian.AppendUint32(table, v)
			}
		}
		store := make([]byte, size(2, 20)*mib)
		return "a.rpm", rpmOf(n, len(store), append(table, store...), cpioOf("TRAILER!!!", 0, 11, nil))
	},
	"cpio": func() (string, []byte) {
		var payload []byte
		payload = append(payload, cpioOf("../../../tmp/hostile-escaped", 4, 29, []byte("\x7fELF"))...)
		payload = append(payload, cpioOf("prog", 0xffffffff, 5, []byte("\x7fELF"))...)
		return "a.rpm", rpmOf(0, 0, nil, payload)
	},
	"name of cpio": func() (string, []byte) { return "a.rpm", rpmOf(0, 0, nil, cpioOf("prog", 4, 0xfffffff0, nil)) },
	"payload of rpm": func() (string, []byte) {
		return "a.rpm", rpmOf(0, 0, nil, streamed(func(w io.Writer) {
			w.Write(cpioOf("prog", 0x7fffffff, 5, []byte("\x7fELF")))
			repeat(w, size(300, 2000)*mib, []byte{0})
		}))
	},
	"cut": func() (string, []byte) {
		whole := debOf(tarOf(member{name: "./control", data: []byte("Package: p\n")}), compressed(tarOf(member{name: "./prog", data: manySymbols(3000, "name")})), ".gz")
		return "a.deb", whole[:len(whole)-30]
	},
}

// accepting is a server that takes all files and forgets them.
func accepting(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/plan", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, `{"files":[`+strings.TrimSuffix(strings.Repeat(`{"action":"upload"},`, bytes.Count(b, []byte(`"sha256"`))), ",")+`]}`)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, `{}`)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// TestPackages has push read packages, and a server in whose directory of packages they are.
func TestPackages(t *testing.T) {
	for name, make := range hostilePackages {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			in := p.write(make())
			p.run(line("push", "--server", accepting(t), in))
			p.run(line("push", "--server", accepting(t), "--json", p.in("")))
			p.underAttack(func(s *target) {
				testenv.Await(t, "the packages are looked at", func() bool {
					return !strings.Contains(string(s.ask("GET", "/metrics", nil).body), "hallmark_scanned_packages 0\n") || time.Since(s.start) > 2*time.Second
				})
				for _, path := range []string{"/buildid/" + buildIDText + "/executable", "/buildid/" + buildIDText + "/debuginfo", "/buildid/" + buildIDText + "/source/a.c"} {
					s.ask("HEAD", path, nil)
				}
				s.symbolize(false, 0x1000)
			}, "--scan", p.in(""))
			for _, escaped := range []string{"/tmp/hostile-escaped", "/etc/hostile-escaped"} {
				if _, err := os.Lstat(escaped); err == nil {
					t.Errorf("%s was written", escaped)
				}
			}
		})
	}
}

// TestPushFiles pushes programs, and directories in which are no files.
func TestPushFiles(t *testing.T) {
	for i, name := range sortedNames(programs) {
		t.Run(name, func(t *testing.T) {
			if !testenv.Thorough() && i%6 != 1 {
				t.Skip("left to HALLMARK_THOROUGH=1")
			}
			p := newPlace(t)
			in := p.write("in", programs[name](t))
			p.run(line("push", "--server", accepting(t), "--source", p.in(""), in))
		})
	}
	t.Run("no files", func(t *testing.T) {
		p := newPlace(t)
		testenv.Trap(t, p.in("pipe"))
		testenv.Trap(t, p.in("pipe.deb"))
		for name, to := range map[string]string{"loop": "loop", "up": "..", "out": "/etc/passwd", "pipe.rpm": "pipe"} {
			if err := os.Symlink(to, p.in(name)); err != nil {
				t.Fatal(err)
			}
		}
		p.write("prog"+strings.ReplaceAll(steering, "/", ""), manySymbols(3, "n"))
		p.run(line("push", "--server", accepting(t), p.in("")))
		for _, name := range []string{"pipe", "pipe.deb", "pipe.rpm", "loop", "out", "none" + steering} {
			p.run(line("push", "--server", accepting(t), p.in(name)))
		}
	})
}

// TestPushServers pushes to servers that lie, hang, or answer for ever.
func TestPushServers(t *testing.T) {
	endless := func(piece string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, piece); err != nil {
					return
				}
			}
		}
	}
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	plan := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/plan") {
				text(200, body)(w, r)
				return
			}
			text(200, `{}`)(w, r)
		}
	}
	var elsewhere atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Store(true) }))
	t.Cleanup(other.Close)
	for name, handler := range map[string]http.HandlerFunc{
		"nothing":      text(200, ""),
		"null":         text(200, "null"),
		"no JSON":      text(200, "<html>"+steering),
		"nesting":      text(200, strings.Repeat("[", 30*mib)),
		"other number": text(200, `{"files":[]}`),
		"many":         text(200, `{"files":[`+strings.Repeat(`{},`, 10*mib)+`{}]}`),
		"endless":      endless(strings.Repeat(" ", 64<<10)),
		"endless list": endless(`{"files":[` + strings.Repeat(`{"action":"upload"},`, 1000)),
		"endless failure": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(400)
			endless(strings.Repeat("a", 64<<10))(w, r)
		},
		"steering":        text(409, `{"error":"`+`\u001b[2J\u202e\u009b`+`","status":409}`),
		"refused":         plan(`{"files":[{"action":"error","message":"\u001b[2J\u202e\u009b2J` + strings.Repeat("m", mib) + `"}]}`),
		"action":          plan(`{"files":[{"action":"\u001b[2J"}]}`),
		"have":            plan(`{"files":[{"action":"upload","have":-9223372036854775808}]}`),
		"have less":       plan(`{"files":[{"action":"upload","have":-1}]}`),
		"have more":       plan(`{"files":[{"action":"upload","have":9223372036854775807}]}`),
		"stored":          func(w http.ResponseWriter, r *http.Request) { storedOf(w, r, `{"disputed":-1,"id":"zz"}`) },
		"stored for ever": func(w http.ResponseWriter, r *http.Request) { storedOf(w, r, strings.Repeat(" ", 10*mib)) },
		"elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/", http.StatusTemporaryRedirect)
		},
		"a circle": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		},
		"headers": func(w http.ResponseWriter, r *http.Request) { w.Header().Set("A", strings.Repeat("a", 2*mib)) },
		"waits": func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		},
		"waits between bytes": func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			for r.Context().Err() == nil {
				io.WriteString(w, " ")
				w.(http.Flusher).Flush()
				time.Sleep(100 * time.Millisecond)
			}
		},
		"broken off": func(w http.ResponseWriter, r *http.Request) {
			if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
				conn.(*net.TCPConn).Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if !testenv.Thorough() && strings.HasPrefix(name, "waits") {
				t.Skip("left to HALLMARK_THOROUGH=1")
			}
			s := httptest.NewServer(handler)
			defer s.Close()
			p := newPlace(t)
			in := p.write("prog", manySymbols(3, "name"))
			os.WriteFile(filepath.Join(p.dir, "in", "token"), []byte("a-token"), 0o600)
			p.run(command{args: []string{"push", "--server", s.URL, "--token-file", p.in("token"), in}})
		})
	}
	if elsewhere.Load() {
		t.Error("the token and the file went to another server")
	}
}

// storedOf wants all files and answers to each with a text.
func storedOf(w http.ResponseWriter, r *http.Request, stored string) {
	io.Copy(io.Discard, r.Body)
	if strings.HasSuffix(r.URL.Path, "/plan") {
		stored = `{"files":[{"action":"upload"}]}`
	}
	io.WriteString(w, stored)
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
