package view

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// openBrowser starts the user's browser, or writes that it cannot. The browser prints nothing to
// this terminal.
func openBrowser(url string, problems io.Writer) {
	for _, command := range browsers() {
		words := strings.Fields(command)
		if len(words) == 0 {
			continue
		}
		cmd := exec.Command(words[0], append(words[1:], url)...)
		if cmd.Start() == nil {
			go cmd.Wait()
			return
		}
	}
	fmt.Fprintln(problems, "no browser could be started; open the URL in one")
}

// browsers returns command lines that a URL is added to, the wanted one first.
func browsers() []string {
	return []string{os.Getenv("BROWSER"), "chrome", "google-chrome", "chromium", "firefox", "sensible-browser", "xdg-open"}
}
