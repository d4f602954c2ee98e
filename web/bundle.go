package web

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strings"
)

var (
	importLine = regexp.MustCompile(`(?m)^import \{([^}]*)\} from "\./([a-z]+\.js)";$`)
	exportWord = regexp.MustCompile(`(?m)^export ((?:async )?function|class|const) (\w+)`)
	stylesheet = regexp.MustCompile(`<link rel="stylesheet" href="(app/css/[a-z]+\.css)">`)
	moduleTag  = regexp.MustCompile(`<script type="module" src="app/js/([a-z]+\.js)"></script>`)
)

// bundlePage returns a page whose styles and scripts are one file each, which are "app/NAME.css" and
// "app/NAME.js" for "app/NAME.html": a browser needs some milliseconds of a processor for each file.
func bundlePage(name string) (page, style, script []byte, err error) {
	if page, err = assets.ReadFile(name); err != nil {
		return nil, nil, nil, err
	}
	if style, err = bundleStyles(page); err != nil {
		return nil, nil, nil, err
	}
	if script, err = bundleScripts(page); err != nil {
		return nil, nil, nil, err
	}
	base := strings.TrimSuffix(name, ".html")
	page = replaceTags(stylesheet, page, `<link rel="stylesheet" href="`+base+`.css">`+"\n")
	page = replaceTags(moduleTag, page, `<script type="module" src="`+base+`.js"></script>`+"\n")
	return page, style, script, nil
}

// replaceTags puts one line in the place of the lines that match.
func replaceTags(all *regexp.Regexp, page []byte, with string) (out []byte) {
	isDone := false
	for line := range bytes.Lines(page) {
		switch {
		case !all.Match(line):
			out = append(out, line...)
		case !isDone:
			out, isDone = append(out, with...), true
		}
	}
	return out
}

// bundleScripts returns the modules of a page as one script: each is a function that is called
// once, behind those that it imports, and returns what it exports.
func bundleScripts(page []byte) ([]byte, error) {
	b := &bundler{state: map[string]int{}}
	for _, m := range moduleTag.FindAllSubmatch(page, -1) {
		if err := b.add(string(m[1])); err != nil {
			return nil, err
		}
	}
	return b.out.Bytes(), nil
}

type bundler struct {
	out   bytes.Buffer
	state map[string]int // of a module: 1 while it is added, 2 then
}

func (b *bundler) add(name string) error {
	switch b.state[name] {
	case 1:
		return fmt.Errorf("%s imports itself, by way of others", name)
	case 2:
		return nil
	}
	b.state[name] = 1
	source, err := assets.ReadFile("app/js/" + name)
	if err != nil {
		return err
	}
	text := string(source)
	for _, m := range importLine.FindAllStringSubmatch(text, -1) {
		if err := b.add(m[2]); err != nil {
			return err
		}
	}
	text = importLine.ReplaceAllStringFunc(text, func(line string) string {
		m := importLine.FindStringSubmatch(line)
		return "const {" + strings.ReplaceAll(m[1], " as ", ": ") + "} = " + moduleName(m[2]) + ";"
	})
	var names []string
	for _, m := range exportWord.FindAllStringSubmatch(text, -1) {
		names = append(names, m[2])
	}
	text = exportWord.ReplaceAllString(text, "$1 $2")
	for _, word := range []string{"\nimport ", "\nexport ", "</script", "<!--"} {
		if strings.Contains("\n"+text, word) {
			return fmt.Errorf("%s has %q, which cannot be in one script", name, strings.TrimSpace(word))
		}
	}
	fmt.Fprintf(&b.out, "const %s = (() => {\n%s\nreturn { %s };\n})();\n", moduleName(name), text, strings.Join(names, ", "))
	b.state[name] = 2
	return nil
}

func moduleName(file string) string { return "module_" + strings.TrimSuffix(path.Base(file), ".js") }

// bundleStyles returns the styles of a page.
func bundleStyles(page []byte) ([]byte, error) {
	var out bytes.Buffer
	for _, m := range stylesheet.FindAllSubmatch(page, -1) {
		css, err := assets.ReadFile(string(m[1]))
		if err != nil {
			return nil, err
		}
		out.Write(css)
	}
	return out.Bytes(), nil
}
