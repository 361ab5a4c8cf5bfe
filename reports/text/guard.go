package text

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/harness/record"
)

// guard adds warnings about other differences between the sides, which a reader could mistake for
// an effect of the arms.
func (c *Comparison) guard(a, b Side, changed int, apart []string) {
	p, q := a.Results, b.Results
	if c.LeftOut > 0 {
		are := "are"
		if c.LeftOut == 1 {
			are = "is"
		}
		c.warn("%s %s left out, since the two sides were graded by different versions of the task: %s. To grade both "+
			"sides alike: evalrun regrade RUN --changed",
			plural(c.LeftOut, "pair"), are, someOf(apart, 10))
	}
	if changed > 0 {
		c.warn("%s of other content in the two runs: their digests differ", plural(changed, "task"))
	}
	for _, x := range p.Plan.Benchmarks {
		for _, y := range q.Plan.Benchmarks {
			if x.Name != y.Name {
				continue
			}
			c.same("the digest of benchmark "+x.Name, short(x.Digest), short(y.Digest))
			c.same("the options of benchmark "+x.Name, string(x.Opts), string(y.Opts))
		}
	}
	if c.Unpaired > 0 {
		c.warn("%s planned by one side only, left out of everything here", plural(c.Unpaired, "trial"))
	}
	if c.LostA+c.LostB > 0 {
		c.warn(`of %s, A has no evidence for %d and B for %d; "all planned" counts these as 0`, plural(c.Pairs, "pair"),
			c.LostA, c.LostB)
	}
	if x, y := p.repeats(), q.repeats(); x != y {
		c.warn("repeats differ: %d and %d; the first %d are compared", x, y, min(x, y))
	}
	for _, x := range []struct {
		name string
		side Side
	}{{"A", a}, {"B", b}} {
		if n := x.side.replayed(); n > 0 {
			c.warn("%s: %s", x.name, replayed(n))
		}
		if n := x.side.touched(); n > 0 {
			c.warn("%s: in %d of its trials a person was in the agent's sandbox (flag %s)", x.name, n, record.Touched)
		}
		if run := x.side.Results.Run; run != nil && len(run.Losses) > 0 && (x.name == "A" || p != q) {
			c.warn("%s: %s", x.name, LossText(run.Losses))
		}
	}
	c.guardRuns(p.Run, q.Run)
	c.guardOpinions(a, b)
	for _, d := range differences(a.arm(), b.arm()) {
		c.Differs = append(c.Differs, d)
		if strings.HasPrefix(d, "limits") || strings.HasPrefix(d, "sandbox") {
			c.warn("the arms run under other conditions: %s", d)
		}
	}
}

// guardOpinions warns about second opinions that do not confirm scores.
func (c *Comparison) guardOpinions(a, b Side) {
	opinions := 0
	for _, x := range []struct {
		name string
		side Side
	}{{"A", a}, {"B", b}} {
		n := x.side.opinions()
		opinions += len(n)
		for _, s := range []struct {
			state, one, more string // what is said of one score and of several
		}{
			{record.Unconfirmed, "%d of %d scores of %s is unconfirmed, and counts as it is",
				"%d of %d scores of %s are unconfirmed, and count as they are"},
			{zeroed, "%d of %d scores of %s is unconfirmed, and counts 0 (integrity: require)",
				"%d of %d scores of %s are unconfirmed, and count 0 (integrity: require)"},
			{record.Pending, "the second opinion on %d of %d scores of %s is pending, and it counts as it is",
				"the second opinions on %d of %d scores of %s are pending, and they count as they are"},
			{record.Unknown, "the second opinion on %d of %d scores of %s is not known, and it counts as it is",
				"the second opinions on %d of %d scores of %s are not known, and they count as they are"},
		} {
			switch k := n[s.state]; {
			case k == 1:
				c.warn(s.one, k, x.side.compared().Scored, x.name)
			case k > 1:
				c.warn(s.more, k, x.side.compared().Scored, x.name)
			}
		}
	}
	if opinions > 0 {
		c.same("integrity", a.Results.integrity(), b.Results.integrity())
	}
}

// zeroed is the state of unconfirmed scores that are 0 for that.
const zeroed = "zeroed"

// opinions counts the side's second opinions by state.
func (s Side) opinions() map[string]int {
	out := map[string]int{}
	for _, i := range s.Results.of(s.Arm, -1) {
		switch sl := &s.Results.slots[i]; {
		case sl.opinion == 0:
		case opinions[sl.opinion] == record.Unconfirmed && sl.reward == 0:
			out[zeroed]++
		default:
			out[opinions[sl.opinion]]++
		}
	}
	return out
}

// integrity returns the configuration's key of this name, or "".
func (r *Results) integrity() string {
	var c struct {
		Integrity string `json:"integrity"`
	}
	_ = json.Unmarshal(r.Plan.Config, &c)
	return c.Integrity
}

// replayed returns the number of the side's trials that were run again although they had a score.
func (s Side) replayed() (n int) {
	for _, i := range s.Results.of(s.Arm, -1) {
		if s.Results.slots[i].replayed {
			n++
		}
	}
	return n
}

// touched returns the number of the side's trials in which a person was in the agent's sandbox.
func (s Side) touched() (n int) {
	bit := slices.Index(s.Results.flags, record.Touched)
	for _, i := range s.Results.of(s.Arm, -1) {
		if bit >= 0 && s.Results.slots[i].flags&(1<<bit) != 0 {
			n++
		}
	}
	return n
}

