package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/progress"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/reports/export"
	"github.com/evalrun/evalrun/reports/text"
)

// A word is a completion candidate and its description.
type word struct{ text, doc string }

// values returns a function that lists the values of a command's flag, or nil if they are unknown.
func (a *app) values(cmd *cli.Command, flag string) func() []word {
	switch {
	case cmd.Name == "export" && flag == "--set":
		return a.formatWords
	case flag == "--set":
		return a.setWords
	case flag == "--status" && cmd.Name == "show":
		return func() []word { return plainWords(text.TrialStatuses...) }
	case flag == "--status":
		return func() []word { return plainWords(rerunStatuses...) }
	case slices.Contains([]string{"show", "rerun", "regrade"}, cmd.Name) &&
		slices.Contains([]string{"--arm", "--task", "--trial"}, flag),
		cmd.Name == "compare" && slices.Contains([]string{"-a", "-b", "--a", "--b"}, flag):
		return func() []word { return a.planWords(flag) }
	case cmd.Name == "export" && flag == "--format":
		return func() []word { return kindWords(a.reg.Exporters) }
	case cmd.Name == "export" && flag == "--tables":
		return func() []word { return plainWords(export.Tables...) }
	case slices.Contains([]string{"--ids", "--tag"}, flag):
		return func() []word { return a.taskWords(flag) }
	}
	switch flag { // the same for every command
	case "--agent":
		return func() []word { return kindWords(a.reg.Agents) }
	case "--model", "-m":
		return func() (out []word) {
			for _, k := range a.reg.Vendors {
				out = append(out, word{k.Name + "/", k.Doc})
			}
			return out
		}
	case "--sandbox":
		return func() []word {
			return append(kindWords(a.reg.Drivers),
				word{"auto", "what each task needs: docker where it brings an image, else local"})
		}
	case "--progress":
		return func() []word { return plainWords(progress.Modes...) }
	case "--log-level":
		return func() []word { return plainWords("debug", "info", "warn", "error") }
	case "--log-format":
		return func() []word { return plainWords("text", "json") }
	}
	return nil
}

// setWords returns the configuration keys, including the options of the benchmark and agent on the
// command line.
func (a *app) setWords() (out []word) {
	var benchmark, agent *config.Kind
	for _, w := range a.Args {
		name, _, _ := strings.Cut(w, ":")
		if k := a.reg.Benchmark(name); k != nil {
			benchmark = k
		}
		if k := a.reg.Agent(name); k != nil {
			agent = k
		}
	}
	for _, k := range config.Settable(benchmark, agent) {
		out = append(out, word{k.Path + "=", k.Doc})
	}
	return out
}

// formatWords returns the options of the format on the command line.
func (a *app) formatWords() (out []word) {
	for i, w := range a.Args {
		w, same := strings.CutPrefix(w, "--format=")
		if !same && (i == 0 || a.Args[i-1] != "--format") {
			continue
		}
		name, _, _ := strings.Cut(w, ":")
		for _, k := range a.reg.Exporters {
			if k.Name != name {
				continue
			}
			for _, key := range config.OptionKeys(&k) {
				out = append(out, word{key.Path + "=", key.Doc})
			}
		}
	}
	return out
}

// planWords returns the arm or task names of the run on the command line.
func (a *app) planWords(flag string) (out []word) {
	for _, w := range a.Args {
		d, err := rundir.View(w)
		if err != nil {
			continue
		}
		if slices.Contains([]string{"--arm", "-a", "-b", "--a", "--b"}, flag) {
			for _, x := range d.Plan().Arms {
				out = append(out, word{x.Name, ""})
			}
			return out
		}
		for _, x := range d.Plan().Tasks {
			out = append(out, word{x.ID, ""})
		}
		return out
	}
	return nil
}

// taskWords returns the task ids or tags of the benchmark or configuration on the command line.
func (a *app) taskWords(flag string) (out []word) {
	for _, w := range a.Args {
		if name, _, _ := strings.Cut(w, ":"); a.reg.Benchmark(name) == nil && !isFile(w) {
			continue
		}
		out = nil
		seen := map[string]bool{}
		err := a.eachTask(context.Background(), []string{w}, &configOptions{}, func(t record.Task) error {
			words := []string{t.ID}
			if flag == "--tag" {
				words = t.Tags
			}
			for _, x := range words {
				// shells would complete only the part before the space
				if !seen[x] && !strings.ContainsAny(x, " \t") {
					seen[x] = true
					out = append(out, word{x, ""})
				}
			}
			return nil
		})
		if err != nil { // the command tasks has the same name as a benchmark
			continue
		}
		return out
	}
	return nil
}

