package tasks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// openTime is how long a page may take to load. It is generous because a machine with many trials
// is slow, and load must not affect scores.
const openTime = 15 * time.Second

const (
	lookTime = 5 * time.Second // limit for a task's expression on a page that responds
	slowPage = time.Second     // a page that needs longer for a trivial expression lacks CPU time
)

// A check is the result of one part of a grade: a value from 0 to 1, and the reason if it is not 1.
type check struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Why   string  `json:"why,omitempty"`
	Threw bool    `json:"threw,omitempty"` // the expression failed, so there is no value
}

// Names of the checks that are not expressions.
const (
	checkURL    = "url"
	checkAnswer = "answer"
)

// graded is a browser task that is judged from outside the page after each step. It implements
// browsergym's Task.
type graded struct {
	b      *Browser
	goal   string
	starts []string // addresses
	// only their pages are evaluated: an agent can open pages with content it made up
	origins []string
	seeds   []seeded // of the start pages
	g       *Grade
	url     *regexp.Regexp // nil means any address
	answer  score.Scorer   // nil means that no answer is required
}

func newGraded(t *Task, base string, seed uint32) (*graded, error) {
	s := t.stages()[0]
	p := &graded{b: t.Browser, goal: s.Instruction, starts: addresses(t.Browser, base, seed),
		origins: t.Browser.origins(), seeds: seeds(t.Browser, base, seed), g: s.Grade}
	if base != "" {
		p.origins = append(p.origins, origin(base))
	}
	var err error
	if p.g.URL != "" {
		if p.url, err = regexp.Compile(p.g.URL); err != nil {
			return nil, err
		}
	}
	if len(p.g.Answer) > 0 {
		p.answer, err = p.g.spec().Compile()
	}
	return p, err
}

// addresses returns the addresses of the start pages, with the seed inserted.
func addresses(b *Browser, base string, seed uint32) []string {
	var out []string
	for _, s := range b.starts() {
		s = strings.ReplaceAll(s, "{seed}", strconv.FormatUint(uint64(seed), 10))
		if !remote(s) {
			s = base + strings.TrimPrefix(s, "/")
		}
		out = append(out, s)
	}
	return out
}

func (b *Browser) settings() browsergym.Settings {
	return browsergym.Settings{Width: b.Viewport.Width, Height: b.Viewport.Height, SlowMo: time.Second,
		Timeout: openTime, Locale: b.Locale, TimeZone: b.TimeZone}
}

func (p *graded) Settings() browsergym.Settings { return p.b.settings() }

func (p *graded) Setup(ctx context.Context, page *cdp.Page) (browsergym.Start, error) {
	for i, address := range p.starts {
		if i > 0 {
			var err error
			if page, err = page.Context().NewPage(ctx); err != nil {
				return browsergym.Start{}, err
			}
		}
		if err := page.Goto(ctx, address); err != nil {
			return browsergym.Start{}, fmt.Errorf("opening %s: %w", address, err)
		}
		p.origins = append(p.origins, origin(page.URL())) // after redirects, before any agent acts
	}
	return browsergym.Start{Goal: browsergym.Text(p.goal), Scale: p.b.Scale, Info: map[string]any{}}, nil
}

// Validate checks the pages, the address and the agent's messages. The task is done when every
// check passes, or when the agent has sent a message to the user, because nobody would reply.
func (p *graded) Validate(ctx context.Context, page *cdp.Page,
	chat []browsergym.Message) (v browsergym.Verdict, err error) {
	checks, err := p.look(ctx, page)
	if err != nil {
		return v, err
	}
	if p.url != nil {
		c := check{Name: checkURL, Value: 1}
		if u := page.URL(); origin(u) == "" || !p.url.MatchString(u) {
			c.Value, c.Why = 0, "the page is "+score.Clip(u, 300)
		} else if p.other(page) {
			c.Value, c.Why = 0, otherSeed
		}
		checks = append(checks, c)
	}
	said, spoke := lastSaid(chat)
	if p.answer != nil {
		c := check{Name: checkAnswer, Why: "no answer"}
		if spoke {
			m := p.answer(said)
			c.Value, c.Why = m.Value, m.Why
		}
		checks = append(checks, c)
	}
	v.Reward = reward(checks, p.g.Partial)
	v.Done = spoke || v.Reward == 1
	v.Info = map[string]any{"checks": checks}
	return v, nil
}

