package text

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/reports/stats"
)

// Version is the version of summary.json. It is incremented when a field is removed or changes its
// meaning.
const Version = 1

// Level is the confidence level of all intervals.
const Level = 0.95

// A Summary is the result of a run. Its JSON form is summary.json, described in docs/schema.md.
type Summary struct {
	V       int            `json:"v"`
	Run     string         `json:"run"`
	Name    string         `json:"name,omitempty"`
	Path    string         `json:"path,omitempty"` // of the run directory, as used in commands
	Version string         `json:"version,omitempty"`
	Driver  string         `json:"driver,omitempty"`
	Drivers map[string]int `json:"drivers,omitempty"` // number of trials per driver
	Started *time.Time     `json:"started,omitempty"`
	Ended   *time.Time     `json:"ended,omitempty"`
	// from start to end, without pauses before a resume
	WorkedMS *int64 `json:"worked_ms,omitempty"`
	// why the run ended: done, stopped, budget …
	Reason  string `json:"reason,omitempty"`
	Repeats int    `json:"repeats"`
	// minimum reward that counts as a success, if configured
	Success  *float64 `json:"success,omitempty"`
	Planned  int      `json:"planned"`
	Decided  int      `json:"decided"`
	Scored   int      `json:"scored"`
	Skipped  int      `json:"skipped"`
	Coverage *float64 `json:"coverage"` // scored / (planned − skipped); null if that is 0/0
	Amended  int      `json:"amended,omitempty"`
	Replayed int      `json:"replayed,omitempty"` // trials that had a score and were run again
	// trials with a score in which the machine's memory limit killed a process
	OOM int `json:"oom,omitempty"`

	Arms []ArmSummary `json:"arms"`
	// per arm and benchmark, if there are several benchmarks
	Benchmarks []ArmSummary `json:"benchmarks,omitempty"`
	Problems   []Problem    `json:"problems"`
	Slowest    []TrialRef   `json:"slowest"`
	Gates      []GateResult `json:"gates,omitempty"`
	// lost records; the run continued without them
	Losses   []record.Loss `json:"losses,omitempty"`
	Warnings []string      `json:"warnings,omitempty"`
}

// An ArmSummary is the row of an arm.
type ArmSummary struct {
	Arm       string            `json:"arm"`
	ArmID     string            `json:"arm_id"`
	Benchmark string            `json:"benchmark,omitempty"` // "" means all
	Agent     string            `json:"agent"`
	Model     string            `json:"model,omitempty"`
	Prompt    string            `json:"prompt,omitempty"`
	Axes      map[string]string `json:"axes,omitempty"`

	Planned int `json:"planned"`
	Decided int `json:"decided"`
	Scored  int `json:"scored"` // trials that are evidence
	// by class: infra, provider, grader, canceled, skipped, pending
	Excluded map[string]int `json:"excluded"`
	Coverage *float64       `json:"coverage"`

	Mean     *float64        `json:"mean"`     // over the evidence
	Interval *stats.Interval `json:"interval"` // of Mean
	Method   string          `json:"method,omitempty"`
	// number of independent units behind Mean
	Clusters int `json:"clusters"`
	// over all planned trials; excluded ones count as 0
	MeanPlanned *float64 `json:"mean_planned"`
	PassAtK     *float64 `json:"pass_at_k,omitempty"`  // k = repeats: at least one success
	PassHatK    *float64 `json:"pass_hat_k,omitempty"` // all succeed
	// why the two are unknown although there are repeats
	PassWhy string `json:"pass_why,omitempty"`

	Ends  map[string]int `json:"ends"` // of the evidence
	Flags map[string]int `json:"flags,omitempty"`
	// second opinions on scores, by state: confirmed, unconfirmed, pending, not_known,
	// not_applicable
	Opinions map[string]int `json:"second_opinions,omitempty"`
	// of those that are not_applicable: how many graders used files that the agent changed
	NotApplicableUsed int `json:"not_applicable_used,omitempty"`
	// mean of the evidence if an unconfirmed score counts 0; only if there is one
	MeanConfirmed *float64 `json:"mean_confirmed,omitempty"`
	Steps         *float64 `json:"steps"` // mean over the evidence, like the next fields
	Turns         *float64 `json:"turns"`
	WallMS        *float64 `json:"wall_ms"`
	ActiveMS      *float64 `json:"active_ms"`
	BadCalls      int64    `json:"bad_calls"`
	Abandoned     int      `json:"abandoned"`
	Left          int      `json:"left_processes"` // trials that left processes running
	// trials in which the network policy refused a connection
	Refused int `json:"refused"`

	// the usage below includes attempts that did not count
	Attempts int64 `json:"attempts"`
	// attempts after a trial's first one, except regrades
	Further    int64 `json:"further_attempts"`
	ModelCalls int64 `json:"model_calls"`
	// null, like the next two, if the service did not report the usage of some call
	TokensIn     *int64 `json:"tokens_in"`
	TokensOut    *int64 `json:"tokens_out"`
	TokensCached *int64 `json:"tokens_cached"`
	// of the arm's models; null if some price is unknown
	Cost         *float64 `json:"cost_usd"`
	CostWhy      string   `json:"cost_why,omitempty"` // why Cost is null
	OtherCost    *float64 `json:"other_cost_usd"`     // of the benchmark's models
	OtherCostWhy string   `json:"other_cost_why,omitempty"`
	// calls without a response, which may be billed
	LostTries int64   `json:"lost_tries,omitempty"`
	LostCost  float64 `json:"lost_cost_usd,omitempty"` // upper bound, in addition to the costs
}

