package vmtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// packer makes the initramfs that all kernels get.
type packer struct {
	*testing.T
	*Initramfs
	dir  string // for what is built
	made string // by compilers, for tests
}

// root is that of the module.
var root = filepath.Join("..", "..")

// pack packs the tests and the programs that they need. It returns the name of the
// initramfs, and what there is to do in it: the suites, and then the doctor.
func pack(t *testing.T, suites []suite) (string, []Job) {
	t.Helper()
	p := packer{T: t, dir: t.TempDir()}
	p.made = filepath.Join(p.dir, "compiled")
	files := filepath.Join(p.dir, "files")
	var err error
	if p.Initramfs, err = CreateInitramfs(files); err != nil {
		t.Fatal(err)
	}
	p.build("/init", "build", "./internal/vmtest/onkernel")
	p.build("/bin/hallmark", "build", "./cmd/hallmark")
	p.Tools()
	p.compilers()
	var jobs []Job
	for _, s := range suites {
		jobs = append(jobs, p.suite(s))
	}
	p.Copy("/compiled", p.made)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return files, append(jobs, Job{Args: []string{"hallmark", "doctor", "--json"}})
}

// build has the Go command make a static program, adds it under a name and returns
// where it is on the host.
func (p *packer) build(name, command string, args ...string) string {
	p.Helper()
	file := filepath.Join(p.dir, filepath.Base(name))
	args = append([]string{command, "-o", file}, args...)
	cmd := exec.Command(testenv.Tool(p.T, "go"), args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		p.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	p.Copy(name, file)
	return file
}

// stand is where the stand-ins for compilers are on the host.
func (p *packer) stand() string { return filepath.Join(p.dir, "compilers") }

// compilers adds programs that stand in for compilers, here and in the guest.
func (p *packer) compilers() {
	p.Helper()
	for _, dir := range []string{p.made, p.stand()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			p.Fatal(err)
		}
	}
	for _, name := range []string{"gcc", "go"} {
		if err := os.Symlink(filepath.Join(p.dir, "init"), filepath.Join(p.stand(), name)); err != nil {
			p.Fatal(err)
		}
		p.Link("/bin/"+name, "/init")
	}
}

// suite adds the tests of a suite, and what is in their directory.
func (p *packer) suite(s suite) Job {
	p.Helper()
	place := "/hallmark/" + s.pkg
	test := filepath.Base(s.pkg) + ".test"
	file := p.build(place+"/"+test, "test", "-c", "./"+s.pkg)
	p.Copy(place, filepath.Join(root, filepath.FromSlash(s.pkg)))
	if s.compiled != "" {
		p.compile(s, file)
	}
	j := Job{
		Dir:  place,
		Args: []string{"./" + test, "-test.v=test2json", "-test.run=" + s.run, "-test.skip=^Fuzz", "-test.timeout=" + perSuite.String()},
		Env:  []string{"VMTEST_COMPILED=/compiled", "HALLMARK_EMULATED=1"},
	}
	if *update {
		j.Args, j.Keep = append(j.Args, "-update"), []string{"testdata/verified/*"}
	}
	return j
}

// compile runs tests on the host, for the programs that they compile: the guest has
// no compilers.
func (p *packer) compile(s suite, test string) {
	p.Helper()
	cmd := exec.Command(test, "-test.run="+s.compiled)
	cmd.Dir = filepath.Join(root, filepath.FromSlash(s.pkg))
	path := os.Getenv("PATH")
	cmd.Env = append(os.Environ(), "CI=", "PATH="+p.stand()+":"+path, "VMTEST_TOOLS="+path, "VMTEST_COMPILED="+p.made)
	// Whether the tests pass here is for others to say.
	if out, err := cmd.CombinedOutput(); err != nil {
		p.Logf("the tests of %s fail on the host: %v\n%s", s.pkg, err, out)
	}
}
