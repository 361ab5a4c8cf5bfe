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

// openTime is how long a page may take to load: a machine with many trials is busy, and that is to decide no score.
const openTime = 15 * time.Second

// lookTime bounds one look at a page by an expression of the task's.
const lookTime = 5 * time.Second

// A check is what became of one part of a grade: a value from 0 to 1, and why it is not 1.
type check struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Why   string  `json:"why,omitempty"`
}

// names of the checks that have none of their own.
const (
	checkURL    = "url"
	checkAnswer = "answer"
)

// graded is a task in a browser that is judged from outside, after each step: browsergym's Task.
type graded struct {
	b       *Browser
	goal    string
	starts  []string // addresses
	origins []string // whose pages are looked at: an agent can open pages of its own making
	g       *Grade
	url     *regexp.Regexp // nil: any
	answer  score.Scorer   // nil: no answer is asked for
}

func newGraded(t *Task, base string, seed uint32) (*graded, error) {
	s := t.stages()[0]
	p := &graded{b: t.Browser, goal: s.Instruction, starts: addresses(t.Browser, base, seed), origins: t.Browser.origins(), g: s.Grade}
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

// addresses are those of the start pages, with the seed in its place.
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
	return browsergym.Settings{Width: b.Viewport.Width, Height: b.Viewport.Height, SlowMo: time.Second, Timeout: openTime, Locale: b.Locale, TimeZone: b.TimeZone}
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
		p.origins = append(p.origins, origin(page.URL())) // where it was led to, before any agent acts
	}
	return browsergym.Start{Goal: browsergym.Text(p.goal), Scale: p.b.Scale, Info: map[string]any{}}, nil
}

// Validate looks at the pages, the address and what was said. The task is done when all is as it should be, or when the agent has spoken to the user:
// nobody would answer.
func (p *graded) Validate(ctx context.Context, page *cdp.Page, chat []browsergym.Message) (v browsergym.Verdict, err error) {
	var checks []check
	for _, name := range sorted(p.g.Success) {
		c, err := p.look(ctx, page, p.g.Success[name])
		if err != nil {
			return v, err
		}
		c.Name = name
		checks = append(checks, c)
	}
	if p.url != nil {
		c := check{Name: checkURL, Value: 1}
		if u := page.URL(); origin(u) == "" || !p.url.MatchString(u) {
			c.Value, c.Why = 0, "the page is "+score.Clip(u, 300)
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

// reward is the lowest of the values, or their mean.
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

// lastSaid is what the agent said last; the first message is our greeting.
func lastSaid(chat []browsergym.Message) (text string, ok bool) {
	for i, m := range slices.Backward(chat) {
		if i > 0 && m.Role == browsergym.Assistant {
			return m.Text, true
		}
	}
	return "", false
}

// look evaluates an expression in the pages of the task's own sites; the best value counts. An agent can open pages whose content it chooses, and in
// those nothing is asked.
func (p *graded) look(ctx context.Context, active *cdp.Page, expression string) (best check, err error) {
	best.Why = "no page of the task is open"
	pages := slices.Clone(active.Context().Pages())
	slices.SortStableFunc(pages, func(a, b *cdp.Page) int { // the active one first: of equal values its reason is told
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
		if o := origin(page.URL()); o == "" || !slices.Contains(p.origins, o) {
			continue
		}
		c, err := evaluate(ctx, page, expression)
		if err != nil {
			return best, err
		}
		if !asked || c.Value > best.Value {
			best, asked = c, true
		}
	}
	return best, nil
}

// evaluate asks one page. What it answers, or that it does not, is a value; an error is the browser's.
func evaluate(ctx context.Context, page *cdp.Page, expression string) (check, error) {
	short, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	var got string
	// As text, since JSON has no NaN. An expression can end the function around it, but its author gains nothing by that.
	err := page.Evaluate(short, "(async () => { const v = await (\n"+expression+
		"\n); return typeof v === 'boolean' || typeof v === 'number' ? String(v) : typeof v; })()", &got)
	var threw *cdp.Thrown
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return check{}, context.Cause(ctx)
	case errors.Is(err, cdp.ErrClosed):
		return check{}, err
	case errors.As(err, &threw):
		line, _, _ := strings.Cut(threw.Text, "\n")
		return check{Why: score.Clip(line, 300)}, nil
	case short.Err() != nil:
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

// contracted is a task whose page keeps MiniWoB++'s contract. Unlike the published tasks it may go on in other tabs: the page that it began with is
// asked, whichever is in front. A page that defines core.message is told what the agent says.
type contracted struct {
	*browsergym.MiniWoB
	b     *Browser
	first *cdp.Page
	heard int // messages of the chat
}

func newContracted(t *Task, base string, seed uint32) *contracted {
	start := addresses(t.Browser, base, seed)[0]
	dir, name := path.Split(strings.TrimPrefix(start, base))
	return &contracted{b: t.Browser, MiniWoB: &browsergym.MiniWoB{Name: strings.TrimSuffix(name, ".html"), Base: base + dir, Seed: seed}}
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
	if p.b.Viewport != (Viewport{}) {
		s.Scale = 1
	}
	if p.b.Scale != 0 {
		s.Scale = p.b.Scale
	}
	return s, err
}

func (p *contracted) Validate(ctx context.Context, _ *cdp.Page, chat []browsergym.Message) (browsergym.Verdict, error) {
	if p.first.Closed() {
		return browsergym.Verdict{Done: true, Info: map[string]any{"error": "the page that the task began with was closed"}}, nil
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
