package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// writeBenchmark writes tasks whose evidence is partly in blobs, and two agents with known
// verdicts.
func writeBenchmark(dir string, trials int) (config string, err error) {
	const arms = 2
	var tasks, script strings.Builder
	tasks.WriteString("name: damage\ntasks:\n")
	// 84 KB: makes the answer and the goal blobs
	long := strings.Repeat("all work and no play ", 4000)
	for i := range trials / arms {
		switch i % 3 {
		case 0:
			fmt.Fprintf(&tasks, "  - {id: t%d-right, instruction: say yes, answer: yes}\n", i)
		case 1:
			fmt.Fprintf(&tasks, "  - {id: t%d-wrong, instruction: say yes, answer: yes}\n", i)
		case 2:
			fmt.Fprintf(&tasks, "  - {id: t%d-long, instruction: %q, answer: %q}\n", i, fmt.Sprint("say ", i, long),
				fmt.Sprint(i, long))
			fmt.Fprintf(&script, "- task: t%d-long\n  do: [{run: \"echo one > a\"}, {sleep: 20ms}, {finish: %q}]\n", i,
				fmt.Sprint(i, long))
		}
	}
	script.WriteString(`- task: "*-right"
  do: [{run: "echo one > a"}, {run: "cat a"}, {think: what now}, {sleep: 20ms}, {finish: "yes"}]
- task: "*-wrong"
  do: [{run: "echo two"}, {sleep: 10ms}, {finish: "no"}]
`)
	conf := `name: damage
benchmark: tasks:tasks.yaml
workers: 2
arms:
  - {name: script, agent: "script:agent.yaml"}
  - {name: nop, agent: nop}
`
	for name, text := range map[string]string{"tasks.yaml": tasks.String(), "agent.yaml": script.String(),
		"damage.yaml": conf} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "damage.yaml"), nil
}

// pack creates a run whose first event segment is packed, as in a longer run, from a finished one.
func (d *damager) pack(finished string) (*base, error) {
	b := &base{name: "packed", dir: filepath.Join(d.work, "packed", "run")}
	if err := copyRun(b.dir, finished, nil); err != nil {
		return nil, err
	}
	name := filepath.Join(b.dir, "journal", "events", "0001.jsonl")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(name+".zst", z.EncodeAll(data, nil), 0o644); err != nil {
		return nil, err
	}
	if err := os.Remove(name); err != nil {
		return nil, err
	}
	if a, err := d.ask(filepath.Dir(b.dir), "resume", "run", "-q"); err != nil || a.code != 0 {
		return nil, fmt.Errorf("resuming a packed run: %w, exit code %d\n%s", err, a.code, a.err)
	}
	return b, nil
}

// files lists the files of a run directory, sorted.
func files(dir string) (out []string, err error) {
	err = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			rel, _ := filepath.Rel(dir, name)
			out = append(out, rel)
		}
		return err
	})
	return out, err
}

