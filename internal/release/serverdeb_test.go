package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// deployed returns small with the files of deploy.
func deployed(t *testing.T) pack {
	t.Helper()
	files, err := readBelow(filepath.Join("..", ".."), "deploy/*")
	if err != nil {
		t.Fatal(err)
	}
	p := small
	p.contents.documents = files
	return p
}

// TestServerDeb has dpkg-deb read the package of the service, and dpkg install and remove it.
func TestServerDeb(t *testing.T) {
	p := deployed(t)
	deb := written(t, p.serverDebName(), p.writeServerDeb)
	if want := "hallmark-server_1.2.0~rc.1_all.deb"; filepath.Base(deb) != want {
		t.Errorf("the name is %s, want %s", filepath.Base(deb), want)
	}
	for field, want := range map[string]string{"Package": "hallmark-server", "Version": "1.2.0~rc.1", "Architecture": "all", "Depends": "hallmark (= 1.2.0~rc.1), systemd | systemd-sysusers"} {
		if got := strings.TrimSpace(output(t, "dpkg-deb", "-f", deb, field)); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	checkListing(t, output(t, "dpkg-deb", "-c", deb), small.commit.at)
	dir := filepath.Join(t.TempDir(), "all")
	output(t, "dpkg-deb", "-R", deb, dir)
	output(t, "sh", "-c", `cd "$1" && md5sum --strict -c DEBIAN/md5sums`, "sh", dir)
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		output(t, "sh", "-n", filepath.Join(dir, "DEBIAN", name))
	}
	testenv.Root(t)
	root := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, root, map[string]string{"var/lib/dpkg/status": "", "var/lib/dpkg/available": ""})
	installService(t, root, deb)
	if _, err := os.Stat(filepath.Join(root, "usr")); !os.IsNotExist(err) {
		t.Errorf("files are left when the package is removed: %v", err)
	}
}

// installService has dpkg install and remove the package of the service below a root. Its scripts run outside of
// it.
func installService(t *testing.T, root, deb string) {
	t.Helper()
	testenv.Tool(t, "systemd-sysusers")
	dpkg := func(args ...string) string {
		return output(t, "dpkg", append([]string{"--root=" + root, "--force-script-chrootless", "--force-depends"}, args...)...)
	}
	dpkg("-i", deb)
	if got := dpkg("--verify", "hallmark-server"); got != "" {
		t.Errorf("dpkg --verify prints %q", got)
	}
	if users, err := os.ReadFile(filepath.Join(root, "etc/passwd")); err != nil || !strings.Contains(string(users), "hallmark-server:x:") {
		t.Errorf("there is no user: %q, %v", users, err)
	}
	// The service left these files.
	write(t, root, map[string]string{"var/lib/hallmark-server/store/kept": "", "var/cache/hallmark-server/made": ""})
	dpkg("--remove", "hallmark-server")
	if _, err := os.Stat(filepath.Join(root, "var/cache/hallmark-server/made")); err != nil {
		t.Errorf("the cache is gone before the package is purged: %v", err)
	}
	dpkg("--purge", "hallmark-server")
	if _, err := os.Stat(filepath.Join(root, "var/lib/hallmark-server/store/kept")); err != nil {
		t.Errorf("the store is gone: %v", err)
	}
	for _, name := range []string{"var/cache/hallmark-server", "etc/default/hallmark-server"} {
		if _, err := os.Lstat(filepath.Join(root, name)); !os.IsNotExist(err) {
			t.Errorf("purging leaves /%s: %v", name, err)
		}
	}
}

// TestService has systemd-analyze read the service, and judge its sandbox.
func TestService(t *testing.T) {
	unit, err := os.ReadFile(filepath.Join("..", "..", "deploy", "hallmark-server.service"))
	if err != nil {
		t.Fatal(err)
	}
	// The program is not installed here.
	name := filepath.Join(t.TempDir(), "hallmark-server.service")
	text := strings.Replace(string(unit), "ExecStart=/usr/bin/hallmark ", "ExecStart="+os.Args[0]+" ", 1)
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	if got := output(t, "systemd-analyze", "verify", "--man=no", name); got != "" {
		t.Errorf("systemd-analyze reports\n%s", got)
	}
	const most = "15" // of 100, where 96 is a service without a sandbox
	if out, err := exec.Command("systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold="+most, name).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestKubernetes has kubectl read the example, without a cluster.
func TestKubernetes(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("NOT CHECKED: needs kubectl")
	}
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "kubernetes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{"server.yaml": string(text), "kustomization.yaml": "resources: [server.yaml]\nimages: [{name: hallmark, newName: example.org/other}]\n"})
	got := output(t, "kubectl", "kustomize", dir)
	for _, want := range []string{"kind: Deployment", "kind: Service", "image: example.org/other", "sessionAffinity: ClientIP", "secretName: hallmark-tokens"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}
