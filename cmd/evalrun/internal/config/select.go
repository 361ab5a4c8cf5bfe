package config

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/datasets"
)

type condition struct {
	field  string
	not    bool
	values []string
}

type selector struct {
	ids   []string
	tags  []string
	conds []condition
}

func (s *Select) compile() (*selector, error) {
	c := &selector{ids: s.IDs, tags: s.Tags}
	for _, p := range s.IDs {
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("%q is not a pattern: a [ without its ]", p)
		}
	}
	for _, f := range s.Filter {
		field, val, ok := strings.Cut(f, "=")
		not := strings.HasSuffix(field, "!")
		field = strings.TrimSpace(strings.TrimSuffix(field, "!"))
		if !ok || field == "" {
			return nil, fmt.Errorf("%q is not a condition; write FIELD=VALUE or FIELD!=VALUE", f)
		}
		vals := strings.Split(strings.TrimSpace(val), "|")
		for _, v := range vals {
			if _, err := path.Match(v, ""); err != nil {
				return nil, fmt.Errorf("%q is not a pattern: a [ without its ]", v)
			}
		}
		c.conds = append(c.conds, condition{field, not, vals})
	}
	return c, nil
}

// glob is path.Match, but a * goes over slashes: task ids such as HumanEval/3 are no paths.
func glob(pattern, s string) bool {
	const stand = "\x01"
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", stand), strings.ReplaceAll(s, "/", stand))
	return err == nil && ok
}

func (c *selector) match(t datasets.Task) bool {
	if len(c.ids) > 0 && !slices.ContainsFunc(c.ids, func(p string) bool { return glob(p, t.ID) }) {
		return false
	}
	for _, tag := range c.tags {
		want, not := strings.CutPrefix(tag, "!")
		if slices.Contains(t.Tags, want) == not {
			return false
		}
	}
	for _, f := range c.conds {
		v, has := t.Fields[f.field]
		if (has && slices.ContainsFunc(f.values, func(p string) bool { return glob(p, v) })) == f.not {
			return false
		}
	}
	return true
}

// Apply returns the tasks that s selects, in their order. What is drawn depends on the seed and each task's own id, so that tasks that are
// added to a benchmark do not change the draw of the others. A nil Select selects all.
func Apply[T any](s *Select, seed uint64, tasks []T, task func(T) datasets.Task) ([]T, error) {
	if s == nil {
		return tasks, nil
	}
	c, err := s.compile()
	if err != nil {
		return nil, err
	}
	var out []T
	for _, t := range tasks {
		if c.match(task(t)) {
			out = append(out, t)
		}
	}
	if s.Sample > 0 && s.Sample < len(out) {
		out = sample(out, s.Sample, seed, task)
	}
	if s.Limit > 0 && s.Limit < len(out) {
		out = out[:s.Limit]
	}
	if s.Shard != nil && !s.Shard.IsZero() {
		var part []T
		for i, t := range out {
			if i%s.Shard.N == s.Shard.I-1 {
				part = append(part, t)
			}
		}
		out = part
	}
	return out, nil
}

func sample[T any](tasks []T, n int, seed uint64, task func(T) datasets.Task) []T {
	type drawn struct {
		i   int
		key [sha256.Size]byte
	}
	all := make([]drawn, len(tasks))
	for i, t := range tasks {
		h := sha256.New()
		h.Write(binary.BigEndian.AppendUint64(nil, seed))
		h.Write([]byte(task(t).ID))
		all[i].i = i
		h.Sum(all[i].key[:0])
	}
	slices.SortFunc(all, func(a, b drawn) int { return slices.Compare(a.key[:], b.key[:]) })
	all = all[:n]
	slices.SortFunc(all, func(a, b drawn) int { return a.i - b.i })
	out := make([]T, n)
	for j, d := range all {
		out[j] = tasks[d.i]
	}
	return out
}