func (p *graded) Teardown(context.Context) error { return nil }

// reward returns the lowest value, or the mean if partial is set.
func reward(checks []check, partial bool) float64 {
	low, sum := 1.0, 0.0
	for _, c := range checks {
		low, sum = min(low, c.Value), sum+c.Value
	}
	if partial {
		return sum / float64(len(checks))
	}
	return low
}

// lastSaid returns the agent's last message. The first message of the chat is our greeting.
func lastSaid(chat []browsergym.Message) (text string, ok bool) {
	for i, m := range slices.Backward(chat) {
		if i > 0 && m.Role == browsergym.Assistant {
			return m.Text, true
		}
	}
	return "", false
}

// look evaluates the expressions in pages of the task's own sites. Other pages are not evaluated,
// because an agent can open pages whose content it controls. Results are not combined across pages
// either: a condition that something did not happen holds in any newly opened page. So the page
// with the highest value counts; only if the task itself starts with several pages may each
// expression hold in a different page.
func (p *graded) look(ctx context.Context, active *cdp.Page) (best []check, err error) {
	names := sorted(p.g.Success)
	if len(names) == 0 {
		return nil, nil
	}
	pages := slices.Clone(active.Context().Pages())
	why := "no page of the task is open"
	if slices.ContainsFunc(pages, p.other) {
		why = otherSeed
	}
	for _, name := range names {
		best = append(best, check{Name: name, Why: why})
	}
	// the active page first: among equal values its reason is reported
	slices.SortStableFunc(pages, func(a, b *cdp.Page) int {
		switch {
		case a == active && b != active:
			return -1
		case b == active && a != active:
			return 1
		}
		return 0
	})
	asked := false
	for _, page := range pages {
		if o := origin(page.URL()); o == "" || !slices.Contains(p.origins, o) || p.other(page) {
			continue
		}
		checks := make([]check, len(names))
		for i, name := range names {
			if checks[i], err = evaluate(ctx, page, p.g.Success[name]); err != nil {
				return nil, err
			}
			checks[i].Name = name
			if asked && len(p.starts) > 1 && checks[i].Value > best[i].Value {
				best[i] = checks[i]
			}
		}
		if !asked || len(p.starts) == 1 && reward(checks, p.g.Partial) > reward(best, p.g.Partial) {
			best, asked = checks, true
		}
	}
	return best, nil
}

// evaluate evaluates an expression in one page. A result, or the lack of one, is returned as a
// check; an error means that the browser failed.
func evaluate(ctx context.Context, page *cdp.Page, expression string) (check, error) {
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	// The value is returned as text, because JSON has no NaN. An expression could break out of the
	// surrounding function, but the task's author would gain nothing from that.
	got, err := patiently(ctx, page, func() (got string, err error) {
		err = page.Evaluate(short, "(async () => { const v = await (\n"+expression+
			"\n); return typeof v === 'boolean' || typeof v === 'number' ? String(v) : typeof v; })()", &got)
		return got, err
	})
	var threw *cdp.Thrown
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return check{}, context.Cause(ctx)
	case errors.Is(err, cdp.ErrClosed):
		return check{}, err
	case errors.As(err, &threw):
		line, _, _ := strings.Cut(threw.Text, "\n")
		return check{Why: score.Clip(line, 300), Threw: true}, nil
	case errors.Is(err, errNoAnswer):
		return check{Why: fmt.Sprintf("the page did not answer within %v", lookTime)}, nil
	default:
		return check{Why: score.Clip(err.Error(), 300)}, nil
	}
	x, err := strconv.ParseFloat(got, 64)
	switch {
	case got == "true":
		return check{Value: 1}, nil
	case got == "false":
		return check{Why: "it is false"}, nil
	case err != nil:
		return check{Why: fmt.Sprintf("it is of the type %s; want true, false or a number from 0 to 1", got)}, nil
	case math.IsNaN(x) || x < 0 || x > 1:
		return check{Why: fmt.Sprintf("it is %v; want a number from 0 to 1", x)}, nil
	case x < 1:
		return check{Value: x, Why: fmt.Sprintf("it is %v", x)}, nil
	}
	return check{Value: 1}, nil
}

