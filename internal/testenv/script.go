package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Condition answers a script's [root] and [tool:NAME]. In CI a missing tool is
// an error, so that no script is skipped unseen.
func Condition(cond string) (bool, error) {
	if name, ok := strings.CutPrefix(cond, "tool:"); ok {
		_, err := exec.LookPath(name)
		if err != nil && CI() {
			return false, fmt.Errorf("NOT CHECKED: needs %s in PATH", name)
		}
		return err == nil, nil
	}
	if cond == "root" {
		return os.Geteuid() == 0, nil
	}
	return false, fmt.Errorf("unknown condition %q", cond)
}
