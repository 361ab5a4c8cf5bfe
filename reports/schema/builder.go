package schema

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"
)

// A Batch collects rows by table.
type Batch struct {
	Trials   []Trial // one row per decided trial; a trial decided again replaces its earlier row
	Amends   []Amend
	Attempts []Attempt
	Events   []Event
	Calls    []ModelCall
	Scores   []Score
	Tests    []Test
	Changes  []Change
}

// Reset empties b and keeps its memory.
func (b *Batch) Reset() {
	b.Trials, b.Amends, b.Attempts = clear0(b.Trials), clear0(b.Amends), clear0(b.Attempts)
	b.Events, b.Calls = clear0(b.Events), clear0(b.Calls)
	b.Scores, b.Tests, b.Changes = clear0(b.Scores), clear0(b.Tests), clear0(b.Changes)
}

// clear0 truncates s, and drops references so that they can be garbage-collected.
func clear0[T any](s []T) []T {
	clear(s)
	return s[:0]
}

// An Amend corrects the row of a decided trial.
type Amend struct {
	Trial string
	Seq   int64
	Time  time.Time
	record.Amend
}

// Apply applies the correction to t.
func (a Amend) Apply(t *Trial) {
	var g ledger.Grade
	if t.Status != nil {
		g.Status = record.Status(*t.Status)
	}
	if t.Outcome != nil {
		g.End = record.End(*t.Outcome)
	}
	if t.LimitHit != nil {
		g.Limit = *t.LimitHit
	}
	g.Amend(&a.Amend)
	t.Status, t.Outcome, t.LimitHit = ptr(clean(string(g.Status))), optional(string(g.End)), optional(g.Limit)
	t.Reward, t.Flags = g.Reward, cleanAll(g.Flags)
	t.confirm(g.Confirmation)
	if a.Status == record.Scored && a.End != record.Broke {
		t.ErrorPhase, t.ErrorClass, t.Error = nil, nil, nil
	}
	t.AmendedAt, t.AmendedWhy = ptr(a.Time.UTC()), optional(a.Why)
}

// confirm fills in the columns of the second opinion.
func (t *Trial) confirm(c *record.Confirmation) {
	t.Confirmed, t.Confirmation, t.ConfirmedWhy, t.Slipped = nil, nil, nil, nil
	if c == nil {
		return
	}
	t.Confirmation, t.ConfirmedWhy, t.Slipped = ptr(clean(c.State)), optional(c.Why), cleanAll(c.Slipped)
	if c.State == record.Confirmed || c.State == record.Unconfirmed {
		t.Confirmed = ptr(c.State == record.Confirmed)
	}
}

// A Builder converts journal entries, which must be added in journal order, to rows. It keeps only
// the open attempts in memory.
type Builder struct {
	run  string
	open map[string]*opened // keyed by trial
}

type opened struct {
	record.Attempt
	seq     int64
	start   time.Time
	goal    string
	blob    string          // of the last goal whose text here is truncated
	sum     float64         // of the rewards so far
	rewards []record.Reward // their observations have not arrived yet: at most one per actor
	spent   *record.Spent   // usage of an interrupted attempt
}

// maxGoal limits the goals of all stages of an attempt together.
const maxGoal = 64 << 10

// NewBuilder returns a Builder for the rows of one run.
func NewBuilder(run string) *Builder {
	return &Builder{run: clean(run), open: map[string]*opened{}}
}

// Low returns the first entry that a new Builder must be given to continue in place of this one, or
// next if no attempt is open.
func (b *Builder) Low(next int64) int64 {
	for _, o := range b.open {
		next = min(next, o.seq)
	}
	return next
}

// Add appends the rows of e to out. If an entry cannot be decoded, Add returns an error and adds no
// row; further entries may be added.
func (b *Builder) Add(e *record.Entry, out *Batch) error {
	var err error
	switch e.Kind {
	case record.KindEvent:
		err = b.event(e, out)
	case record.KindCall:
		err = b.call(e, out)
	case record.KindAttempt:
		err = b.attempt(e, out)
	case record.KindReward:
		err = b.reward(e, out)
	case record.KindStage:
		err = b.stage(e)
	case record.KindEvidence:
		err = b.changes(e, out)
	case record.KindResult:
		err = b.result(e, out)
	case record.KindVerdict:
		err = b.verdict(e, out)
	case record.KindAmend:
		err = b.amend(e, out)
	case record.KindSpent:
		err = b.spent(e)
	}
	if err != nil {
		return fmt.Errorf("journal entry %d (%s of trial %s): %w", e.Seq, e.Kind, e.Trial, err)
	}
	return nil
}