// A Problem is a kind of failure with an example, and with its messages if there are several.
type Problem struct {
	Status string   `json:"status"`
	End    string   `json:"end,omitempty"`
	Phase  string   `json:"phase,omitempty"`
	Class  string   `json:"class,omitempty"`
	Text   string   `json:"text,omitempty"` // of the first failure
	Count  int      `json:"count"`
	Trial  TrialRef `json:"example"`

	// most frequent first; at most 20 are distinguished
	Messages []ProblemMessage `json:"messages,omitempty"`
}

// A ProblemMessage is one of the messages of a kind of failure.
type ProblemMessage struct {
	Text  string   `json:"text"`
	Count int      `json:"count"`
	Trial TrialRef `json:"example"`
}

// A TrialRef identifies a trial.
type TrialRef struct {
	ID        string `json:"trial"`
	Arm       string `json:"arm"`
	Benchmark string `json:"benchmark"`
	Task      string `json:"task"`
	Repeat    int    `json:"repeat"`
	WallMS    int64  `json:"wall_ms"`
}

// Summary returns the summary of the run. path is the run directory as used in commands.
func (r *Results) Summary(path string) *Summary {
	s := &Summary{V: Version, Run: r.Plan.Run, Name: r.Plan.Name, Path: path, Planned: len(r.slots),
		Repeats: r.repeats(), Success: r.Success, Problems: []Problem{}, Slowest: []TrialRef{}, Arms: []ArmSummary{}}
	if r.Run != nil {
		s.Version, s.Driver, s.Ended, s.Reason = r.Run.Version, r.Run.Driver, r.Run.Ended, r.Run.Reason
		if !r.Run.Started.IsZero() {
			s.Started = &r.Run.Started
		}
		if s.Ended != nil {
			s.WorkedMS = ptr(r.worked().Milliseconds())
		}
	}
	for i := range r.slots {
		switch statuses[r.slots[i].status] {
		case "":
			continue
		case record.Scored:
			s.Scored++
		case record.Skipped:
			s.Skipped++
		}
		s.Decided++
		if r.slots[i].amended {
			s.Amended++
		}
		if r.slots[i].replayed {
			s.Replayed++
		}
		if r.slots[i].oom && statuses[r.slots[i].status] == record.Scored {
			s.OOM++
		}
		if d := r.slots[i].driver; d > 0 {
			if s.Drivers == nil {
				s.Drivers = map[string]int{}
			}
			s.Drivers[r.drivers[d-1]]++
		}
	}
	switch s.Reason {
	// the reason of a process that only reran decided trials
	case "budget", "usage", "deadline", "stopped":
		if s.Decided == s.Planned {
			s.Reason = "done"
		}
	}
	s.Coverage = ratio(s.Scored, s.Planned-s.Skipped)
	for a := range r.Plan.Arms {
		s.Arms = append(s.Arms, r.arm(a, -1))
		if len(r.names) > 1 {
			for b := range r.names {
				s.Benchmarks = append(s.Benchmarks, r.arm(a, b))
			}
		}
	}
	s.Problems, s.Slowest = r.problems(), r.slowest(5)
	if r.Run != nil {
		s.Losses = r.Run.Losses
	}
	s.Warnings = r.warnings(s)
	return s
}

