// Evalrun runs agents against benchmarks. See the README, or evalrun --help.
package main

import (
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"golang.org/x/term"

	"github.com/evalrun/evalrun/cmd/evalrun/cli"
	"github.com/evalrun/evalrun/harness/launch"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version string

func main() {
	launch.Init()
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	talk := cli.NewTalk(os.Stderr)
	exit := func(code int) {
		talk.Flush()
		os.Exit(code)
	}
	exit(cli.Main(cli.System{
		Args:   os.Args[1:],
		Env:    os.LookupEnv,
		Stdin:  os.Stdin,
		Stdout: os.Stdout,
		Stderr: talk,
		OutTTY: term.IsTerminal(int(os.Stdout.Fd())),
		ErrTTY: term.IsTerminal(int(os.Stderr.Fd())),

		Signals: signals,
		Exit:    exit,
		Version: buildVersion(),
	}))
}

// buildVersion is what the build says, else the commit that Go has noted.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	rev, dirty := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			rev = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+changes"
			}
		}
	}
	if rev == "" {
		return "devel"
	}
	return "devel-" + rev + dirty
}
