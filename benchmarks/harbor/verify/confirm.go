package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Replay is one more play of a task's verifier, in a fresh machine.
type Replay struct {
	Evidence []benchmarks.Evidence  // of the stages whose work is put into the machine; nil: none is
	Without  func(name string) bool // of the work and what else was kept; nil if Evidence is
	Trace    *Trace                 // not nil: where to add what the verifier looks up
}

// A Played is the outcome of a [Replay].
type Played struct {
	Reward float64
	Why    string // of the reward
	Stages []benchmarks.Result
	// Unplayed says that the rewards allow one more stage, which the agent has not played.
	Unplayed bool
}

// A Claim is a [benchmarks.Claim] as [Opinion] and [Regrade] judge it.
type Claim struct {
	benchmarks.Claim
	Key  string // see [ClaimKey]
	Was  string // the key of the task that the agent played, which may be another for Regrade
	Mode Integrity
	// Unsolved says that the task has no solution of its own.
	Unsolved bool
	// Tampering are the format's own flags of tampering.
	Tampering []string
	Log       event.Log
	Work      []*Work // of each stage
	Play      func(ctx context.Context, r Replay) (Played, error)
}

// ClaimKey is the key of what is known of a task: of its digest, its image, and the paths that the
// option work names.
func ClaimKey(digest, image string, work []string) string {
	return strings.Join(append([]string{digest, image}, work...), "\x00")
}

// again plays the verifier with the work in a fresh machine. A lower reward is played once more
// before it is said.
func (c Claim) again(ctx context.Context, without func(name string) bool) (p Played, err error) {
	for range 2 {
		p, err = c.once(ctx, Replay{Evidence: c.Evidence, Without: without})
		if err != nil || p.Reward >= c.Reward {
			break
		}
	}
	return p, err
}

// once plays the verifier. A machine that the work has lost is no reward: it must not keep the
// second opinion away.
func (c Claim) once(ctx context.Context, r Replay) (Played, error) {
	p, err := c.Play(ctx, r)
	var sb *sandbox.Error
	if err == nil || ctx.Err() != nil || !errors.As(err, &sb) || sb.Op == "create" {
		return p, err
	}
	if errors.Is(err, sandbox.ErrSandboxOOM) || c.Last && (errors.Is(err, sandbox.ErrHung) || sb.Inside) {
		return Played{Why: "the machine was lost with the work in it: " + score.Clean(sb.Error())}, nil
	}
	return p, err
}

// A reference is what is known of a task's verifier from machines that no agent saw.
type reference struct {
	// Oracle is the reward of the oracle's work in a fresh machine; nil: the verifier was traced
	// without any work.
	Oracle *float64 `json:"oracle,omitempty"`
	// Full is the reward that the oracle had in its own machine.
	Full float64 `json:"full,omitempty"`
	// Odd are the oracle's odd changes of the work: of what is in a new folder, the folder. Rest are
	// its changes elsewhere without which its reward is lower.
	Odd  []string `json:"odd,omitempty"`
	Rest []string `json:"rest,omitempty"`
	// Named are the paths of the work that the oracle made or changed.
	Named []string `json:"named,omitempty"`
	Trace Trace    `json:"trace"`
}

// decode decodes a reference strictly, as it may come from others.
func (r *reference) decode(text []byte) error {
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	return in.Decode(r)
}

// suffices returns an error if the task needs more of the machine than work.
func (r *reference) suffices() error {
	if r.Oracle != nil && *r.Oracle < r.Full {
		return fmt.Errorf("in a fresh machine the task's own solution earns %v instead of %v", *r.Oracle, r.Full)
	}
	return nil
}

func newTrace() Trace { return Trace{Lookups: executor.Lookups{Complete: true}} }

// referenceKey is the key of a reference. The number changes with what a reference holds.
func referenceKey(agent, key string) string { return "4\x00" + agent + "\x00" + key }