func (c *Comparison) warn(format string, args ...any) {
	c.Warnings = append(c.Warnings, fmt.Sprintf(format, args...))
}

func (c *Comparison) same(what, x, y string) {
	if x, y = orNone(x), orNone(y); x != y { // an absent value equals an explicit "none"
		c.warn("%s differs: %s and %s", what, x, y)
	}
}

func (c *Comparison) guardRuns(x, y *record.Run) {
	if x == nil || y == nil || x == y {
		return
	}
	c.same("the sandbox driver", x.Driver, y.Driver)
	c.same("the version of evalrun", x.Version, y.Version)
	if x.Version == y.Version {
		c.same("the binary", short(x.Binary), short(y.Binary))
	}
	for _, k := range keys(x.Limits, y.Limits) {
		// it usually depends on the memory that was free at that moment
		if k != "memory of all machines" {
			c.same("the limit "+k, x.Limits[k], y.Limits[k])
		}
	}
	var images []string
	for _, k := range keys(x.Digests, y.Digests) {
		a, b := x.Digests[k], y.Digests[k]
		name, isImage := strings.CutPrefix(k, "image/")
		switch {
		case !isImage:
			c.same("the digest of "+k, short(a), short(b))
		// an image used by only one side belongs to other tasks or another driver
		case a != "" && b != "" && a != b:
			images = append(images, name)
		}
	}
	if n := len(images); n > 0 {
		c.warn("%s of other content in the two runs: their digests differ (%s)", plural(n, "image"), someOf(images, 3))
	}
}

// someOf lists the first n names and the number of remaining ones.
func someOf(names []string, n int) string {
	if len(names) <= n {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:n], ", "), len(names)-n)
}

// keys returns the sorted keys of both maps.
func keys(p, q map[string]string) []string {
	all := map[string]string{}
	maps.Copy(all, p)
	maps.Copy(all, q)
	return slices.Sorted(maps.Keys(all))
}

// differences lists the paths at which two definitions differ, with both values.
func differences(x, y *record.Arm) (ds []string) {
	flat := func(raw json.RawMessage) map[string]string {
		m := map[string]string{}
		var v any
		if json.Unmarshal(raw, &v) == nil {
			flatten(m, "", v)
		}
		return m
	}
	p, q := flat(x.Def), flat(y.Def)
	for _, k := range keys(p, q) {
		if p[k] == q[k] {
			continue
		}
		if k == "prompt" { // contains only the digest
			ds = append(ds, promptsDiffer(x.Prompt, y.Prompt, p[k], q[k]))
		} else {
			x, y := around(p[k], q[k], 60)
			if k == "more.sha256" { // of the agents script and command
				k = "the agent's file, by its SHA-256"
			}
			ds = append(ds, fmt.Sprintf("%s: %s and %s", k, orNone(x), orNone(y)))
		}
	}
	return ds
}

// promptsDiffer describes different prompts by name. Digests are shown only if two texts have the
// same name.
func promptsDiffer(x, y, sumX, sumY string) string {
	if x != y {
		name := func(s string) string {
			if s == "" {
				return "none"
			}
			return fmt.Sprintf("%q", s)
		}
		return "prompt: " + name(x) + " and " + name(y)
	}
	return fmt.Sprintf("prompt: two texts are called %q, %s and %s", x, short(strings.Trim(sumX, `"`)),
		short(strings.Trim(sumY, `"`)))
}

func flatten(m map[string]string, path string, v any) {
	if o, ok := v.(map[string]any); ok {
		for k, x := range o {
			flatten(m, strings.TrimPrefix(path+"."+k, "."), x)
		}
		return
	}
	// stored as JSON text
	if s, ok := v.(string); ok && (strings.HasPrefix(path, "options.") || strings.HasPrefix(path, "params.")) &&
		json.Valid([]byte(s)) {
		if json.Unmarshal([]byte(s), &v) != nil {
			return
		}
	}
	if s, ok := v.(string); ok && strings.Contains(s, `"`) && strconv.CanBackquote(s) {
		m[path] = "`" + s + "`" // a command, quoted verbatim
		return
	}
	if n, ok := v.(float64); ok && strings.HasSuffix(path, "_ns") {
		m[strings.TrimSuffix(path, "_ns")] = time.Duration(n).String()
		return
	}
	b, _ := json.Marshal(v) // decoded from JSON, so this cannot fail
	m[path] = unescaped(string(b))
}

// around truncates two texts to n characters each, such that the first difference remains visible.
func around(x, y string, n int) (string, string) {
	a, b := []rune(x), []rune(y)
	if len(a) <= n && len(b) <= n {
		return x, y
	}
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	if from := same - n/3; from > 0 && same < len(a) && same < len(b) {
		x, y = "…"+string(a[from:]), "…"+string(b[from:])
	}
	return cut(x, n), cut(y, n)
}

// unescaped removes the HTML escapes from JSON.
func unescaped(s string) string {
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(s)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// short truncates hashes and leaves other words unchanged.
func short(s string) string {
	if len(s) >= 40 && !strings.ContainsAny(s, " /") {
		return s[:19] + "…"
	}
	return s
}
