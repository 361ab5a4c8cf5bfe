// Package cli implements the command line of evalrun. Each command has its own file with an options
// struct, the flags that fill it, and a function that does the work. [Main] is the whole program
// except for its environment (arguments, streams, signals), which is passed in as a [System].
//
// Results go to stdout, messages and progress to stderr. Exit codes are defined in exit.go.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/registry"
	"github.com/evalrun/evalrun/internal/suggest"
	"github.com/evalrun/evalrun/reports/text"
)

// A System is the program's connection to the outside world.
type System struct {
	Args           []string // without the program name
	Env            func(string) (string, bool)
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	OutTTY, ErrTTY bool
	Signals        <-chan os.Signal // interrupt and terminate; may be nil
	Exit           func(code int)   // exits immediately, for the third signal
	Version        string
	Kinds          *registry.Registry // the kinds that configurations may name
}

// Main runs the program and returns its exit code.
func Main(sys System) (code int) {
	defer func() {
		if r := recover(); r != nil { // a bug of evalrun or of a kind; Go's own exit code would be ExitUsage
			fmt.Fprintf(sys.Stderr, "evalrun: panic: %v\n\n%s", r, debug.Stack())
			code = ExitInternal
		}
	}()
	if len(sys.Args) == 1 && (sys.Args[0] == "--version" || sys.Args[0] == "-v") {
		if _, err := fmt.Fprintln(sys.Stdout, "evalrun "+sys.Version); err != nil {
			fmt.Fprintln(sys.Stderr, err)
			return ExitInternal
		}
		return ExitDone
	}
	// an invalid registry is an error of the program, not of the user
	if err := sys.Kinds.Check(); err != nil {
		fmt.Fprintf(sys.Stderr, "evalrun: %v\n", err)
		return ExitInternal
	}
	out := &output{w: sys.Stdout}
	sys.Stdout = out
	a := &app{System: sys, reg: sys.Kinds.Config()}
	a.progress = &late{a: a}
	if _, ok := sys.Env("NO_COLOR"); !ok {
		a.color = true
	}
	if args := strings.Join(sys.Args, " ") + " "; strings.Contains(args, "--progress json ") ||
		strings.Contains(args, "--progress=json ") {
		a.json, a.lines = true, true // so that errors in the flags themselves are JSON lines too
	}
	over := make(chan struct{})
	defer close(over)
	go a.watch(over)
	root := a.root()
	err := root.Run(context.Background(), append([]string{"evalrun"}, helpAnywhere(root, sys.Args)...))
	if err == nil {
		err = a.missing
	}
	if err != nil {
		a.report(err)
	}
	if failed := out.failure(); failed != nil && !errors.Is(err, failed) {
		err = &exitError{ExitInternal, fmt.Errorf("writing to standard output: %w", failed), ""}
		a.report(err)
	}
	return codeOf(err)
}

// An output remembers the first write error, so that data lost to a full disk is reported.
type output struct {
	w   io.Writer
	mu  sync.Mutex
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// helpAnywhere moves --help before the command's arguments. After them, the library would interpret
// the arguments as a subcommand.
func helpAnywhere(cmd *cli.Command, args []string) []string {
	end := slices.Index(args, "--")
	if end < 0 {
		end = len(args)
	}
	if !slices.ContainsFunc(args[:end], func(s string) bool { return s == "--help" || s == "-h" }) ||
		slices.Contains(args, "--generate-shell-completion") {
		return args
	}
	var path []string
	for _, s := range args[:end] {
		if sub := cmd.Command(s); sub != nil {
			cmd = sub
			path = append(path, s)
		}
	}
	if path == nil {
		return args
	}
	return append(path, "--help")
}

type app struct {
	System
	reg     *config.Registry // the registry of Kinds
	color   bool
	quiet   bool
	json    bool // report errors as a JSON line
	lines   bool // report all messages as JSON lines
	level   slog.Level
	log     *slog.Logger
	stop    atomic.Pointer[stopper] // not nil while a run is active
	missing error                   // an unknown command that the library found
	// progress is the command's progress display, if it has one.
	progress *late
}

// say prints a message for the user, unless --quiet is set.
func (a *app) say(format string, args ...any) { a.notify("note", nil, format, args...) }

// notify is like say, with a type and fields for the JSON line.
func (a *app) notify(what string, facts map[string]any, format string, args ...any) {
	if a.quiet {
		return
	}
	args = slices.Clone(args)
	for i, x := range args {
		if err, ok := x.(error); ok { // the error may contain text from untrusted sources
			args[i] = text.Clean(err.Error())
		}
	}
	text := fmt.Sprintf(format, args...)
	if !a.lines {
		fmt.Fprintln(a.Stderr, text)
		return
	}
	line := map[string]any{"type": what, "text": text}
	maps.Copy(line, facts)
	a.line(line)
}

// line writes a JSON line to stderr.
func (a *app) line(v map[string]any) {
	if b, err := json.Marshal(v); err == nil {
		a.Stderr.Write(append(b, '\n'))
	}
}

func (a *app) root() *cli.Command {
	root := &cli.Command{
		Name:  "evalrun",
		Usage: "run AI agents against benchmarks, many trials at once, each in its own sandbox",
		Description: `Examples:
   evalrun run quickstart                  embedded tasks; needs no API key, Docker or setup
   evalrun run humaneval:HumanEval.jsonl.gz --agent oracle --agent nop -n 8
   evalrun run qa:questions.jsonl -m openai/gpt-4o-mini --sample 50
   evalrun run harbor:tasks                Harbor tasks, in Docker
   evalrun run nightly.yaml --dry-run      print what the run would do and cost

A run writes a folder with a summary and Parquet files. To continue an interrupted run:
   evalrun resume FOLDER`,
		Version:                         a.Version,
		HideHelpCommand:                 true,
		EnableShellCompletion:           true,
		ConfigureShellCompletionCommand: a.configureCompletion,
		DisableSliceFlagSeparator:       true,
		Reader:                          a.Stdin,
		Writer:                          a.Stdout,
		ErrWriter:                       a.Stderr,
		// Main reports errors
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"},
				Usage: "print only results and errors"},
			&cli.StringFlag{Name: "log-level", Usage: "log to stderr at `LEVEL` and above: debug, info, warn, error",
				Sources: cli.EnvVars("EVALRUN_LOG_LEVEL")},
			&cli.StringFlag{Name: "log-format", Usage: "log `FORMAT`: text, json", Value: "text",
				Sources: cli.EnvVars("EVALRUN_LOG_FORMAT")},
		},
		Before: a.before,
		Commands: []*cli.Command{
			a.runCommand(), a.resumeCommand(), a.showCommand(), a.compareCommand(), a.exportCommand(), a.rerunCommand(),
			a.regradeCommand(), a.shellCommand(),
			a.tasksCommand(), a.imagesCommand(), a.configCommand(), a.doctorCommand(), a.gcCommand(),
			a.versionCommand(), a.helpCommand(),
		},
	}
	a.finish(root)
	return root
}