func (b *Builder) attempt(e *record.Entry, out *Batch) error {
	var a record.Attempt
	if err := json.Unmarshal(e.Data, &a); err != nil {
		return err
	}
	a.Attempt = e.Attempt
	if o := b.open[e.Trial]; o != nil {
		if o.Attempt.Attempt == e.Attempt { // continued under a new lease
			o.Attempt = a
			return nil
		}
		// its process died before a verdict
		out.Attempts = append(out.Attempts, b.attemptRow(e.Trial, e.Seq, o))
	}
	b.open[e.Trial] = &opened{Attempt: a, seq: e.Seq, start: e.Time}
	return nil
}

func (b *Builder) verdict(e *record.Entry, out *Batch) error {
	var v record.Verdict
	if err := json.Unmarshal(e.Data, &v); err != nil {
		return err
	}
	o := b.open[e.Trial]
	if o == nil || o.Attempt.Attempt != e.Attempt {
		return fmt.Errorf("attempt %d is not open", e.Attempt)
	}
	delete(b.open, e.Trial)
	a := b.attemptRow(e.Trial, e.Seq, o)
	a.conclude(&v, e.Time)
	a.took(o.spent)
	out.Attempts = append(out.Attempts, a)
	for i := range v.Scores {
		out.Scores = append(out.Scores, b.score(e, OfTrial, nil, &v.Scores[i]))
	}
	if !v.Final {
		return nil
	}
	t := Trial{
		ArmID: clean(o.Arm), Agent: clean(o.Agent), Model: optional(o.Model), Prompt: optional(o.Prompt),
		Axes:   cleanMap(o.Axes),
		Digest: clean(o.Digest), Cluster: optional(o.Cluster), Attempts: a.Attempt, Seed: o.Seed,
	}
	share(&t, &a)
	if v.Taken != nil {
		u := v.Used()
		t.Calls, t.Cost = ptr(u.Calls), u.Cost
		t.TokensIn, t.TokensOut, t.TokensCached, t.TokensWrite, t.TokensReason = tokens(&u)
	}
	t.confirm(v.Confirmation)
	out.Trials = append(out.Trials, t)
	return nil
}

// share copies the fields that both tables have.
func share(t *Trial, a *Attempt) {
	to, from := reflect.ValueOf(t).Elem(), reflect.ValueOf(a).Elem()
	for _, f := range shared {
		to.Field(f[0]).Set(from.Field(f[1]))
	}
}

// shared are the fields that both types have, by index.
var shared = func() (fs [][2]int) {
	t, a := reflect.TypeFor[Trial](), reflect.TypeFor[Attempt]()
	for i := range t.NumField() {
		if f, ok := a.FieldByName(t.Field(i).Name); ok {
			fs = append(fs, [2]int{i, f.Index[0]})
		}
	}
	return fs
}()

func (b *Builder) attemptRow(trial string, seq int64, o *opened) Attempt {
	a := Attempt{
		Run: b.run, Trial: clean(trial), Attempt: int32(o.Attempt.Attempt), Why: optional(o.Why), Regrade: o.Regrade,
		Arm: clean(o.ArmName), Benchmark: clean(o.Benchmark), Task: clean(o.Task), Repeat: int32(o.Repeat),
		Driver: optional(o.Driver),
		Goal:   optional(o.goal), GoalBlob: optional(o.blob), QueuedMS: o.Queued.Milliseconds(),
		StartedAt: o.start.UTC(),
		Seq:       seq,
	}
	a.took(o.spent)
	return a
}

// spent records the usage of an interrupted attempt. Usage of the graders of a decided trial is in
// no row.
func (b *Builder) spent(e *record.Entry) error {
	var s record.Spent
	if err := json.Unmarshal(e.Data, &s); err != nil {
		return err
	}
	if o := b.attemptOf(e); o != nil {
		o.spent = &s
	}
	return nil
}

