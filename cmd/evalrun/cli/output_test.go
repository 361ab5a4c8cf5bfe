package cli

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/cmd/evalrun/builtin"
)

// Data that a full disk did not take is not done, whatever the command.
func TestOutputThatIsNotTaken(t *testing.T) {
	for _, args := range []string{"--version", "help exit-codes", "doctor --json", "config schema"} {
		var talk bytes.Buffer
		full := writer(func([]byte) (int, error) { return 0, syscall.ENOSPC })
		code := Main(System{Kinds: builtin.Kinds(), Args: strings.Fields(args),
			Env:   func(string) (string, bool) { return "", false },
			Stdin: strings.NewReader(""), Stdout: full, Stderr: &talk})
		if code != ExitInternal || !strings.Contains(talk.String(), "no space left") {
			t.Errorf("%s: exit code %d, %q", args, code, talk.String())
		}
	}
}