func (a *app) configureCompletion(c *cli.Command) {
	c.Hidden = false
	c.CommandNotFound = a.notFound
	c.Commands = slices.DeleteFunc(c.Commands, func(sub *cli.Command) bool { return sub.Name == "pwsh" })
	c.Usage = "print a completion script for bash, zsh or fish"
	c.Description = `Examples:
   source <(evalrun completion bash)
   evalrun completion fish > ~/.config/fish/completions/evalrun.fish`
	for _, sub := range c.Commands {
		sub.Usage = "print a completion script for " + sub.Name
		if script := sub.Action; sub.Name == "bash" {
			sub.Action = func(ctx context.Context, cmd *cli.Command) error {
				if _, err := fmt.Fprint(cmd.Root().Writer, bashFallback); err != nil {
					return err
				}
				if err := script(ctx, cmd); err != nil {
					return err
				}
				_, err := fmt.Fprint(cmd.Root().Writer, bashKeys)
				return err
			}
		}
	}
}

// bashFallback defines the functions of the package bash-completion that the library's script
// calls, in case the package is not installed.
const bashFallback = `declare -F _get_comp_words_by_ref >/dev/null || declare -F _comp_initialize >/dev/null || _get_comp_words_by_ref() {
  cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" words=("${COMP_WORDS[@]}") cword="$COMP_CWORD"
}
`

// bashKeys omits the space after a completed key, so that the value can be typed directly:
// browser.path=.
const bashKeys = `
__evalrun_complete() {
  __evalrun_bash_autocomplete "$@"
  if [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -o bashdefault -o default -F __evalrun_complete evalrun
`

// finish applies common settings to every command: unknown names get a suggestion, and the library
// never exits the program.
func (a *app) finish(c *cli.Command) {
	c.OnUsageError = func(_ context.Context, cmd *cli.Command, err error, _ bool) error { return a.badFlag(cmd, err) }
	c.DisableSliceFlagSeparator = true
	c.HideHelpCommand = true
	c.CommandNotFound = a.notFound
	if c.Before == nil {
		c.Before = notEmpty
	}
	group := len(c.Commands) > 0
	if group && c.Action == nil {
		c.Action = func(_ context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return a.unknownCommand(cmd, cmd.Args().First())
			}
			if cmd.Root() != cmd {
				_ = cli.ShowSubcommandHelp(cmd)
				return usage("", "%s needs one of its commands", cmd.FullName())
			}
			return cli.ShowRootCommandHelp(cmd)
		}
	}
	switch c.ArgsUsage { // indicates what kind of arguments the command takes
	case "FILE.yaml | BENCHMARK…":
		a.completes(c, a.sourceWords)
	case "BENCHMARK", "BENCHMARK TASK", "PATH | BENCHMARK":
		words := a.benchmarkWords
		switch {
		case c.Name == "fetch":
			words = fetchWords
		case c.ArgsUsage == "BENCHMARK TASK":
			words = func(cmd *cli.Command) []word {
				if ids := a.taskWords("--ids"); ids != nil {
					return ids
				}
				return a.benchmarkWords(cmd)
			}
		}
		a.completes(c, words)
	case "RUN", "RUN [RUN…]", "[RUN…]":
		a.completes(c, runWords)
	case "RUN TRIAL [-- COMMAND…]":
		a.completes(c, func(cmd *cli.Command) []word {
			switch cmd.Args().Len() {
			case 0:
				return runWords(cmd)
			case 1:
				return trialWords(cmd)
			}
			return nil
		})
	case "[COMMAND | exit-codes]":
		a.completes(c, topicWords)
	default:
		a.completes(c, nil)
	}
	for _, sub := range c.Commands {
		a.finish(sub)
	}
}