// copyRun copies a run directory. If rng is not nil, the order of files and their times are random.
func copyRun(to, from string, rng *rand.Rand) error {
	names, err := files(from)
	if err != nil {
		return err
	}
	if rng != nil {
		rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	}
	for _, n := range names {
		data, err := os.ReadFile(filepath.Join(from, n))
		if err != nil {
			return err
		}
		dst := filepath.Join(to, n)
		if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(dst, data, 0o644); err != nil {
			return err
		}
		if rng != nil {
			t := time.Now().Add(-time.Duration(rng.Int64N(int64(1000 * time.Hour))))
			if err := os.Chtimes(dst, t, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// A wound is a damage to be applied to a directory.
type wound struct {
	op    string
	files []string // in the run directory: one, or two that are exchanged
	at    float64  // position, from 0 to 1
	bit   byte
}

func (w wound) String() string {
	return fmt.Sprintf("%s %s (at %.3f)", w.op, strings.Join(w.files, ", "), w.at)
}

var ops = []string{"flip", "cut", "zero", "delete", "double", "swap"}

// pick chooses a damage. Half of the chosen files are journal files and blobs, although there are
// more others.
func pick(dir string, rng *rand.Rand) (wound, error) {
	all, err := files(dir)
	if err != nil {
		return wound{}, err
	}
	all = slices.DeleteFunc(all, func(n string) bool {
		st, err := os.Stat(filepath.Join(dir, n))
		return err != nil || st.Size() == 0 || filepath.Base(n) == "ballast"
	})
	group := func(prefixes ...string) (out []string) {
		for _, n := range all {
			if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(n, p) }) {
				out = append(out, n)
			}
		}
		return out
	}
	groups := [][]string{group("journal/control"), group("journal/"), group("journal/events"), group("blobs/"),
		group("plan.json", "run.json", "summary"), all}
	some := func() string {
		for {
			if g := groups[rng.IntN(len(groups))]; len(g) > 0 {
				return g[rng.IntN(len(g))]
			}
		}
	}
	if rng.IntN(5) == 0 { // several files at once
		return pickLoss(dir, all, rng)
	}
	w := wound{op: ops[rng.IntN(len(ops))], files: []string{some()}, at: rng.Float64(), bit: 1 << rng.IntN(8)}
	for w.op == "swap" && len(w.files) == 1 {
		if n := some(); n != w.files[0] {
			w.files = append(w.files, n)
		}
	}
	return w, nil
}

// losses are patterns of files that are lost together. With "roll back", the files return to an
// earlier state of the run.
var losses = []struct {
	op    string
	globs []string
}{
	{"delete all of", []string{"blobs/*/*"}},
	{"delete all of", []string{"journal/mark", "run.json"}},
	{"delete all of", []string{"journal/control.jsonl", "journal/mark"}},
	{"delete all of", []string{"journal/*", "journal/*/*"}},
	{"delete all of", []string{"journal/events/*"}},
	{"delete all of", []string{"summary.json", "summary.md"}},
	{"delete all of", []string{"parquet/*/*", "parquet/.state.json"}},
	{"roll back", []string{"journal/control.jsonl"}},
	{"roll back", []string{"journal/control.jsonl", "journal/mark"}},
}

// pickLoss chooses several files that are lost together.
func pickLoss(dir string, all []string, rng *rand.Rand) (wound, error) {
	for {
		l := losses[rng.IntN(len(losses))]
		w := wound{op: l.op, at: rng.Float64()}
		for _, n := range all {
			if slices.ContainsFunc(l.globs, func(g string) bool { ok, _ := filepath.Match(g, n); return ok }) {
				w.files = append(w.files, n)
			}
		}
		if len(w.files) == 0 { // an unfinished run has no summary
			continue
		}
		if w.op == "roll back" { // to an earlier state of the journal, at the end of a line
			data, err := os.ReadFile(filepath.Join(dir, "journal", "control.jsonl"))
			if err != nil {
				return w, err
			}
			cut := bytes.LastIndexByte(data[:int(w.at*float64(len(data)))], '\n') + 1
			w.at = float64(cut)
		}
		return w, nil
	}
}

// several applies a damage to several files.
func (w wound) several(dir string) error {
	for _, n := range w.files {
		if w.op == "roll back" && filepath.Base(n) == "control.jsonl" {
			if err := os.Truncate(filepath.Join(dir, n), int64(w.at)); err != nil {
				return err
			}
			continue
		}
		if err := os.Remove(filepath.Join(dir, n)); err != nil {
			return err
		}
		// Remove directories that are now empty.
		for p := filepath.Dir(n); p != "."; p = filepath.Dir(p) {
			if list, err := os.ReadDir(filepath.Join(dir, p)); err != nil || len(list) > 0 {
				break
			}
			if err := os.Remove(filepath.Join(dir, p)); err != nil {
				return err
			}
		}
	}
	return nil
}

// do applies the damage to the directory.
func (w wound) do(dir string) error {
	if w.op == "delete all of" || w.op == "roll back" {
		return w.several(dir)
	}
	name := filepath.Join(dir, w.files[0])
	if w.op == "delete" {
		return os.Remove(name)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	i := int(w.at * float64(len(data)))
	switch w.op {
	case "flip":
		data[i] ^= w.bit
	case "cut":
		data = data[:i]
	case "zero":
		if w.at < 0.2 {
			i = 0
		}
		clear(data[i:min(len(data), i+4096)])
	case "double":
		data = append(data, data...)
	case "swap":
		other := filepath.Join(dir, w.files[1])
		b, err := os.ReadFile(other)
		if err != nil {
			return err
		}
		if bytes.Equal(data, b) {
			return nil
		}
		if err := os.WriteFile(other, data, 0o644); err != nil {
			return err
		}
		data = b
	}
	return os.WriteFile(name, data, 0o644)
}
