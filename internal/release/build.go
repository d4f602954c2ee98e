package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A file is one of an archive or package: its path there, with slashes, and its content.
type file struct {
	name string
	mode int64
	data []byte
}

// A builder builds a commit.
type builder struct {
	commit  commit
	source  string   // its files
	scratch string   // a directory for what is built
	env     []string // of the Go command
}

// A binary is the command for one architecture.
type binary struct {
	path    string
	version string // as the Go command found it in the history, without its v
}

// kept are the settings of the Go command that a build has from the user: they say where modules come
// from and where they are stored, and go.sum what is in them.
var kept = []string{"GOPATH", "GOMODCACHE", "GOCACHE", "GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOPROXY", "GOPRIVATE", "GOINSECURE", "GOAUTH", "GOVCS", "GOTOOLCHAIN"}

// buildEnv returns the environment of the Go command for a build in dir.
func buildEnv(ctx context.Context, dir string, c commit) ([]string, error) {
	out, err := run(ctx, dir, withoutGit(), "go", append([]string{"env", "-json"}, kept...)...)
	if err != nil {
		return nil, err
	}
	var settings map[string]string
	if err := json.Unmarshal([]byte(out), &settings); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	env := slices.DeleteFunc(withoutGit(), func(v string) bool {
		return strings.HasPrefix(v, "GO") || strings.HasPrefix(v, "CGO_") || strings.HasPrefix(v, "LC_") || strings.HasPrefix(v, "PWD=")
	})
	for _, name := range kept {
		if settings[name] != "" {
			env = append(env, name+"="+settings[name])
		}
	}
	return append(env, "GOENV=off", "GOWORK=off", "GOOS=linux", "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "LC_ALL=C", "TZ=UTC",
		fmt.Sprintf("SOURCE_DATE_EPOCH=%d", c.at.Unix())), nil
}

// build compiles the command for one architecture. It has no symbol table and no debug information,
// which are half of a compressed archive: Go's own table (pclntab) has functions and lines.
func (b *builder) build(ctx context.Context, architecture string) (binary, error) {
	name := filepath.Join(b.scratch, "hallmark-"+architecture)
	_, err := run(ctx, b.source, append(slices.Clone(b.env), "GOARCH="+architecture),
		"go", "build", "-trimpath", "-buildvcs=true", "-mod=readonly", "-ldflags=-s -w", "-o", name, "./cmd/hallmark")
	if err != nil {
		return binary{}, err
	}
	info, err := buildinfo.ReadFile(name)
	if err != nil {
		return binary{}, err
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	for key, want := range map[string]string{
		"GOOS": "linux", "GOARCH": architecture, "CGO_ENABLED": "0", "-trimpath": "true", "vcs.revision": b.commit.hash, "vcs.modified": "false",
	} {
		if settings[key] != want {
			return binary{}, fmt.Errorf("the binary for %s reports %s=%q, and not %q", architecture, key, settings[key], want)
		}
	}
	version, ok := strings.CutPrefix(info.Main.Version, "v")
	if !ok {
		return binary{}, fmt.Errorf("the binary for %s reports the version %q", architecture, info.Main.Version)
	}
	return binary{name, version}, nil
}

// contents are the files of a release besides binaries and licenses, by their names.
type contents struct {
	pages       []file // man1/NAME.1
	completions map[string][]byte
	documents   []file // below the repository
}

// shells are those that completions are written for.
var shells = []string{"bash", "zsh", "fish"}

// common has the command of this machine write its manual pages and completions, and reads the documents.
func (b *builder) common(ctx context.Context, command string) (c contents, err error) {
	// The texts are the command's own: settings of the user must not be in them.
	env := []string{"HOME=" + filepath.Join(b.scratch, "home"), "PATH=/usr/bin:/bin", "LC_ALL=C"}
	pages := filepath.Join(b.scratch, "man")
	if _, err := run(ctx, b.source, env, command, "man", pages); err != nil {
		return c, err
	}
	if c.pages, err = readBelow(pages, "*.1"); err != nil {
		return c, err
	}
	c.completions = map[string][]byte{}
	for _, shell := range shells {
		text, err := run(ctx, b.source, env, command, "completion", shell)
		if err != nil {
			return c, err
		}
		if text == "" {
			return c, fmt.Errorf("the completions for %s are empty", shell)
		}
		c.completions[shell] = []byte(text)
	}
	for _, pattern := range []string{"LICENSE", "LICENSES/*.txt", "README.md", "CHANGELOG.md", "docs/*.md", "deploy/*"} {
		found, err := readBelow(b.source, pattern)
		if err != nil {
			return c, err
		}
		c.documents = append(c.documents, found...)
	}
	return c, nil
}

// readBelow reads the files below a directory whose paths match a pattern. There must be one, and no link
// may lead out of the directory.
func readBelow(dir, pattern string) (files []file, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	names, err := fs.Glob(root.FS(), pattern)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no %s", pattern)
	}
	for _, name := range names {
		data, err := root.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, 0o644, data})
	}
	return files, nil
}

// isLicense matches the names of files that state under which terms code may be passed on.
var isLicense = regexp.MustCompile(`(?i)^(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|PATENTS)([._-].*)?$`)

// licenses returns those of the code that is in the command for an architecture besides its own: of Go's
// library, and of modules. A part of a module may have one of its own, so each directory counts from that
// of a package up to that of its module.
func (b *builder) licenses(ctx context.Context, architecture string) ([]file, error) {
	env := append(slices.Clone(b.env), "GOARCH="+architecture)
	goRoot, err := run(ctx, b.source, env, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	files, err := licensesIn(strings.TrimSpace(goRoot), "go")
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("a release needs the license of Go, and %s has none", strings.TrimSpace(goRoot))
	}
	list, err := run(ctx, b.source, env, "go", "list", "-mod=readonly", "-deps", "-f",
		"{{$dir := .Dir}}{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Dir}}\t{{$dir}}{{end}}{{end}}", "./cmd/hallmark")
	if err != nil {
		return nil, err
	}
	seen, licensed := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(list) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 3 {
			continue // of this module, or Go's
		}
		module, root := fields[0], fields[1]
		licensed[module] = licensed[module] || false
		for dir := fields[2]; strings.HasPrefix(dir+"/", root+"/") && !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			found, err := licensesIn(dir, path.Join(module, filepath.ToSlash(strings.TrimPrefix(dir, root))))
			if err != nil {
				return nil, err
			}
			files = append(files, found...)
			licensed[module] = licensed[module] || len(found) > 0
		}
	}
	for module, ok := range licensed {
		if !ok {
			return nil, fmt.Errorf("the module %s has no license", module)
		}
	}
	return files, nil
}

// licensesIn returns the licenses in a directory, with below before their names.
func licensesIn(dir, below string) (files []file, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !isLicense.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, file{path.Join(below, e.Name()), 0o644, data})
	}
	return files, nil
}