// notEmpty rejects flags with an empty value, such as --budget "$UNSET": ignoring them would run
// without the limit or selection that was meant.
func notEmpty(ctx context.Context, cmd *cli.Command) (context.Context, error) {
	for _, f := range cmd.Flags {
		name := f.Names()[0]
		if !cmd.IsSet(name) {
			continue
		}
		values, list := f.Get().([]string)
		text, ok := f.Get().(string)
		if list && slices.Contains(values, "") || ok && text == "" {
			return ctx, usage("leave the flag out, or give it a value", "--%s is empty", name)
		}
	}
	return ctx, nil
}

// notFound is called by the library instead of returning an error.
func (a *app) notFound(_ context.Context, cmd *cli.Command, name string) {
	a.missing = a.unknownCommand(cmd, name)
}

func (a *app) unknownCommand(cmd *cli.Command, name string) error {
	var names []string
	for _, c := range cmd.Commands {
		if !c.Hidden {
			names = append(names, c.Names()...)
		}
	}
	hint := "see " + cmd.FullName() + " --help"
	if meant := suggest.Names(name, names); meant != nil {
		hint = fmt.Sprintf("did you mean %q?", cmd.FullName()+" "+meant[0])
	}
	return usage(hint, "unknown command %q", cmd.FullName()+" "+name)
}

func (a *app) badFlag(cmd *cli.Command, err error) error {
	msg := err.Error()
	const undefined = "flag provided but not defined: "
	hint := "see " + cmd.FullName() + " --help"
	if i := strings.Index(msg, undefined); i >= 0 {
		word := strings.TrimLeft(msg[i+len(undefined):], "-")
		var names []string
		for c := cmd; c != nil; c = parent(c) {
			for _, f := range c.Flags {
				names = append(names, f.Names()...)
			}
		}
		if meant := suggest.Names(word, slices.DeleteFunc(names,
			func(n string) bool { return len(n) == 1 })); meant != nil {
			hint = "did you mean --" + meant[0] + "?"
		}
		if slices.ContainsFunc(config.Settable(nil, nil), func(k config.Key) bool { return k.Path == word }) &&
			slices.ContainsFunc(cmd.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), "set") }) {
			hint = "did you mean --set " + word + "=VALUE?"
		}
		dashes := "--"
		if len(word) == 1 {
			dashes = "-"
		}
		return usage(hint, "unknown flag %s%s of %s", dashes, word, cmd.FullName())
	}
	return &exitError{ExitUsage, err, hint}
}

func parent(c *cli.Command) *cli.Command {
	l := c.Lineage()
	if len(l) < 2 {
		return nil
	}
	return l[1]
}

// before evaluates the flags that all commands share.
func (a *app) before(ctx context.Context, cmd *cli.Command) (context.Context, error) {
	a.quiet = cmd.Bool("quiet")
	a.level = slog.LevelWarn
	if s := cmd.String("log-level"); s != "" {
		if err := a.level.UnmarshalText([]byte(s)); err != nil {
			return ctx, usage("", "--log-level %q is none of debug, info, warn, error", s)
		}
	}
	opts := &slog.HandlerOptions{Level: a.level}
	switch f := cmd.String("log-format"); f {
	case "text":
		a.log = slog.New(slog.NewTextHandler(a.Stderr, opts))
	case "json":
		a.log = slog.New(slog.NewJSONHandler(a.Stderr, opts))
		a.json = true
	default:
		return ctx, usage("", "--log-format %q is none of text, json", f)
	}
	return ctx, nil
}

// one returns the only argument of a command.
func one(cmd *cli.Command, what string) (string, error) {
	switch cmd.Args().Len() {
	case 0:
		return "", usage("see "+cmd.FullName()+" --help", "%s needs a %s", cmd.FullName(), what)
	case 1:
		return cmd.Args().First(), nil
	}
	return "", usage("see "+cmd.FullName()+" --help", "%s takes one %s, found %q too", cmd.FullName(), what,
		cmd.Args().Get(1))
}

func none(cmd *cli.Command) error {
	if cmd.Args().Present() {
		return usage("see "+cmd.FullName()+" --help", "%s takes no argument, found %q", cmd.FullName(),
			cmd.Args().First())
	}
	return nil
}