// Opinion gives the second opinion.
func Opinion(ctx context.Context, c Claim) (record.Confirmation, error) {
	out := record.Confirmation{Slipped: c.Confirmation.Slipped}
	say := func(state, format string, args ...any) (record.Confirmation, error) {
		out.State, out.Why = state, score.Clip(score.Clean(fmt.Sprintf(format, args...)), 2000)
		return out, nil
	}
	for _, w := range c.Work {
		switch {
		case w == nil:
			return say(record.Inapplicable, "the work was not kept")
		case w.Grown != "" && c.Oracle:
			return say(record.Inapplicable, "%s", w.Grown)
		case w.Grown != "":
			return say(record.Unconfirmed, "%s", w.Grown)
		}
	}
	if c.Oracle {
		return c.oracle(ctx, say)
	}
	if c.Confirmation.State == record.Unknown {
		news, err := c.news(ctx)
		if err != nil {
			return out, err
		}
		if !news {
			return c.Confirmation, nil
		}
	}
	var reasons []string
	if c.Confirmation.Why != "" {
		reasons = append(reasons, c.Confirmation.Why)
	}
	ref, err := c.reference(ctx, "oracle")
	var cannot *sandbox.Unsupported
	if errors.As(err, &cannot) {
		return say(record.Inapplicable, "%v", cannot)
	}
	if err != nil {
		return out, err
	}
	if err := ref.suffices(); err != nil {
		return say(record.Inapplicable, "%s", strings.Join(slices.Concat([]string{err.Error()}, reasons), "; "))
	}
	changes, err := c.changes(ctx)
	if err != nil {
		return out, err
	}
	slipped, unlike, without := c.leftOut(changes, &ref)
	elsewhere, err := c.elsewhere(ctx, &ref.Trace)
	if err != nil {
		return out, err
	}
	for _, x := range []struct {
		use   string
		paths []string
	}{{record.LookedUp, slipped}, {record.Odd, unlike}, {record.LookedUp, elsewhere}} {
		out.Uses = addUses(out.Uses, x.use, x.paths, c.isWork)
	}
	for _, p := range slices.Concat(slipped, unlike, elsewhere) {
		if len(out.Slipped) < 20 {
			out.Slipped = append(out.Slipped, score.Clean(p))
		}
	}
	if len(slipped) > 0 {
		reasons = append(reasons, fmt.Sprintf("files of the work at names that the verifier looks up: %d",
			len(slipped)))
	}
	if len(elsewhere) > 0 {
		reasons = append(reasons, fmt.Sprintf("files and folders outside of the work at names that the verifier looks "+
			"up: %d", len(elsewhere)))
	}
	if len(unlike) > 0 {
		reasons = append(reasons, fmt.Sprintf("hidden files, odd names, links, removals or system files in the work, "+
			"with nothing like them in the task's own solution: %d", len(unlike)))
	}
	confirmed := record.Confirmed
	if !ref.Trace.Complete { // something may have slipped in that the second opinion finds, too
		confirmed = record.Unknown
		reasons = append(reasons, "not all names that the verifier looks up are known: "+ref.Trace.Why)
	}
	if reasons == nil {
		return say(record.Confirmed, "")
	}
	why := strings.Join(reasons, "; ")
	last, err := c.again(ctx, without)
	if err != nil {
		return out, err
	}
	if out.Reward = &last.Reward; last.Reward >= c.Reward {
		return say(confirmed, "%v in a fresh machine that has only the work, too; it was asked for this: %s", last.Reward,
			why)
	}
	state := record.Unconfirmed
	lower := fmt.Sprintf("%v instead of %v in a fresh machine that has only the work", last.Reward, c.Reward)
	if len(ref.Rest) > 0 && slices.ContainsFunc(c.Work, func(w *Work) bool { return w.Unkept }) {
		lower += fmt.Sprintf(" (the task's own solution needs what it changed outside of the work; the agent's "+
			"changes there are more than %d files or %d MiB, of which no more was kept)", maxRestFiles, maxRestBytes>>20)
	}
	if ref.Oracle == nil {
		state = record.Unknown
		if c.Unsolved {
			lower += " (the task has no solution of its own that could show whether it is confirmed there)"
		} else {
			lower += " (whether the task's own solution is confirmed there is not known; evalrun tasks check finds out, " +
				"and evalrun resume asks again)"
		}
	}
	if last.Why != "" {
		why += "; the verifier says: " + last.Why
	}
	return say(state, "%s; %s", lower, why)
}

// news reports whether more is known than when the second opinion was not known: an oracle's
// reference, and all names if only these were missing.
func (c Claim) news(ctx context.Context) (bool, error) {
	text, err := c.Reference(ctx, referenceKey("oracle", c.Key), nil)
	if text == nil || err != nil {
		return false, err
	}
	var ref reference
	if err := ref.decode(text); err != nil {
		return false, fmt.Errorf("the reference of the verifier: %w", err)
	}
	was := c.Confirmation.Reward
	return ref.Trace.Complete || was != nil && *was < c.Reward, nil
}

// leftOut judges the work, and returns what a fresh machine does not get of it.
func (c Claim) leftOut(changes [][]workChange, ref *reference) (slipped, unlike []string,
	without func(name string) bool) {
	slipped, unlike = c.slipped(changes, ref), c.unlike(changes, ref)
	return slipped, unlike, c.without(slices.Concat(slipped, unlike), ref.Rest)
}