// fetchWords returns the benchmarks whose data can be fetched.
func fetchWords(*cli.Command) []word { return plainWords(launch.Fetched...) }

// completes enables completion of a command's arguments and of flag values. The library completes
// flags and commands itself.
func (a *app) completes(c *cli.Command, words func(*cli.Command) []word) {
	c.ShellComplete = func(ctx context.Context, cmd *cli.Command) {
		last := "" // the word before the one being completed, or the incomplete flag itself
		if n := len(a.Args); n > 1 {
			last = a.Args[n-2]
		}
		var out []word
		flag := flagCalled(cmd, last)
		_, alone := flag.(*cli.BoolFlag)
		switch values := a.values(cmd, last); {
		// a number, or a file, which the shell completes itself
		case flag != nil && !alone && values == nil:
		case flag != nil && !alone:
			out = values()
		case flag == nil && strings.HasPrefix(last, "-"), words == nil:
			a.completeNames(ctx, cmd)
		default:
			out = words(cmd)
		}
		for n := 0; n < len(out) && n < maxWords; n++ {
			w := out[n]
			if !tame(w.text) {
				continue
			}
			if w.doc != "" {
				w.doc = ":" + w.doc
			}
			fmt.Fprintln(a.Stdout, w.text+w.doc)
		}
	}
}

// completeNames prints flags and commands. The library prints their help text unchanged, with the
// names of flag values in backticks.
func (a *app) completeNames(ctx context.Context, cmd *cli.Command) {
	var b bytes.Buffer
	root := cmd.Root()
	was := root.Writer
	root.Writer = &b
	cli.DefaultCompleteWithFlags(ctx, cmd)
	root.Writer = was
	a.Stdout.Write(bytes.ReplaceAll(b.Bytes(), []byte("`"), nil))
}

// maxWords limits the number of completion candidates, because each one takes the shell some time.
const maxWords = 10_000

// tame reports whether a word has no special meaning in any shell. Ids, tags and directory names
// come from others, the library's script lets bash expand the candidates, including command
// substitutions, and a completed word is inserted unchanged. Other words are not offered.
func tame(text string) bool {
	return text != "" && text[0] != '-' && text[0] != '=' && utf8.ValidString(text) &&
		!strings.ContainsFunc(text, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r) &&
				!strings.ContainsRune("_-./:,+=@%", r)
		})
}

// flagCalled returns the command's flag that a word names, or nil if it names none or is
// incomplete.
func flagCalled(cmd *cli.Command, text string) cli.Flag {
	name := strings.TrimLeft(text, "-")
	i := slices.IndexFunc(cmd.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	if i < 0 || name == text {
		return nil
	}
	return cmd.Flags[i]
}

func plainWords(texts ...string) (out []word) {
	for _, s := range texts {
		out = append(out, word{s, ""})
	}
	return out
}

func kindWords(kinds []config.Kind) (out []word) {
	for _, k := range kinds {
		if !k.Hidden {
			out = append(out, word{k.Name, k.Doc})
		}
	}
	return out
}

// benchmarkWords returns the benchmarks, without an argument.
func (a *app) benchmarkWords(*cli.Command) []word { return kindWords(a.reg.Benchmarks) }

// sourceWords returns the benchmarks, and the configuration files in the current directory.
func (a *app) sourceWords(*cli.Command) []word {
	out := a.benchmarkWords(nil)
	for _, pattern := range []string{"*.yaml", "*.yml"} {
		names, _ := filepath.Glob(pattern) // the patterns are valid
		out = append(out, plainWords(names...)...)
	}
	return out
}

// runWords returns the run directories below runs, newest first, and those in the current
// directory.
func runWords(*cli.Command) []word {
	var out []string
	for _, pattern := range []string{"runs/*/plan.json", "*/plan.json"} {
		plans, _ := filepath.Glob(pattern)
		slices.Reverse(plans)
		for _, p := range plans {
			if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() {
				out = append(out, filepath.Dir(p))
			}
		}
	}
	return plainWords(out...)
}

// topicWords returns the topics of the help command.
func topicWords(cmd *cli.Command) []word {
	out := []word{{"exit-codes", "what the exit code says"}}
	for _, c := range cmd.Root().Commands {
		if !c.Hidden {
			out = append(out, word{c.Name, c.Usage})
		}
	}
	return out
}