// arm summarizes an arm's trials in benchmark b, or in all if b is -1.
func (r *Results) arm(a, b int) ArmSummary {
	arm := &r.Plan.Arms[a]
	out := ArmSummary{
		Arm: arm.Name, ArmID: arm.ID, Agent: arm.Agent, Model: arm.Model, Prompt: arm.Prompt, Axes: arm.Axes,
		Excluded: map[string]int{}, Ends: map[string]int{},
	}
	if b >= 0 {
		out.Benchmark = r.names[b]
	}
	in := r.of(a, b)
	var steps, turns, wall, active, sum, doubted float64
	skipped := 0
	for _, i := range in {
		out.Planned++
		sl := &r.slots[i]
		switch st := statuses[sl.status]; st {
		case "":
			out.Excluded["pending"]++
			continue
		case record.Scored:
			out.Scored++
		default:
			if st == record.Skipped {
				skipped++
			}
			out.Excluded[string(st)]++
		}
		out.Decided++
		for j, f := range r.flags {
			if sl.flags&(1<<j) != 0 {
				if out.Flags == nil {
					out.Flags = map[string]int{}
				}
				out.Flags[f]++
			}
		}
		out.BadCalls += int64(sl.bad)
		if sl.gone {
			out.Abandoned++
		}
		if sl.left {
			out.Left++
		}
		if sl.refused {
			out.Refused++
		}
		if sl.status != 1 {
			continue
		}
		out.Ends[string(ends[sl.end])]++
		steps, turns = steps+float64(sl.steps), turns+float64(sl.turns)
		wall, active = wall+float64(sl.wall), active+float64(sl.active)
		if !math.IsNaN(sl.reward) {
			sum += sl.reward
		}
		if sl.opinion == 0 {
			continue
		}
		if out.Opinions == nil {
			out.Opinions = map[string]int{}
		}
		state := opinions[sl.opinion]
		out.Opinions[state]++
		if state == record.Unconfirmed {
			doubted += sl.reward
		}
		if state == record.Inapplicable && sl.used {
			out.NotApplicableUsed++
		}
	}
	out.Coverage = ratio(out.Scored, out.Planned-skipped)
	if e, ok := stats.Estimate(r.values(in), Level); ok {
		out.Mean, out.Interval, out.Method, out.Clusters = &e.Mean, e.Interval, e.Method, e.Clusters
	}
	if out.Planned > 0 {
		m := sum / float64(out.Planned)
		out.MeanPlanned = &m
	}
	if n := float64(out.Scored); n > 0 {
		if out.Opinions[record.Unconfirmed] > 0 {
			out.MeanConfirmed = ptr((sum - doubted) / n)
		}
		out.Steps, out.Turns, out.WallMS, out.ActiveMS = ptr(steps/n), ptr(turns/n), ptr(wall/n), ptr(active/n)
	}
	r.pass(a, b, &out)
	r.spent(a, b, &out)
	return out
}

// pass estimates pass@k and pass^k for k = repeats, over the tasks whose repeats are all evidence.
func (r *Results) pass(a, b int, out *ArmSummary) {
	k := r.repeats()
	if k < 2 {
		return
	}
	var any, all float64
	n := 0
	for t := range r.Plan.Tasks {
		if b >= 0 && r.bench[t] != b {
			continue
		}
		right, scored := 0, 0
		for rep := 1; rep <= k; rep++ {
			s := &r.slots[r.at(a, t, rep)]
			if math.IsNaN(s.reward) {
				continue
			}
			ok, known := r.success(s.reward)
			if !known {
				out.PassWhy = fmt.Sprintf("a reward of %.4g is neither right nor wrong; where the configuration says "+
					"success: 0.5, say, rewards from 0.5 on are right", s.reward)
				return
			}
			scored++
			if ok {
				right++
			}
		}
		if scored == k {
			n++
			any += stats.PassAtK(k, right, k)
			all += stats.PassHatK(k, right, k)
		}
	}
	if n == 0 {
		out.PassWhy = fmt.Sprintf("there is no task of which all %d repeats are evidence", k)
		return
	}
	out.PassAtK, out.PassHatK = ptr(any/float64(n)), ptr(all/float64(n))
}

// success reports whether a reward counts as a success. Without a threshold this is known only for
// 0 and 1.
func (r *Results) success(reward float64) (ok, known bool) {
	if r.Success != nil {
		return reward >= *r.Success-1e-9, true
	}
	return reward == 1, reward == 0 || reward == 1
}