// Regrade grades the work of all stages again, in a fresh machine; see [benchmarks.Confirmer].
func Regrade(ctx context.Context, c Claim) ([]benchmarks.Result, error) {
	cannot := func(format string, args ...any) ([]benchmarks.Result, error) {
		return nil, fmt.Errorf("%w, and %s", benchmarks.ErrNeedsLive, fmt.Sprintf(format, args...))
	}
	for _, w := range c.Work {
		switch {
		case w == nil:
			return cannot("its work was not kept (see integrity)")
		case w.Grown != "":
			return cannot("its work was not kept: %s", w.Grown)
		}
	}
	doubt := c.Confirmation
	if doubt.State == record.Inapplicable {
		return cannot("%s", doubt.Why)
	}
	var ref reference
	if c.Was != c.Key {
		text, err := c.Reference(ctx, referenceKey("oracle", c.Was), nil)
		if err == nil && text != nil {
			err = ref.decode(text)
		}
		if err != nil {
			return nil, fmt.Errorf("the reference of the task as it was: %w", err)
		}
		if err := ref.suffices(); err != nil {
			return cannot("%v", err)
		}
		ref = reference{}
	}
	var err error
	if c.Oracle {
		// The task may be another, for which the reward is not known.
		o := c
		o.Reward = max(c.Reward, 1)
		if _, err = o.oracleReference(ctx, regraded); errors.Is(err, errNotSolved) {
			err = nil
		}
	}
	if err == nil {
		ref, err = c.reference(ctx, "oracle", regraded)
	}
	var unsupported *sandbox.Unsupported
	switch {
	case errors.As(err, &unsupported):
		return cannot("%v", unsupported)
	case err != nil:
		return nil, err
	}
	if err := ref.suffices(); err != nil {
		return cannot("%v", err)
	}
	changes, err := c.changes(ctx)
	if err != nil {
		return nil, err
	}
	slipped, unlike, without := c.leftOut(changes, &ref)
	p, err := c.again(ctx, without)
	if err != nil {
		return nil, err
	}
	if p.Unplayed {
		return cannot("its work now reaches a step that the agent has not played")
	}
	if doubt.State == record.Unknown && doubt.Reward != nil && *doubt.Reward < c.Reward && ref.Oracle == nil &&
		p.Reward < c.Reward {
		why := "whether the task needs more of the machine than the agent's work is not known"
		if !c.Unsolved {
			why += "; evalrun tasks check finds out"
		}
		return cannot("%s", why)
	}
	if len(p.Stages) == 0 {
		p.Stages = []benchmarks.Result{NoReward(p.Why)}
	}
	confirmation := record.Confirmation{State: record.Confirmed}
	if !ref.Trace.Complete {
		confirmation.State = record.Unknown
		confirmation.Why = "not all names that the verifier looks up are known: " + ref.Trace.Why
	}
	confirmation.Uses = addUses(nil, record.LookedUp, slipped, c.isWork)
	confirmation.Uses = addUses(confirmation.Uses, record.Odd, unlike, c.isWork)
	for _, name := range slices.Concat(slipped, unlike) {
		if len(confirmation.Slipped) < 20 {
			confirmation.Slipped = append(confirmation.Slipped, score.Clean(name))
		}
	}
	p.Stages[0].Confirmation = &confirmation
	for i := range p.Stages {
		p.Stages[i].Flags = addFlags(p.Stages[i].Flags, benchmarks.FlagFromWork)
	}
	c.tampered(p.Stages)
	return p.Stages, nil
}

// tampered keeps the flags of tampering of the agent's own machine, where the work was done.
func (c Claim) tampered(stages []benchmarks.Result) {
	flags := slices.DeleteFunc(slices.Clone(c.Flags), func(f string) bool {
		return !slices.Contains(tampering, f) && !slices.Contains(c.Tampering, f)
	})
	if len(flags) == 0 {
		return
	}
	stages[0].Flags = addFlags(stages[0].Flags, flags...)
	for _, r := range stages {
		if p := r.Primary(); c.Mode == Require && p != nil && p.Value != nil && *p.Value != 0 {
			p.Why = fmt.Sprintf("0 for what was found in the agent's own machine (integrity: require): %s; the verifier "+
				"said %v", strings.Join(flags, ", "), *p.Value)
			p.Value = new(float64)
		}
	}
}