// errNoAnswer means that an expression did not return although its page responds.
var errNoAnswer = errors.New("no answer")

// patiently waits up to lookTime for an expression's value, and longer if the page lacks CPU time,
// which it detects with a trivial expression. If the page does not respond at all, the step's limit
// ends the wait.
func patiently(ctx context.Context, page *cdp.Page, ask func() (string, error)) (string, error) {
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		text, err := ask()
		answers <- answer{text, err}
	}()
	wait := lookTime
	for {
		select {
		case a := <-answers:
			return a.text, a.err
		case <-time.After(wait):
		}
		asked := time.Now()
		if err := page.Evaluate(ctx, "0", nil); err != nil {
			return "", err
		}
		if time.Since(asked) < slowPage {
			return "", errNoAnswer
		}
		wait = min(2*time.Since(asked), lookTime)
	}
}

// contracted is a task whose page implements MiniWoB++'s contract. Unlike the published tasks it
// may use other tabs: the page that the episode started with is always the one that is evaluated,
// even if it is not active. If a page defines core.message, it receives the agent's messages.
type contracted struct {
	*browsergym.MiniWoB
	b     *Browser
	first *cdp.Page
	heard int // number of chat messages already passed on
}

func newContracted(t *Task, base string, seed uint32) *contracted {
	start := addresses(t.Browser, base, seed)[0]
	dir, name := path.Split(strings.TrimPrefix(start, base))
	return &contracted{b: t.Browser, MiniWoB: &browsergym.MiniWoB{Name: strings.TrimSuffix(name, ".html"),
		Base: base + dir, Seed: seed}}
}

func (p *contracted) Settings() browsergym.Settings {
	s := p.MiniWoB.Settings()
	if v := p.b.Viewport; v != (Viewport{}) {
		s.Width, s.Height = v.Width, v.Height
	}
	s.Locale, s.TimeZone, s.Timeout = p.b.Locale, p.b.TimeZone, openTime
	return s
}

func (p *contracted) Setup(ctx context.Context, page *cdp.Page) (browsergym.Start, error) {
	p.first, p.heard = page, 1
	s, err := p.MiniWoB.Setup(ctx, page)
	if err == nil && !slices.ContainsFunc(s.Goal,
		func(i browsergym.Item) bool { return i.Type != "text" || strings.TrimSpace(i.Text) != "" }) {
		err = errNoGoal
	}
	if p.b.Viewport != (Viewport{}) {
		s.Scale = 1
	}
	if p.b.Scale != 0 {
		s.Scale = p.b.Scale
	}
	return s, err
}

// errNoGoal means that a page under the contract does not state a goal.
var errNoGoal = errors.New("the page says no goal: write it into #query before genProblem returns")

func (p *contracted) Validate(ctx context.Context, _ *cdp.Page, chat []browsergym.Message) (browsergym.Verdict, error) {
	if p.first.Closed() {
		return browsergym.Verdict{Done: true,
			Info: map[string]any{"error": "the page that the task began with was closed"}}, nil
	}
	if left, err := p.left(ctx); left || err != nil {
		return browsergym.Verdict{Done: left,
			Info: map[string]any{"error": "the page was loaded again, which makes another problem"}}, err
	}
	for ; p.heard < len(chat); p.heard++ {
		if m := chat[p.heard]; m.Role == browsergym.Assistant {
			const tell = `text => typeof core === "object" && typeof core.message === "function" ? void core.message(text) : undefined`
			if err := p.first.Call(ctx, tell, nil, m.Text); err != nil && !errors.As(err, new(*cdp.Thrown)) {
				return browsergym.Verdict{}, err
			}
		}
	}
	return p.MiniWoB.Validate(ctx, p.first, chat)
}

// left reports whether the page shows another document than the one the episode started with. A
// reloaded page would generate a new problem that does not depend on the seed, as often as the
// agent likes.
func (p *contracted) left(ctx context.Context) (bool, error) {
	if p.first.URL() != p.Base+p.Name+".html" { // the contract itself ends the episode in this case
		return false, nil
	}
	same := true
	err := p.first.Call(ctx, `() => typeof core === "object" && core[Symbol.for("evalrun")] === true`, &same)
	return !same, err
}
