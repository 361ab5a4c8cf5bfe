package cli

import (
	"cmp"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"golang.org/x/term"

	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/harness/registry"
)

// Run runs the whole program with these kinds and does not return. The main function must call it
// before anything else, because drivers start the program again inside their sandboxes. If version
// is empty, Run uses the version recorded by the Go build.
func Run(kinds *registry.Registry, version string) {
	launch.Init()
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	talk := NewTalk(os.Stderr)
	exit := func(code int) {
		talk.Flush()
		os.Exit(code)
	}
	exit(Main(System{
		Args:   os.Args[1:],
		Env:    os.LookupEnv,
		Stdin:  os.Stdin,
		Stdout: os.Stdout,
		Stderr: talk,
		OutTTY: term.IsTerminal(int(os.Stdout.Fd())),
		ErrTTY: term.IsTerminal(int(os.Stderr.Fd())),

		Signals: signals,
		Exit:    exit,
		Version: cmp.Or(version, buildVersion()),
		Kinds:   kinds,
	}))
}

// buildVersion returns the commit recorded by the Go build.
func buildVersion() string {
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
