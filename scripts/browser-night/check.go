package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/reports/schema"
)

// finals reads the final verdict of each trial from a run's control journal, and checks that
// nothing follows it.
func finals(run string) (map[string]record.Verdict, error) {
	f, err := os.Open(filepath.Join(run, "journal", "control.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	got := map[string]record.Verdict{}
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil { // an incomplete last line is repaired by resume
			return got, nil
		}
		var l struct {
			E record.Entry `json:"e"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, fmt.Errorf("%w: %.200s", err, line)
		}
		if l.E.Trial == "" {
			continue
		}
		// trials with other statuses may be replayed
		if v, ok := got[l.E.Trial]; ok && v.Status == record.Scored {
			return nil, fmt.Errorf("an entry %q of trial %s after its final verdict", l.E.Kind, l.E.Trial)
		}
		if l.E.Kind == record.KindVerdict {
			var v record.Verdict
			if err := json.Unmarshal(l.E.Data, &v); err != nil {
				return nil, err
			}
			if v.Final {
				got[l.E.Trial] = v
			}
		}
	}
}

// table reads all rows of a table.
func table[T any](run, name string) (all []T, err error) {
	parts, err := filepath.Glob(filepath.Join(run, "parquet", name, "*.parquet"))
	if err != nil || len(parts) == 0 {
		return nil, fmt.Errorf("no parts of the table %s", name)
	}
	for _, p := range parts {
		f, err := os.Open(p)
		if err != nil {
			return nil, err
		}
		r := parquet.NewGenericReader[T](f)
		for {
			buf := make([]T, 256)
			k, err := r.Read(buf)
			all = append(all, buf[:k]...)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p, err)
			}
		}
		f.Close()
	}
	return all, nil
}

func (n *night) check(took time.Duration) error {
	verdicts, err := finals(n.run)
	if err != nil {
		return err
	}
	trials, err := table[schema.Trial](n.run, "trials")
	if err != nil {
		return err
	}
	events, err := table[schema.Event](n.run, "events")
	if err != nil {
		return err
	}
	tasks, err := table[schema.Task](n.run, "tasks")
	if err != nil {
		return err
	}
	if want := len(tasks) * n.repeats * 2; len(trials) != want || len(verdicts) != want {
		return fmt.Errorf("%d trials in Parquet, %d in the journal, planned %d", len(trials), len(verdicts), want)
	}
	type seen struct{ steps, rewards, shots int }
	steps := map[string]*seen{}
	total, errs, shots := seen{}, 0, map[string]bool{}
	for _, e := range events {
		if e.Class != "observation" || e.Kind != "browse" {
			continue
		}
		key := fmt.Sprintf("%s/%d", e.Trial, e.Attempt)
		s := steps[key]
		if s == nil {
			s = &seen{}
			steps[key] = s
		}
		if e.Error != nil {
			errs++
		}
		if e.Command != nil {
			s.steps++
		}
		if e.Reward != nil && e.Sum != nil && e.RawReward != nil {
			s.rewards++
		}
		if e.URL == nil || e.Title == nil {
			return fmt.Errorf("event %d of trial %s has no address or no title", e.ID, e.Trial)
		}
		for _, b := range e.Blobs {
			if b.Role == schema.RoleScreenshot {
				s.shots++
				shots[b.SHA256] = true
			}
		}
	}
	by := map[string]int{}
	sum := map[string]float64{}
	scored := map[string]int{}
	graded := 0
	for _, t := range trials {
		v := verdicts[t.Trial]
		if t.Status == nil || *t.Status != string(v.Status) {
			return fmt.Errorf("trial %s: Parquet and journal differ", t.Trial)
		}
		by[*t.Status]++
		if v.Status != record.Scored {
			fmt.Printf("  %s %s of %s: %s\n", t.Trial, *t.Status, t.Task, or(t.Error))
			continue
		}
		if t.Reward == nil || *t.Reward != *v.Reward {
			return fmt.Errorf("trial %s (%s): the reward in the tables is not the journal's", t.Trial, t.Task)
		}
		scored[t.Arm]++
		sum[t.Arm] += *t.Reward
		played := t.Attempts
		// killed before grading: the last attempt only graded the result of the one before
		if t.Goal == nil {
			played--
			graded++
		}
		s := steps[fmt.Sprintf("%s/%d", t.Trial, played)]
		if s == nil || s.steps == 0 || s.rewards != s.steps || s.shots < s.steps {
			return fmt.Errorf("trial %s (%s, arm %s): %+v: each step has an action, a reward and a screenshot", t.Trial,
				t.Task, t.Arm, s)
		}
		if t.Goal == nil {
			continue // the documented query joins by the last attempt
		}
		total.steps, total.rewards, total.shots = total.steps+s.steps, total.rewards+s.rewards, total.shots+s.shots
	}
	if by["scored"] != len(trials) {
		return fmt.Errorf("not all trials are evidence: %v", by)
	}
	for sha := range shots {
		data, err := os.ReadFile(filepath.Join(n.run, "blobs", sha[:2], sha[2:]))
		if err != nil {
			return err
		}
		if _, err := png.DecodeConfig(bytes.NewReader(data)); err != nil {
			return fmt.Errorf("screenshot %s: %w", sha, err)
		}
	}
	again := 0
	for _, t := range trials {
		again += int(t.Attempts) - 1
	}
	fmt.Printf("%d tasks × %d seeds × 2 arms = %d trials, %d at once, in %v (%.1f trials/s), %d more attempts "+
		"after kills\n",
		len(tasks), n.repeats, len(trials), n.workers, took.Round(time.Second), float64(len(trials))/took.Seconds(),
		again)
	fmt.Printf("%d steps with action, reward and screenshot (%d different pictures), %d of all steps failed; %s\n",
		total.steps, len(shots), errs, n.sizes())
	if graded > 0 {
		fmt.Printf("%d trials were killed between their playing and their grading, and only graded afterwards\n",
			graded)
	}
	for arm, k := range scored {
		fmt.Printf("arm %s: mean reward %.3f of %d\n", arm, sum[arm]/float64(k), k)
	}
	if err := n.duck(len(trials)-graded, total.steps); err != nil {
		return err
	}
	return n.compare()
}

func (n *night) sizes() string {
	var out []string
	for _, d := range []string{"journal", "parquet", "blobs"} {
		size := int64(0)
		filepath.WalkDir(filepath.Join(n.run, d), func(_ string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				if i, err := e.Info(); err == nil {
					size += i.Size()
				}
			}
			return nil
		})
		out = append(out, fmt.Sprintf("%s %.1f MB", d, float64(size)/1e6))
	}
	return strings.Join(out, ", ")
}

// goalRewardActions is the query from docs/schema.md.
const goalRewardActions = `SELECT t.trial_id, t.goal, e.command, e.reward
FROM 'parquet/trials/*.parquet' t JOIN 'parquet/events/*.parquet' e ON e.trial_id = t.trial_id AND e.attempt = t.attempts
WHERE e.class = 'observation' AND e.kind = 'browse' AND e.command IS NOT NULL AND e.reward IS NOT NULL AND t.goal <> ''`

func (n *night) duck(trials, steps int) error {
	if n.python == "" || n.python == "none" {
		fmt.Println("DuckDB: not there")
		return nil
	}
	out, err := n.ask(context.Background(),
		fmt.Sprintf("import duckdb\nr = duckdb.sql(%q).fetchall()\nprint(len(r), len(set(x[0] for x in r)))\n",
			goalRewardActions))
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("%d %d", steps, trials); strings.TrimSpace(out) != want {
		return fmt.Errorf("DuckDB finds %q steps and trials, want %q", strings.TrimSpace(out), want)
	}
	fmt.Println("DuckDB finds the same steps and trials")
	return nil
}

func (n *night) ask(ctx context.Context, program string) (string, error) {
	cmd := exec.CommandContext(ctx, n.python, "-c", program)
	cmd.Dir = n.run
	out, err := cmd.CombinedOutput()
	if err != nil && ctx.Err() == nil {
		return "", fmt.Errorf("DuckDB: %w\n%s", err, out)
	}
	return string(out), nil
}

// readLive queries the tables with DuckDB repeatedly while the run is active, until ctx is
// canceled.
func (n *night) readLive(ctx context.Context) error {
	if n.python == "" || n.python == "none" {
		return nil
	}
	for { // wait until the first process has created the directory
		if parts, _ := filepath.Glob(filepath.Join(n.run, "parquet", "*", "*.parquet")); len(parts) >= 8 {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
	_, err := n.ask(ctx, fmt.Sprintf("import duckdb, time\nwhile True:\n    r = duckdb.sql(%q).fetchall()\n    "+
		"time.sleep(0.3)\n", goalRewardActions))
	return err
}

func (n *night) compare() error {
	out, err := n.command("compare", n.run, "--a", "script", "--b", "model", "--json").Output()
	if err != nil {
		return fmt.Errorf("evalrun compare: %w\n%s", err, out)
	}
	var c struct {
		Comparisons []struct {
			Pairs    int
			Evidence struct {
				N          int
				Difference float64
			}
		}
	}
	if err := json.Unmarshal(out, &c); err != nil || len(c.Comparisons) != 1 || c.Comparisons[0].Pairs == 0 {
		return fmt.Errorf("evalrun compare says %.300s (%w)", out, err)
	}
	fmt.Printf("compare: %d pairs, model − script = %+.3f\n", c.Comparisons[0].Pairs,
		c.Comparisons[0].Evidence.Difference)
	return nil
}

// or returns *s, or "" if s is nil.
func or(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
