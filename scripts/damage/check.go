package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// verdicts maps trials to their status, end and reward.
type verdicts map[string]string

// parse reads the JSON lines of show --trials and skips undecided trials.
func parse(text string) (verdicts, error) {
	out := verdicts{}
	dec := json.NewDecoder(strings.NewReader(text))
	for dec.More() {
		var t struct {
			Trial, Status, End string
			Reward             *float64
		}
		if err := dec.Decode(&t); err != nil {
			return nil, err
		}
		if t.Status == "pending" {
			continue
		}
		reward := "none"
		if t.Reward != nil {
			reward = fmt.Sprint(*t.Reward)
		}
		out[t.Trial] = t.Status + " " + t.End + " " + reward
	}
	return out, nil
}

var tables = []string{"trials", "attempts", "scores", "events"}

// learn records the output of the commands for an undamaged directory.
func (d *damager) learn(b *base) error {
	dir := filepath.Dir(b.dir)
	a, err := d.ask(dir, "show", "run", "--trials", "--json")
	if err == nil && (a.code != 0 || a.err != "") {
		err = fmt.Errorf("show: exit code %d\n%s", a.code, a.err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", b.name, err)
	}
	if b.decided, err = parse(a.out); err != nil {
		return err
	}
	if a, err = d.ask(dir, "compare", "run", "--json"); err != nil {
		return err
	}
	b.compare = a.out
	b.exports, _, err = d.export(dir)
	return err
}

// export returns the exported tables.
func (d *damager) export(dir string) (map[string]string, answer, error) {
	out := filepath.Join(dir, "tables")
	defer os.RemoveAll(out)
	a, err := d.ask(dir, "export", "run", "-o", "tables", "--tables", strings.Join(tables, ","))
	if err != nil {
		return nil, a, err
	}
	got := map[string]string{}
	for _, t := range tables {
		data, err := os.ReadFile(filepath.Join(out, t+".jsonl"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, a, err
		}
		got[t] = string(data)
	}
	return got, a, nil
}

// hint matches what show prints about an unfinished run.
var hint = regexp.MustCompile(`(?m)^the journal and all content that it names are whole\n|^nobody works in it.*\n|^\d+ of \d+ trials are left\n|^look at one with.*\n`)

// control runs the commands on a copy of an undamaged directory: none may report damage.
func (d *damager) control(i int) error {
	rng := d.random(1, i)
	b := d.bases[i%len(d.bases)]
	dir := filepath.Join(d.work, fmt.Sprintf("control-%d", i))
	defer os.RemoveAll(dir)
	if err := copyRun(filepath.Join(dir, "run"), b.dir, rng); err != nil {
		return err
	}
	old := i/len(d.bases)%2 == 1
	if old { // as written by an older evalrun
		if err := older(filepath.Join(dir, "run")); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"show", "run"}, {"show", "run", "--trials"}, {"show", "run", "--verify"}, {"compare", "run"},
		{"export", "run", "-o", "tables"}, {"resume", "run", "-q"}, {"show", "run", "--trials", "--json"},
		{"resume", "run", "-q"},
	} {
		a, err := d.ask(dir, args...)
		if err != nil {
			return err
		}
		if left := hint.ReplaceAllString(a.err, ""); a.code != 0 || left != "" {
			return fmt.Errorf("%s (older form %v): %s: exit code %d\n%s", b.name, old, strings.Join(args, " "), a.code,
				a.err)
		}
		if slices.Contains(args, "--json") {
			got, err := parse(a.out)
			if err != nil || !maps.Equal(got, d.truth) {
				return fmt.Errorf("%s (older form %v): other verdicts: %v", b.name, old, err)
			}
		}
	}
	a, err := d.ask(dir, "regrade", "run")
	if err != nil || a.code != 0 || strings.Contains(a.err, "damaged") || strings.Contains(a.err, "lost") {
		return fmt.Errorf("%s: regrade: %w, exit code %d\n%s", b.name, err, a.code, a.err)
	}
	return nil
}

// older removes what an older evalrun did not write.
func older(run string) error {
	if err := os.Remove(filepath.Join(run, "journal", "mark")); err != nil {
		return err
	}
	name := filepath.Join(run, "run.json")
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var v map[string]any
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	delete(v, "seq")
	delete(v, "plan")
	if data, err = json.Marshal(v); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

// hidden reports whether a full check must find the damage: a flipped bit in the events or blobs of
// a finished run.
func (w wound) hidden(b *base) bool {
	return w.op == "flip" && b.whole && (strings.HasPrefix(w.files[0], "journal/events/") ||
		strings.HasPrefix(w.files[0], "blobs/"))
}

// named reports whether a message names a damaged file.
func (w wound) named(text string) bool {
	for _, f := range w.files {
		if dir := filepath.Dir(f); strings.HasPrefix(f, "blobs/") &&
			strings.Contains(text, filepath.Join(filepath.Base(dir), filepath.Base(f))) {
			return true
		}
		if top, _, _ := strings.Cut(f, "/"); strings.Contains(text, top+" is missing") ||
			strings.Contains(text, "missing: ") && strings.Contains(text, top) {
			return true // a whole directory
		}
		base := strings.TrimSuffix(filepath.Base(f), ".zst")
		if strings.Contains(text, base) {
			return true
		}
	}
	return false
}

// one tests damage number i.
func (d *damager) one(i int) error {
	rng := d.random(2, i)
	b := d.bases[rng.IntN(len(d.bases))]
	w, err := pick(b.dir, rng)
	if err != nil {
		return err
	}
	dir := filepath.Join(d.work, fmt.Sprintf("damage-%d", i))
	run := filepath.Join(dir, "run")
	fresh := func() error {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		if err := copyRun(run, b.dir, nil); err != nil {
			return err
		}
		return w.do(run)
	}
	var said []string // commands that named a damaged file
	fail := func(what string, a answer, why string) error {
		return fmt.Errorf("%s, %s: %s: %s; exit code %d\n%s%s", b.name, w, what, why, a.code, a.err, tail(a.out))
	}
	// judge checks a command's output. same means that it equals the output for the undamaged twin.
	judge := func(what string, a answer, same bool) error {
		switch {
		case w.named(a.err):
			said = append(said, what)
			return nil
		case a.code != 0:
			return fail(what, a, "fails and names no damaged file")
		case !same:
			return fail(what, a, "says something else than of the undamaged run, without a word")
		}
		return nil
	}
	if err := fresh(); err != nil {
		return err
	}
	a, err := d.ask(dir, "show", "run", "--trials", "--json")
	if err != nil {
		return fmt.Errorf("%s, %s: %w", b.name, w, err)
	}
	got, perr := parse(a.out)
	if err := judge("show", a, perr == nil && maps.Equal(got, b.decided)); err != nil {
		return err
	}
	if a, err = d.ask(dir, "compare", "run", "--json"); err != nil {
		return fmt.Errorf("%s, %s: %w", b.name, w, err)
	}
	if err := judge("compare", a, a.out == b.compare); err != nil {
		return err
	}
	if a, err = d.ask(dir, "show", "run", "--verify"); err != nil {
		return fmt.Errorf("%s, %s: %w", b.name, w, err)
	}
	if err := judge("show --verify", a, !w.hidden(b)); err != nil {
		return err
	}
	tabs, a, err := d.export(dir)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", b.name, w, err)
	}
	if err := judge("export", a, maps.Equal(tabs, b.exports)); err != nil {
		return err
	}
	if a, err = d.ask(dir, "regrade", "run"); err != nil {
		return fmt.Errorf("%s, %s: %w", b.name, w, err)
	}
	if err := judge("regrade", a, strings.Contains(a.out, " 0 of them changed")); err != nil {
		return err
	}
	if a.code == 0 { // what it has written must still be correct
		after, err := d.ask(dir, "show", "run", "--trials", "--json")
		if err != nil {
			return err
		}
		if got, perr := parse(after.out); perr != nil || !maps.Equal(got, b.decided) {
			if !w.named(after.err) && !w.named(a.err) {
				return fail("show after regrade", after, "other verdicts, without a word")
			}
		}
	}
	if err := fresh(); err != nil {
		return err
	}
	if a, err = d.ask(dir, "resume", "run", "--progress", "none"); err != nil {
		return fmt.Errorf("%s, %s: %w", b.name, w, err)
	}
	if err := judge("resume", a, a.code == 0); err != nil {
		return err
	}
	refused := a.code != 0
	if a.code != 0 {
		if a, err = d.ask(dir, "resume", "run", "--accept-loss", "--progress", "none"); err != nil {
			return fmt.Errorf("%s, %s: %w", b.name, w, err)
		}
		if a.code != 0 && !w.named(a.err) {
			return fail("resume --accept-loss", a, "fails and names no damaged file")
		}
		d.count("resume refused", 1)
		if a.code != 0 {
			d.count("no way on but a copy", 1)
		}
	}
	if a.code == 0 {
		after, err := d.ask(dir, "show", "run", "--trials", "--json")
		if err != nil {
			return err
		}
		if got, perr := parse(after.out); perr != nil || after.code != 0 || !maps.Equal(got, d.truth) {
			return fail("show after resume", after, "other verdicts than those of the undisturbed run, or a complaint")
		}
		if after, err = d.ask(dir, "show", "run"); err != nil {
			return err
		}
		// An open trial whose evidence is unreadable is replayed; nothing of it had been counted.
		if refused && !slices.ContainsFunc(w.files, func(f string) bool { return strings.HasPrefix(f, "blobs/") }) &&
			!strings.Contains(after.out, "gone on without records") {
			return fail("show after resume --accept-loss", after, "no lasting note of the loss")
		}
	}
	d.count(w.op, 1)
	if len(said) > 0 {
		d.count("noticed", 1)
	}
	if d.verbose {
		fmt.Printf("  %d: %s: %s: %s\n", i, b.name, w, strings.Join(said, ", "))
	}
	return os.RemoveAll(dir)
}

func (d *damager) count(what string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts[what] += n
}

func (d *damager) report() {
	var b bytes.Buffer
	for _, k := range slices.Sorted(maps.Keys(d.counts)) {
		fmt.Fprintf(&b, "%s %d, ", k, d.counts[k])
	}
	fmt.Println(strings.TrimSuffix(b.String(), ", "))
}

func tail(s string) string {
	if len(s) > 2000 {
		return "… " + s[len(s)-2000:]
	}
	return s
}