// isWork reports whether the file at name is work of some stage.
func (c Claim) isWork(name string) bool {
	return slices.ContainsFunc(c.Work, func(w *Work) bool { return isWork(w.Paths, name, false) })
}

// without returns what a second opinion leaves out: names and what is in them, and what is not work
// but for the files of rest.
func (c Claim) without(names, rest []string) func(name string) bool {
	out, in := enclosing(names), setOf(rest)
	return func(name string) bool { // what is in a folder goes with it
		work := c.isWork(name)
		name = inJSON(name)
		return out(name) != "" || ours(name) || !work && !in[name]
	}
}

// oracle makes the reference from the oracle's work.
func (c Claim) oracle(ctx context.Context, say func(string, string, ...any) (record.Confirmation, error)) (
	record.Confirmation, error) {
	ref, err := c.oracleReference(ctx, "oracle")
	var cannot *sandbox.Unsupported
	switch {
	case errors.As(err, &cannot):
		return say(record.Inapplicable, "%v", cannot)
	case err != nil:
		return record.Confirmation{}, fmt.Errorf("the reference of the oracle: %w", err)
	case ref.Oracle != nil && *ref.Oracle < c.Reward: // this says something about the task
		return say(record.Inapplicable, "%v instead of %v in a fresh machine that has only the work: the task "+
			"needs more of the machine than its work, such as a running process or a sidecar", *ref.Oracle, c.Reward)
	case len(ref.Rest) > 0:
		return say(record.Confirmed, "with what the task's own solution changed outside of the paths that the task "+
			"names: %s", strings.Join(ref.Rest, ", "))
	}
	return say(record.Confirmed, "")
}

// oracleReference returns what is stored of the oracle's work, for which c.Reward is the full
// reward. If nothing is, it makes the reference.
func (c Claim) oracleReference(ctx context.Context, agent string) (ref reference, err error) {
	text, err := c.Reference(ctx, referenceKey(agent, c.Key), func(ctx context.Context) ([]byte, error) {
		changes, err := c.changes(ctx)
		if err != nil {
			return nil, err
		}
		ref := reference{Full: c.Reward, Odd: c.oddChanges(changes), Named: c.named(changes)}
		if agent == regraded {
			ref.Full = 0
		}
		rest := c.rest(changes)
		play := func(rest []string) (bool, error) {
			trace := newTrace()
			p, err := c.Play(ctx, Replay{Evidence: c.Evidence, Trace: &trace, Without: c.without(nil, rest)})
			if err != nil {
				return false, err
			}
			if full := p.Reward >= c.Reward; full || ref.Oracle == nil || p.Reward > *ref.Oracle {
				ref.Oracle, ref.Trace, ref.Rest = &p.Reward, trace, rest
				return full, nil
			}
			return false, nil
		}
		full, err := play(nil)
		if err == nil && !full {
			full, err = play(nil)
		}
		if err == nil && !full && len(rest) > 0 {
			if full, err = play(rest); err == nil && full { // most often it needs only some
				found := setOf(ref.Trace.Found)
				some := slices.DeleteFunc(slices.Clone(rest), func(name string) bool { return !found[name] })
				if len(some) > 0 && len(some) < len(rest) {
					_, err = play(some)
				}
			}
		}
		if err != nil {
			return nil, err
		}
		if agent == regraded && *ref.Oracle <= 0 {
			return nil, errNotSolved
		}
		return json.Marshal(ref)
	})
	if err == nil {
		err = ref.decode(text)
	}
	return ref, err
}

// regraded is in the key of a reference that was made of the oracle's work when it was graded again.
// What the oracle earns in its own machine is then not known.
const regraded = "regraded oracle"

var errNotSolved = errors.New("the oracle's work earns nothing in a fresh machine")

// reference returns the oracle's reference if there is one, else that of a verifier without work.
func (c Claim) reference(ctx context.Context, oracles ...string) (ref reference, err error) {
	var text []byte
	for _, agent := range oracles {
		if err == nil && text == nil {
			text, err = c.Reference(ctx, referenceKey(agent, c.Key), nil)
		}
	}
	if err == nil && text == nil {
		text, err = c.Reference(ctx, referenceKey("nop", c.Key), func(ctx context.Context) ([]byte, error) {
			ref := reference{Trace: newTrace()}
			if _, err := c.Play(ctx, Replay{Trace: &ref.Trace}); err != nil {
				return nil, err
			}
			return json.Marshal(ref)
		})
	}
	if err == nil {
		err = ref.decode(text)
	}
	if err != nil {
		return ref, fmt.Errorf("the reference of the verifier: %w", err)
	}
	return ref, nil
}
