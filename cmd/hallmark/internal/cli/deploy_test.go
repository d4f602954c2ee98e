package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"hallmark/cmd/hallmark/internal/verb"
)

// TestDeployedFlags has the command read the flags that the files of deploy give to the server.
func TestDeployedFlags(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "deploy", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	find := func(text, pattern string) (found []string) {
		for _, m := range regexp.MustCompile("(?m)"+pattern).FindAllStringSubmatch(text, -1) {
			found = append(found, m[1])
		}
		if len(found) == 0 {
			t.Errorf("nothing is like %s", pattern)
		}
		return found
	}
	lines := map[string][]string{}
	service := find(read("hallmark-server.service"), `^ExecStart=/usr/bin/hallmark serve (.*) \$HALLMARK_SERVE_FLAGS$`)[0]
	lines["service"] = strings.Fields(service)
	for _, flags := range find(read("hallmark-server.default"), `^(?:# )?HALLMARK_SERVE_FLAGS="(.*)"$`) {
		lines["default "+flags] = strings.Fields(service + " " + flags)
	}
	var image []string
	for _, words := range find(read("Dockerfile"), `^(?:ENTRYPOINT|CMD) (.*)$`) {
		var list []string
		if err := json.Unmarshal([]byte(words), &list); err != nil {
			t.Errorf("%s: %v", words, err)
		}
		image = append(image, list...)
	}
	lines["image"] = image[2:] // after the program and the verb
	entry := find(read("Dockerfile"), `^ENTRYPOINT \["/usr/bin/hallmark", "serve", (.*)\]$`)[0]
	lines["kubernetes"] = append(strings.Split(strings.NewReplacer(`"`, "", " ", "").Replace(entry), ","), find(read("kubernetes.yaml"), `^ +- (--.*)$`)...)
	for name, flags := range lines {
		var opt serveOptions
		cmd := serveCommand(&verb.Env{}, &opt)
		if err := cmd.ParseFlags(flags); err != nil || cmd.Flags().NArg() > 0 {
			t.Errorf("%s: %v: %q", name, err, cmd.Flags().Args())
		}
		if err := opt.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
