package vmtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// A builder builds programs for all architectures, each once.
type builder struct {
	*testing.T
	dir string
}

func newBuilder(t *testing.T) builder {
	t.Helper()
	b := builder{t, t.TempDir()}
	for _, a := range arches {
		for _, dir := range []string{b.compiled(a.name), b.file(a.name, "")} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b
}

// compiled is where programs are that compilers made for tests of an architecture.
func (b builder) compiled(arch string) string { return filepath.Join(b.dir, "made", arch) }

// file is where a program for an architecture is.
func (b builder) file(arch, name string) string { return filepath.Join(b.dir, "built", arch, name) }

// root is that of the module.
var root = filepath.Join("..", "..")

// build has the Go command make a static program, and returns where it is.
func (b builder) build(arch, command, pkg string) string {
	b.Helper()
	file := b.file(arch, strings.ReplaceAll(pkg[2:], "/", "-"))
	if _, err := os.Stat(file); err == nil {
		return file
	}
	args := append(strings.Fields(command), "-o", file, pkg)
	cmd := exec.Command(testenv.Tool(b.T, "go"), args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("GOARCH=%s go %s: %v\n%s", arch, strings.Join(args, " "), err, out)
	}
	return file
}

// test builds the tests of a package.
func (b builder) test(arch, pkg string) string {
	b.Helper()
	return b.build(arch, "test -c", "./"+pkg)
}

// onkernel builds what is both the guest and a stand-in for compilers.
func (b builder) onkernel(arch string) string {
	b.Helper()
	return b.build(arch, "build", "./internal/vmtest/onkernel")
}

// compilers are what tests call to make programs.
var compilers = []string{"gcc", "go"}

// standIn makes a directory with programs that stand in for compilers on the host.
func (b builder) standIn() string {
	b.Helper()
	dir := b.file("", "compilers")
	if err := os.Mkdir(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	for _, name := range compilers {
		if err := os.Symlink(b.onkernel(runtime.GOARCH), filepath.Join(dir, name)); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

// compile runs tests on the host, for the programs that they compile, for all
// architectures: the guests have no compilers.
func (b builder) compile(suites []suite) {
	b.Helper()
	path := os.Getenv("PATH")
	env := append(os.Environ(), "CI=", "PATH="+b.standIn()+":"+path, "VMTEST_TOOLS="+path, "VMTEST_COMPILED="+filepath.Join(b.dir, "made"))
	done := map[[2]string]bool{}
	for _, s := range suites {
		what := [2]string{s.pkg, s.compiled}
		if s.compiled == "" || done[what] {
			continue
		}
		done[what] = true
		cmd := exec.Command(b.test(runtime.GOARCH, s.pkg), "-test.run="+s.compiled)
		cmd.Dir, cmd.Env = filepath.Join(root, filepath.FromSlash(s.pkg)), env
		// Whether the tests pass here is for others to say.
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Logf("the tests of %s fail on the host: %v\n%s", s.pkg, err, out)
		}
	}
}

// A packer makes the initramfs that all kernels of an architecture get.
type packer struct {
	builder
	*Initramfs
}

// pack packs the tests and the programs that they need, once for each architecture,
// and returns the name of the initramfs.
func (b builder) pack(t *testing.T, from System, suites []suite) string {
	t.Helper()
	b.T = t
	files := b.file(from.Arch, "files")
	if _, err := os.Stat(files); err == nil {
		return files
	}
	archive, err := CreateInitramfs(files, from)
	if err != nil {
		t.Fatal(err)
	}
	p := packer{b, archive}
	p.Copy("/init", p.onkernel(p.Arch))
	p.Copy("/bin/hallmark", p.build(p.Arch, "build", "./cmd/hallmark"))
	p.Tools()
	for _, name := range compilers {
		if hasCompiler(p.Arch, name) {
			p.Link("/bin/"+name, "/init")
		}
	}
	for _, s := range suites {
		p.Copy(s.program(), p.test(p.Arch, s.pkg))
		p.Copy(s.place(), filepath.Join(root, filepath.FromSlash(s.pkg)))
		for _, name := range s.sources {
			p.Copy("/hallmark/"+name, filepath.Join(root, filepath.FromSlash(name)))
		}
	}
	p.Copy("/compiled", p.compiled(p.Arch))
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return files
}

// hasCompiler reports whether the host has what makes programs for an architecture.
func hasCompiler(arch, name string) bool {
	if command := CrossCompilers[arch]; name == "gcc" && command != "" {
		name = command
	}
	_, err := exec.LookPath(name)
	return err == nil
}

// place is where the tests run in the guest: all that is in their directory is there.
func (s suite) place() string { return "/hallmark/" + s.pkg }

// program is the program with the tests there.
func (s suite) program() string { return s.place() + "/" + filepath.Base(s.pkg) + ".test" }

// jobs returns what there is to do in a guest.
func jobs(suites []suite) []Job {
	var list []Job
	for _, s := range suites {
		if s.name == doctor.name {
			list = append(list, Job{Args: []string{"hallmark", "doctor", "--json"}})
			continue
		}
		list = append(list, s.job(s.run))
	}
	return list
}

// job returns the job of running some of a suite's tests.
func (s suite) job(run string) Job {
	j := Job{
		Dir:  s.place(),
		Args: []string{s.program(), "-test.v=test2json", "-test.run=" + run, "-test.skip=^Fuzz", "-test.timeout=" + perSuite.String()},
		Env:  []string{"VMTEST_COMPILED=/compiled", "HALLMARK_EMULATED=1"},
	}
	if *update {
		j.Args, j.Keep = append(j.Args, "-update"), []string{"testdata/verified/*"}
	}
	return j
}