// took fills in the usage of an interrupted attempt.
func (a *Attempt) took(s *record.Spent) {
	if s != nil {
		a.used(&s.Usage, s.Other)
	}
}

// used fills in the usage of models.
func (a *Attempt) used(u, other *record.Usage) {
	a.Calls, a.Cost = ptr(u.Calls), u.Cost
	a.TokensIn, a.TokensOut, a.TokensCached, a.TokensWrite, a.TokensReason = tokens(u)
	if u := other; u != nil {
		a.OtherCalls, a.OtherCost = ptr(u.Calls), u.Cost
		a.OtherIn, a.OtherOut, _, _, _ = tokens(u)
	}
}

// tokens returns the token counts of u, or nil for all of them if a service did not report the
// usage of a call.
func tokens(u *record.Usage) (in, out, cached, write, reasoning *int64) {
	if !u.Told() {
		return nil, nil, nil, nil, nil
	}
	return ptr(u.In), ptr(u.Out), ptr(u.Cached), ptr(u.CacheWrite), ptr(u.Reasoning)
}

// conclude fills in the fields of the verdict.
func (a *Attempt) conclude(v *record.Verdict, end time.Time) {
	a.Final, a.Status, a.Outcome, a.LimitHit = v.Final, ptr(clean(string(v.Status))), optional(string(v.End)),
		optional(v.Limit)
	a.Reward, a.Flags, a.Answer, a.EndedAt = v.Reward, cleanAll(v.Flags), optional(v.Answer), ptr(end.UTC())
	if v.Error != nil {
		a.ErrorPhase, a.ErrorClass, a.Error = optional(v.Error.Phase), optional(v.Error.Class), optional(v.Error.Text)
	}
	t := &v.Times
	// an attempt that failed before it had a machine keeps the run's driver
	if v.Driver != "" || v.Status == record.Scored {
		a.Driver = optional(v.Driver)
	}
	for _, x := range v.Images { // the agent's image comes first
		a.Image, a.ImageDigest = optional(x.Name), optional(x.Digest)
		break
	}
	a.Network, a.Refused, a.ImageMS = optional(v.Network), ptr(v.Refused), ms(t.Image)
	a.WallMS, a.QueueMS, a.StartMS, a.AgentMS, a.WorkingMS = ms(t.Wall), ms(t.Queue), ms(t.Start), ms(t.Agent),
		ms(t.Working)
	a.ModelMS, a.BackoffMS, a.ToolMS, a.GradeMS, a.CloseMS = ms(t.Model), ms(t.Backoff), ms(t.Tool), ms(t.Grade),
		ms(t.Close)
	a.Stages, a.Steps, a.Turns, a.BadCalls = ptr(int32(v.Stages)), ptr(v.Steps), ptr(v.Turns), ptr(v.BadCalls)
	a.used(&v.Usage, v.Other)
	if v.Left != nil {
		a.LeftProcesses = ptr(int32(*v.Left))
	}
	a.MaxMemory, a.OOMs, a.Abandoned = v.MaxMemory, ptr(v.OOMs), ptr(v.Abandoned)
	if v.CPU != nil {
		a.CPUMS = ms(*v.CPU)
	}
	if v.Throttled != nil {
		a.ThrottledMS = ms(*v.Throttled)
	}
	if a.Disk = v.Disk; v.Ahead > 0 {
		a.AheadMS = ms(v.Ahead)
	}
}

func (b *Builder) result(e *record.Entry, out *Batch) error {
	var r record.Result
	if err := json.Unmarshal(e.Data, &r); err != nil {
		return err
	}
	for i := range r.Scores {
		out.Scores = append(out.Scores, b.score(e, OfStage, ptr(int32(r.Stage)), &r.Scores[i]))
	}
	b.tests(e, &r, out)
	b.uses(e, ptr(int32(r.Stage)), r.Uses, out)
	return nil
}

