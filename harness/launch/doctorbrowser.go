package launch

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// browser reports which browser tasks would use, and what of this machine is hidden from it.
func browser(ctx context.Context) Finding {
	f := Finding{State: Good, What: "browser"}
	path, err := cdp.Find("")
	if err != nil {
		f.State, f.Text, f.Hint = Fair, "none was found: tasks in a browser cannot run",
			"apt-get install chromium-headless-shell (or chromium)"
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	b, err := exec.CommandContext(ctx, path, "--version").Output()
	version := strings.TrimSpace(string(b))
	if err != nil || version == "" {
		f.State, f.Text, f.Hint = Bad, path+" does not start", "try it by hand: "+path+" --version"
		return f
	}
	f.Text = version + " at " + path
	is := browsers.Isolated(path)
	fact := func(good bool, what, yes, no, hint string) {
		if good {
			f.Facts = append(f.Facts, Finding{State: Good, What: what, Text: yes})
		} else {
			f.Facts = append(f.Facts, Finding{State: Fair, What: what, Text: no, Hint: hint})
		}
	}
	fact(is.Namespaces, "network", "a namespace of its own: no way out but the proxies",
		"this machine's; proxies and flags send everything through a policy ("+is.Why+")", namespaceHint())
	fact(is.Namespaces, "files", "system folders, fonts and its own folder, no process but its own",
		"those that its user may read", namespaceHint())
	fact(is.Sandbox, "sandbox", "Chromium's own is on", "Chromium's own is off ("+is.Why+")", namespaceHint())
	switch {
	case os.Geteuid() != 0:
		fact(is.Namespaces, "user", "you, without any privilege", "you, with what you may do", "")
	default:
		fact(true, "user", "nobody's: a number of its own for each browser", "", "")
	}
	return f
}