func (r *Results) spent(a, b int, out *ArmSummary) {
	var cost, other float64
	known, knownOther := true, true
	var why, whyOther string
	var use record.Usage
	for j := range r.names {
		if b >= 0 && j != b {
			continue
		}
		p := &r.paid[a*len(r.names)+j]
		out.Attempts += p.attempts
		out.Further += p.further
		out.ModelCalls += p.use.Calls
		use.Silent += p.use.Silent
		use.In += p.use.In
		use.Out += p.use.Out
		use.Cached += p.use.Cached
		for _, l := range []*record.Lost{p.use.Lost, p.other.Lost} {
			if l != nil {
				out.LostTries += l.Tries
				out.LostCost += l.USD
			}
		}
		if p.use.Cost != nil {
			cost += *p.use.Cost
		}
		if p.other.Cost != nil {
			other += *p.other.Cost
		}
		known, knownOther = known && !p.unknown, knownOther && !p.otherUnknown
		why, whyOther = cmp.Or(why, p.use.Unpriced), cmp.Or(whyOther, p.other.Unpriced)
	}
	if use.Silent == 0 {
		out.TokensIn, out.TokensOut, out.TokensCached = &use.In, &use.Out, &use.Cached
	}
	if known {
		out.Cost = &cost
	} else {
		out.CostWhy = unpriced(why)
	}
	if knownOther {
		out.OtherCost = &other
	} else {
		out.OtherCostWhy = unpriced(whyOther)
	}
}

// unpriced says why a cost is unknown and which configuration key helps, or "" if the record does
// not say.
func unpriced(missing string) string {
	switch missing {
	case "":
		return ""
	case "usage":
		return "the service does not say how many tokens a reply took"
	}
	keys := strings.Split(missing, ",")
	words := make([]string, len(keys))
	for i, k := range keys {
		words[i] = map[string]string{"in": "input", "out": "output", "cached": "cached input",
			"cache_write": "cache writes"}[k]
		keys[i] = "price." + k
	}
	return "no price is known of " + strings.Join(words, ", ") + ": set " + strings.Join(keys, ", ") +
		" under the model"
}

// problems returns the kinds of failure, most frequent first.
func (r *Results) problems() []Problem {
	at := make([]int, len(r.faults))        // kind → index in ps, from 1
	message := make([]int, len(r.faults)+1) // fault → index in its problem's messages, from 1
	ps := []Problem{}
	for i := range r.slots {
		f := r.slots[i].fault
		if f == 0 {
			continue
		}
		x := &r.faults[f-1]
		if at[x.kind] == 0 {
			ps = append(ps, Problem{Status: string(x.status), End: string(x.end), Phase: x.phase, Class: x.class})
			at[x.kind] = len(ps)
		}
		p := &ps[at[x.kind]-1]
		if message[f] == 0 {
			p.Messages = append(p.Messages, ProblemMessage{Text: x.text, Trial: r.ref(i)})
			message[f] = len(p.Messages)
		}
		p.Messages[message[f]-1].Count++
		p.Count++
	}
	for i := range ps {
		p := &ps[i]
		slices.SortStableFunc(p.Messages, func(a, b ProblemMessage) int { return cmp.Compare(b.Count, a.Count) })
		p.Text, p.Trial = p.Messages[0].Text, p.Messages[0].Trial
		if len(p.Messages) == 1 {
			p.Messages = nil
		}
	}
	slices.SortStableFunc(ps, func(a, b Problem) int { return cmp.Compare(b.Count, a.Count) })
	return ps
}

func (r *Results) slowest(n int) []TrialRef {
	best := []int{}
	for i := range r.slots {
		w := r.slots[i].wall
		if r.slots[i].status == undecided || w == 0 || len(best) == n && w <= r.slots[best[n-1]].wall {
			continue
		}
		j, _ := slices.BinarySearchFunc(best, w, func(k int, w int32) int {
			if r.slots[k].wall >= w {
				return -1
			}
			return 1
		})
		best = slices.Insert(best, j, i)
		best = best[:min(n, len(best))]
	}
	refs := []TrialRef{}
	for _, i := range best {
		refs = append(refs, r.ref(i))
	}
	return refs
}

func (r *Results) ref(i int) TrialRef {
	arm, task, rep := r.where(i)
	t := &r.Plan.Tasks[task]
	return TrialRef{ID: r.id(i), Arm: r.Plan.Arms[arm].Name, Benchmark: t.Benchmark, Task: t.ID, Repeat: rep,
		WallMS: int64(r.slots[i].wall)}
}