// changes adds what the agent changed in a stage.
func (b *Builder) changes(e *record.Entry, out *Batch) error {
	var ev struct { // the rest may be large, and is of no use here
		Stage   int                    `json:"stage"`
		Changes []record.FolderChanges `json:"changes"`
	}
	if err := json.Unmarshal(e.Data, &ev); err != nil {
		return err
	}
	for _, c := range ev.Changes {
		row := b.change(e, ptr(int32(ev.Stage)), OtherFolders)
		if c.Folder != "" {
			row.Kind, row.Path, row.Work = OfFolder, optional(c.Folder), ptr(c.Work)
		}
		row.Created, row.Changed, row.Removed = ptr(c.Created), ptr(c.Changed), ptr(c.Removed)
		out.Changes = append(out.Changes, row)
	}
	return nil
}

// uses adds paths that the agent changed and that a grader used.
func (b *Builder) uses(e *record.Entry, stage *int32, list []record.PathUse, out *Batch) {
	for _, u := range list {
		row := b.change(e, stage, OfPath)
		row.Path, row.Work, row.Used = optional(u.Path), ptr(u.Work), optional(u.Use)
		out.Changes = append(out.Changes, row)
	}
}

func (b *Builder) change(e *record.Entry, stage *int32, kind string) Change {
	return Change{Run: b.run, Trial: clean(e.Trial), Attempt: int32(e.Attempt), Stage: stage, Kind: kind, Seq: e.Seq}
}

func (b *Builder) tests(e *record.Entry, r *record.Result, out *Batch) {
	for _, t := range r.Tests {
		out.Tests = append(out.Tests, Test{
			Run: b.run, Trial: clean(e.Trial), Attempt: int32(e.Attempt), Stage: int32(r.Stage),
			Name: clean(t.Name), Status: clean(t.Status), Message: optional(t.Message), Seq: e.Seq,
		})
	}
}

func (b *Builder) amend(e *record.Entry, out *Batch) error {
	a := Amend{Trial: clean(e.Trial), Seq: e.Seq, Time: e.Time}
	if err := json.Unmarshal(e.Data, &a.Amend); err != nil {
		return err
	}
	out.Amends = append(out.Amends, a)
	for i := range a.Scores {
		out.Scores = append(out.Scores, b.score(e, OfAmend, nil, &a.Scores[i]))
	}
	for i := range a.Results {
		b.tests(e, &a.Results[i], out)
	}
	if a.Confirmation != nil {
		b.uses(e, nil, a.Confirmation.Uses, out)
	}
	return nil
}

func (b *Builder) score(e *record.Entry, scope string, stage *int32, s *record.Score) Score {
	row := Score{
		Run: b.run, Trial: clean(e.Trial), Scope: scope, Stage: stage, Name: clean(s.Name), Primary: s.Primary,
		Value: s.Value,
		Text:  optional(s.Text), Why: optional(s.Why), Time: e.Time.UTC(), Seq: e.Seq,
	}
	if e.Attempt > 0 {
		row.Attempt = ptr(int32(e.Attempt))
	}
	return row
}

// stage records the agent's instruction.
func (b *Builder) stage(e *record.Entry) error {
	var st record.Stage
	if err := json.Unmarshal(e.Data, &st); err != nil {
		return err
	}
	if o := b.attemptOf(e); o != nil && st.Goal != "" {
		if o.goal != "" {
			o.goal += "\n\n"
		}
		o.goal = cutAt(o.goal+clean(st.Goal), maxGoal)
		if st.GoalBlob != "" {
			o.blob = st.GoalBlob
		}
	}
	return nil
}

// attemptOf returns the open attempt of e, or nil if it began before the first entry that the
// builder was given.
func (b *Builder) attemptOf(e *record.Entry) *opened {
	if o := b.open[e.Trial]; o != nil && o.Attempt.Attempt == e.Attempt {
		return o
	}
	return nil
}

// reward keeps the reward of an action until the action's observation arrives, because it is stored
// in the observation's row.
func (b *Builder) reward(e *record.Entry, out *Batch) error {
	var r record.Reward
	if err := json.Unmarshal(e.Data, &r); err != nil {
		return err
	}
	if r.Event > 0 {
		b.step(e, &r, r.Event, out)
		return nil
	}
	if o := b.attemptOf(e); o != nil {
		o.rewards = append(o.rewards, r)
	}
	return nil
}

