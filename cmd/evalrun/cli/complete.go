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

// A word is what a shell may complete to, with what it means.
type word struct{ text, doc string }

// values are the words that a flag of a command takes; nil: nobody knows them.
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
	switch flag { // whichever command has it
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

// setWords are the keys of a configuration, with the options of the benchmark and the agent that
// the line names.
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

// formatWords are the options of the format that the line names.
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

// planWords are names of the run that the line names: its arms, its tasks.
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

// taskWords are the tasks' ids, or their tags, of the benchmark or the configuration that the line
// names.
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
				if !seen[x] && !strings.ContainsAny(x, " \t") { // shells would offer its first word alone
					seen[x] = true
					out = append(out, word{x, ""})
				}
			}
			return nil
		})
		if err != nil { // the command tasks is called as a benchmark is
			continue
		}
		return out
	}
	return nil
}

// fetchWords are the benchmarks whose data can be fetched.
func fetchWords(*cli.Command) []word { return plainWords(launch.Fetched...) }

// completes lets the shell complete a command's arguments to words, and the values of flags; flags
// and commands the library knows.
func (a *app) completes(c *cli.Command, words func(*cli.Command) []word) {
	c.ShellComplete = func(ctx context.Context, cmd *cli.Command) {
		last := "" // before the word that is completed, or, of a flag, as far as it is written
		if n := len(a.Args); n > 1 {
			last = a.Args[n-2]
		}
		var out []word
		flag := flagCalled(cmd, last)
		_, alone := flag.(*cli.BoolFlag)
		switch values := a.values(cmd, last); {
		case flag != nil && !alone && values == nil: // a number, or a file, which the shell itself completes
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

// completeNames offers flags and commands. The library takes their help as it is written, with the
// name of a flag's value in backticks.
func (a *app) completeNames(ctx context.Context, cmd *cli.Command) {
	var b bytes.Buffer
	root := cmd.Root()
	was := root.Writer
	root.Writer = &b
	cli.DefaultCompleteWithFlags(ctx, cmd)
	root.Writer = was
	a.Stdout.Write(bytes.ReplaceAll(b.Bytes(), []byte("`"), nil))
}

// maxWords is how many words a shell is given to choose from; it takes a while for each.
const maxWords = 10_000

// tame reports whether a word means itself in every shell. Ids, tags and names of folders were
// written by others, the library's script has bash expand what it is given, commands within
// included, and what was completed stands in the line as it is: other words are left to be typed.
func tame(text string) bool {
	return text != "" && text[0] != '-' && text[0] != '=' && utf8.ValidString(text) &&
		!strings.ContainsFunc(text, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r) &&
				!strings.ContainsRune("_-./:,+=@%", r)
		})
}

// flagCalled is the flag of a command that a word is; nil: it is none, or not written out yet.
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

// benchmarkWords are the benchmarks, without what follows the colon.
func (a *app) benchmarkWords(*cli.Command) []word { return kindWords(a.reg.Benchmarks) }

// sourceWords are the benchmarks and the configurations that lie here.
func (a *app) sourceWords(*cli.Command) []word {
	out := a.benchmarkWords(nil)
	for _, pattern := range []string{"*.yaml", "*.yml"} {
		names, _ := filepath.Glob(pattern) // the patterns are sound
		out = append(out, plainWords(names...)...)
	}
	return out
}

// runWords are the run folders below runs, the newest first, and those that lie here.
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

// topicWords are what help explains.
func topicWords(cmd *cli.Command) []word {
	out := []word{{"exit-codes", "what the exit code says"}}
	for _, c := range cmd.Root().Commands {
		if !c.Hidden {
			out = append(out, word{c.Name, c.Usage})
		}
	}
	return out
}