// warnings returns what a reader of the numbers has to know.
func (r *Results) warnings(s *Summary) (ws []string) {
	if r.Run != nil {
		for _, k := range slices.Sorted(maps.Keys(r.Run.Limits)) {
			// the driver can enforce it only in part
			if v := r.Run.Limits[k]; strings.HasPrefix(v, "per ") {
				ws = append(ws, strings.TrimSuffix(k, " limit")+" limit: "+v)
			}
		}
	}
	for _, a := range s.Arms {
		if a.CostWhy != "" {
			ws = append(ws, "the cost of "+a.Arm+" ("+a.Model+") is not known: "+a.CostWhy)
		}
		if a.LostTries > 0 {
			ws = append(ws, fmt.Sprintf("%s of %s brought no answer and may be billed, for up to $%.2f beside the cost",
				plural(int(a.LostTries), "call"), a.Arm, a.LostCost))
		}
		if a.OtherCostWhy != "" {
			ws = append(ws, "the cost of the benchmark's models beside "+a.Arm+" is not known: "+a.OtherCostWhy)
		}
		if n := a.Flags["no_reward"]; n > 0 {
			ws = append(ws, plural(n, "trial")+" of "+a.Arm+
				" counted as 0 because the grader, which still worked, gave no reward (no_reward)")
		}
	}
	if s.Amended > 0 {
		ws = append(ws, plural(s.Amended, "grade")+" amended after the fact")
	}
	if s.OOM > 0 {
		ws = append(ws, plural(s.OOM, "trial")+
			" with a score ran into the memory limit of the machine, which is 2 GiB where neither the task nor "+
			"sandbox.memory sets one")
	}
	if s.Replayed > 0 {
		ws = append(ws, replayed(s.Replayed))
	}
	if names := r.mixed(); names != nil {
		ws = append(ws, fmt.Sprintf("%s graded by different versions in different trials: %s. To grade all trials "+
			"alike: evalrun regrade RUN --changed",
			plural(len(names), "task"), someOf(names, 10)))
	}
	if len(s.Losses) > 0 {
		ws = append(ws, LossText(s.Losses))
	}
	if len(r.errs) > 0 {
		ws = append(ws, "the journal has entries that cannot be read; the numbers are without them")
	}
	return ws
}

// mixed returns the tasks for which some trials were graded with another version than others.
func (r *Results) mixed() (names []string) {
	if r.versions == nil {
		return nil
	}
	for i := range r.Plan.Tasks {
		t := &r.Plan.Tasks[i]
		by := map[string]bool{}
		for arm := range r.Plan.Arms {
			for rep := 1; rep <= r.repeats(); rep++ {
				if s := &r.slots[r.at(arm, i, rep)]; statuses[s.status] == record.Scored {
					by[cmp.Or(r.gradedBy(s), t.Digest)] = true
				}
			}
		}
		if len(by) > 1 {
			names = append(names, t.Benchmark+"/"+t.ID)
		}
	}
	return names
}

// LossText describes in one line what was lost.
func LossText(ls []record.Loss) string {
	var files, days []string
	var p record.Paid
	verdicts := 0
	for _, l := range ls {
		if day := l.Time.Format(time.DateOnly); !slices.Contains(days, day) {
			days = append(days, day)
		}
		for _, f := range l.Files {
			if !slices.Contains(files, f) {
				files = append(files, f)
			}
		}
		verdicts += l.Verdicts
		if l.Spent != nil {
			p.Tokens, p.USD, p.Estimated = p.Tokens+l.Spent.Tokens, p.USD+l.Spent.USD, p.Estimated+l.Spent.Estimated
		}
	}
	const most = 3
	if n := len(files) - most; n > 0 {
		files = append(files[:most:most], fmt.Sprintf("%d more", n))
	}
	text := "the run has gone on without records that were damaged or missing (" + strings.Join(files, ", ") + "; " +
		strings.Join(days, ", ") + "): "
	text += plural(verdicts, "verdict") + " lost"
	switch {
	case p.USD > 0 && p.Estimated > 0:
		text += fmt.Sprintf(", $%.2f and %d tokens ($%.2f by an upper estimate) were spent on what is lost and count "+
			"for the budget only", p.USD, p.Tokens, p.Estimated)
	case p.USD > 0 || p.Tokens > 0:
		text += fmt.Sprintf(", $%.2f and %d tokens were spent on what is lost and count for the budget only", p.USD,
			p.Tokens)
	default:
		text += ", and nothing that was spent"
	}
	return text
}

// replayed says for how many trials the first score does not count.
func replayed(n int) string {
	were := "were"
	if n == 1 {
		were = "was"
	}
	return plural(n, "trial") + " with a score " + were +
		" played again by rerun: the last score counts, and means are not fair where trials were picked by theirs"
}

func ratio(a, b int) *float64 {
	if b <= 0 {
		return nil
	}
	return ptr(float64(a) / float64(b))
}

func ptr[T any](x T) *T { return &x }
