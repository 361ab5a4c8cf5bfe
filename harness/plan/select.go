package plan

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/internal/suggest"
)

// A Selection selects tasks of a benchmark. The zero value selects all. The fields are applied in
// order.
type Selection struct {
	IDs    []string // globs (path.Match, but * also matches /); a leading ! excludes
	Tags   []string // at least one must match; a leading ! excludes
	Filter []string // field=value or field!=value; all must hold
	Sample int      // size of a random sample, kept in the source's order
	Limit  int      // number of tasks to keep, from the first
	Seed   *uint64  // seed of the sample; nil means the run's
}

// Check reports syntax errors in the selection.
func (s Selection) Check() error {
	for _, g := range s.IDs {
		if _, err := path.Match(strings.TrimPrefix(g, "!"), ""); err != nil {
			return fmt.Errorf("ids: %q is not a glob: %w", g, err)
		}
	}
	for _, f := range s.Filter {
		if k, _, ok := strings.Cut(f, "="); !ok || strings.TrimSuffix(k, "!") == "" {
			return fmt.Errorf("filter: %q is not of the form field=value or field!=value", f)
		}
	}
	if s.Sample < 0 {
		return fmt.Errorf("sample: %d is negative", s.Sample)
	}
	if s.Limit < 0 {
		return fmt.Errorf("limit: %d is negative", s.Limit)
	}
	return nil
}

// takes reports whether the selection matches a task.
func (s Selection) takes(t record.Task, fields map[string]string) bool {
	return anyOf(s.IDs, func(g string) bool { return glob(g, t.ID) }) &&
		anyOf(s.Tags, func(tag string) bool { return slices.Contains(t.Tags, tag) }) && s.fits(fields)
}

// full reports whether this many tasks are enough, so that reading can stop.
func (s Selection) full(taken int) bool {
	return s.Limit > 0 && s.Sample == 0 && taken >= s.Limit
}

// cut draws the sample and applies the limit.
func (s Selection) cut(out []record.Task, seed uint64) []record.Task {
	if s.Sample > 0 && s.Sample < len(out) {
		if s.Seed != nil {
			seed = *s.Seed
		}
		pick := rand.New(rand.NewPCG(seed, 0x73616d706c65)).Perm(len(out))[:s.Sample]
		slices.Sort(pick)
		drawn := make([]record.Task, len(pick))
		for i, k := range pick {
			drawn[i] = out[k]
		}
		out = drawn
	}
	if s.Limit > 0 && s.Limit < len(out) {
		out = out[:s.Limit]
	}
	return out
}

// anyOf reports whether one of words holds and none with a leading ! does. Without positive words,
// everything passes that is not excluded.
func anyOf(words []string, holds func(string) bool) bool {
	some, ok := false, false
	for _, w := range words {
		if not, cut := strings.CutPrefix(w, "!"); cut {
			if holds(not) {
				return false
			}
			continue
		}
		some = true
		ok = ok || holds(w)
	}
	return ok || !some
}

// Match reports whether a task's ID matches a glob, as in Selection.IDs.
func Match(pattern, id string) bool { return glob(pattern, id) }

// glob is path.Match, except that * also matches a slash, because task IDs like HumanEval/3 contain
// one.
func glob(pattern, id string) bool {
	const slash = "\x01"
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", slash), strings.ReplaceAll(id, "/", slash))
	return err == nil && ok
}

func (s Selection) fits(fields map[string]string) bool {
	for _, f := range s.Filter {
		k, want, _ := strings.Cut(f, "=")
		k, not := strings.CutSuffix(k, "!")
		got, has := fields[k]
		if (has && got == want) == not {
			return false
		}
	}
	return true
}

// hint suggests what could have been selected.
func (s Selection) hint(r *reading) string {
	h := fmt.Sprintf("; their ids begin with %s", strings.Join(r.begin, ", "))
	if meant := s.meant(r.names); meant != nil {
		h = fmt.Sprintf("; did you mean %s?", strings.Join(meant, " or "))
	}
	if slices.ContainsFunc(s.IDs, func(p string) bool { return strings.Contains(p, ",") }) {
		h += "; a comma is part of a pattern: give several one by one"
	}
	if len(s.Tags) > 0 {
		h += "; their tags are " + join(r.tags)
	}
	if len(s.Filter) > 0 {
		h += "; their fields are " + join(r.fields)
	}
	return h
}

// meant returns the IDs similar to those in the selection.
func (s Selection) meant(ids []string) (out []string) {
	for _, p := range s.IDs {
		if strings.ContainsAny(p, "*?[!,") {
			continue
		}
		for _, id := range suggest.Names(p, ids) {
			out = append(out, strconv.Quote(id))
		}
	}
	return out[:min(len(out), 3)]
}

func join[T any](set map[string]T) string {
	if len(set) == 0 {
		return "none"
	}
	var words []string
	for w := range set {
		words = append(words, w)
	}
	slices.Sort(words)
	if len(words) > 12 {
		words = append(words[:12], "…")
	}
	return strings.Join(words, ", ")
}

// A Shard is one of N parts of a plan. It is split by task, so that the arms of a task stay
// together. The zero value is the whole plan.
type Shard struct{ I, N int } // I from 1

// ParseShard parses "2/8".
func ParseShard(s string) (Shard, error) {
	a, b, ok := strings.Cut(s, "/")
	i, err1 := strconv.Atoi(a)
	n, err2 := strconv.Atoi(b)
	if !ok || err1 != nil || err2 != nil {
		return Shard{}, fmt.Errorf("%q is not a shard", s)
	}
	if i < 1 || n < 1 || i > n {
		return Shard{}, fmt.Errorf("there is no shard %s: shards count from 1 to their number", s)
	}
	return Shard{i, n}, nil
}

func (s Shard) String() string {
	if s.N == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.I, s.N)
}

func (s Shard) apply(tasks []record.Task) []record.Task {
	if s.N <= 1 {
		return tasks
	}
	var out []record.Task
	for i, t := range tasks {
		if s.has(i) {
			out = append(out, t)
		}
	}
	return out
}

// has reports whether the task with index i, from 0, is in the shard.
func (s Shard) has(i int) bool { return s.N <= 1 || i%s.N == s.I-1 }