// join fills in the reward of the action that led to an observation.
func (b *Builder) join(e *record.Entry, row *Event, cause int64, out *Batch) {
	o := b.attemptOf(e)
	if o == nil || row.Class != event.Observation.String() {
		return
	}
	i := slices.IndexFunc(o.rewards, func(r record.Reward) bool { return r.Action == cause })
	if i < 0 {
		return
	}
	r := o.rewards[i]
	o.rewards = slices.Delete(o.rewards, i, i+1)
	b.step(e, &r, row.ID, out)
	var info struct {
		Cumulative *float64 `json:"cumulative"`
		Raw        *float64 `json:"raw_reward"`
	}
	_ = json.Unmarshal(r.Info, &info) // Info in a benchmark's own format has none of these fields
	row.Reward, row.RawReward, row.Sum = r.Reward, info.Raw, info.Cumulative
	if r.Reward != nil {
		if o.sum += *r.Reward; row.Sum == nil {
			row.Sum = ptr(o.sum)
		}
	}
}

// step adds the score of one action.
func (b *Builder) step(e *record.Entry, r *record.Reward, observation int64, out *Batch) {
	row := b.score(e, OfStep, nil, &record.Score{Name: "reward", Value: r.Reward, Text: string(r.Info)})
	row.Event = &observation
	out.Scores = append(out.Scores, row)
}

func (b *Builder) call(e *record.Entry, out *Batch) error {
	var c record.Call
	if !scanModelCall(e.Data, &c) {
		c = record.Call{}
		if err := json.Unmarshal(e.Data, &c); err != nil {
			return err
		}
	}
	row := ModelCall{
		Run: b.run, Trial: clean(e.Trial), Attempt: int32(e.Attempt), Actor: c.Actor, Role: c.Role, N: int32(c.N),
		Try:   int32(c.Try),
		Model: clean(c.Model), Reply: optional(c.Reply), TakenFrom: optional(c.From), Stop: optional(c.Stop),
		Cost: c.Usage.Cost, StartedAt: c.Start.UTC(), LatencyUS: c.Latency.Microseconds(),
		WaitedUS:   c.Waited.Microseconds(),
		ErrorClass: optional(c.Class), Error: optional(c.Error), ProviderID: optional(c.ID),
		Request: optional(c.Request), Sent: optional(c.Sent),
		RawReply: optional(string(c.Raw)), RawBlob: optional(c.RawBlob), Seq: e.Seq,
	}
	if c.Error == "" || c.Usage.In > 0 || c.Usage.Out > 0 {
		row.TokensIn, row.TokensOut, row.TokensCached, row.TokensWrite, row.TokensReason = tokens(&c.Usage)
	}
	if c.HTTP != 0 {
		row.HTTP = ptr(int32(c.HTTP))
	}
	out.Calls = append(out.Calls, row)
	return nil
}

// OfPlan returns the rows that are known before anything runs.
func OfPlan(p *record.Plan) (arms []Arm, tasks []Task) {
	run := clean(p.Run)
	for _, a := range p.Arms {
		arms = append(arms, Arm{
			Run: run, Arm: clean(a.Name), ArmID: clean(a.ID), Agent: clean(a.Agent), Model: optional(a.Model),
			Prompt: optional(a.Prompt),
			Axes:   cleanMap(a.Axes), Definition: optional(string(a.Def)),
			Planned: int64(len(p.Tasks)) * int64(max(1, p.Repeats)),
		})
	}
	for _, t := range p.Tasks {
		tasks = append(tasks, Task{
			Run: run, Benchmark: clean(t.Benchmark), Task: clean(t.ID), Digest: clean(t.Digest),
			Cluster: optional(t.Cluster),
			Tags:    cleanAll(t.Tags), Fields: cleanMap(t.Fields), Bad: optional(t.Bad),
		})
	}
	return arms, tasks
}

func ms(d time.Duration) *int64 { return ptr(d.Round(time.Millisecond).Milliseconds()) }

func cleanAll(ss []string) []string {
	if len(ss) == 0 {
		return nil
	}
	out := make([]string, len(ss))
	for i, s := range ss {
		out[i] = clean(s)
	}
	return out
}

func cleanMap(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[clean(k)] = clean(v)
	}
	return out
}
