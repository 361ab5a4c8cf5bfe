package tasks

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/webtext"
	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/obs"
	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// An oracle's actions are an agent's, but that marks of elements and values that are known only
// when the page is there stand in angle brackets:
//
//	click(<button "Send">)                           the first element of this role and name, as the accessibility tree has them
//	click(<button "Buy" after "Watering can">)       the first below what fits that pattern (RE2)
//	fill(<textbox "Code">, <code>)                   a value that take names; within quotes, too: 'room <code>'
//
// A value is taken from the goal, else from the first page that shows it. What patterns are matched
// against is the goal's text and the page's accessibility tree as text, as agents see it; a value
// in a pattern stands for itself.

var (
	valueForm   = regexp.MustCompile(`^<([A-Za-z_]\w*)>`)
	elementForm = regexp.MustCompile(`^<([A-Za-z]+) +"((?:[^"\\]|\\.)*)"(?: +after +"((?:[^"\\]|\\.)*)")? *>`)
)

// A scene is what placeholders are resolved by.
type scene interface {
	has(name string) bool // whether there is a value of that name
	value(name string) (string, error)
	element(role, name string, after *regexp.Regexp) (string, error)
}

// fillIn resolves the placeholders of an action.
func fillIn(code string, s scene) (string, error) {
	var out strings.Builder
	quote := byte(0)
	for i := 0; i < len(code); i++ {
		c := code[i]
		switch {
		case c == '\\' && quote != 0 && i+1 < len(code):
			out.WriteString(code[i : i+2])
			i++
			continue
		case (c == '"' || c == '\'') && quote == 0:
			quote = c
		case c == quote:
			quote = 0
		case c == '<':
			text, n, err := placeholder(code[i:], quote, s)
			if err != nil {
				return "", err
			}
			if n > 0 {
				out.WriteString(text)
				i += n - 1
				continue
			}
		}
		out.WriteByte(c)
	}
	return out.String(), nil
}

// placeholder resolves what code begins with; n is its length, 0 within quotes where it is none.
func placeholder(code string, quote byte, s scene) (text string, n int, err error) {
	if m := valueForm.FindStringSubmatch(code); m != nil && (quote == 0 || s.has(m[1])) { // <b> in a text is HTML
		v, err := s.value(m[1])
		if err != nil {
			return "", 0, err
		}
		if quote == 0 {
			return pyrepr.Repr(pyrepr.Str(v)), len(m[0]), nil
		}
		return strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, string(quote), `\`+string(quote)).Replace(v),
			len(m[0]), nil
	}
	if quote != 0 {
		return "", 0, nil
	}
	m := elementForm.FindStringSubmatch(code)
	if m == nil {
		return "", 0, fmt.Errorf(`%q: want a value, <name>, or an element, <button "Send"> or <button "Buy" after "Hammer">`, code)
	}
	name, err := resolve(escaped.ReplaceAllString(m[2], "$1"), s, func(v string) string { return v })
	if err != nil {
		return "", 0, err
	}
	after, err := resolve(strings.ReplaceAll(m[3], `\"`, `"`), s, regexp.QuoteMeta)
	if err != nil {
		return "", 0, err
	}
	re, err := regexp.Compile(after)
	if err != nil {
		return "", 0, err
	}
	bid, err := s.element(m[1], name, re)
	return pyrepr.Repr(pyrepr.Str(bid)), len(m[0]), err
}

var (
	valueWithin = regexp.MustCompile(`<([A-Za-z_]\w*)>`)
	escaped     = regexp.MustCompile(`\\(.)`)
)

// resolve resolves the values in a text of a placeholder, or in a pattern.
func resolve(text string, s scene, quote func(string) string) (string, error) {
	var failed error
	out := valueWithin.ReplaceAllStringFunc(text, func(m string) string {
		v, err := s.value(m[1 : len(m)-1])
		if err != nil && failed == nil {
			failed = err
		}
		return quote(v)
	})
	return out, failed
}

// sound returns what is wrong with an action, as far as that can be told without a page.
func (o *Oracle) sound(code string, set *action.Set) error {
	text, err := fillIn(code, unseen{o})
	if err != nil {
		return err
	}
	calls, err := set.Parse(text)
	if err != nil {
		return err
	}
	for _, c := range calls {
		if _, err := set.Bind(c); err != nil {
			return err
		}
	}
	return nil
}

// soundTake returns what is wrong with a value's pattern.
func (o *Oracle) soundTake(name string) error {
	if !valueForm.MatchString("<" + name + ">") {
		return errors.New("want a name of letters, digits and _")
	}
	pattern, err := resolve(o.Take[name], unseen{o}, regexp.QuoteMeta)
	if err != nil {
		return err
	}
	re, err := regexp.Compile(pattern)
	if err == nil && re.NumSubexp() != 1 {
		err = errors.New("want a pattern with one group in parentheses, which is the value")
	}
	return err
}

// unseen is a scene before there is a page.
type unseen struct{ o *Oracle }

func (u unseen) has(name string) bool { return u.o.Take[name] != "" }

func (u unseen) value(name string) (string, error) {
	if _, ok := u.o.Take[name]; !ok {
		return "", fmt.Errorf("<%s> is not among oracle.take", name)
	}
	return "x", nil
}

func (unseen) element(string, string, *regexp.Regexp) (string, error) { return "1", nil }

// A Guide resolves what stands in angle brackets in an oracle's actions, from page to page.
type Guide struct {
	take  map[string]string
	goal  string
	known map[string]string
	page  string // as it was seen last
}

// Guide begins with a goal.
func (o Oracle) Guide(goal string) *Guide {
	return &Guide{take: o.Take, goal: goal, known: map[string]string{}}
}

// See takes what there is to take of a page: its accessibility tree as text. Patterns may hold
// values, so it goes on as long as there is something new.
func (g *Guide) See(page string) error {
	g.page = page
	for more := true; more; {
		more = false
		for _, name := range sorted(g.take) {
			if _, ok := g.known[name]; ok {
				continue
			}
			pattern, err := resolve(g.take[name], g, regexp.QuoteMeta)
			if err != nil {
				continue // a value in it is not known yet
			}
			re, err := regexp.Compile(pattern)
			if err != nil {
				return fmt.Errorf("oracle.take: %s: %w", name, err)
			}
			for _, text := range []string{g.goal, page} {
				if m := re.FindStringSubmatch(text); len(m) == 2 {
					g.known[name], more = m[1], true
					break
				}
			}
		}
	}
	return nil
}

// Fill is an action for the page that was seen last.
func (g *Guide) Fill(action string) (string, error) { return fillIn(action, g) }

func (g *Guide) has(name string) bool { return g.take[name] != "" }

func (g *Guide) value(name string) (string, error) {
	v, ok := g.known[name]
	if !ok {
		return "", fmt.Errorf("<%s> is not known: neither the goal nor a page so far shows what fits %q", name,
			g.take[name])
	}
	return v, nil
}

// element finds an element by the page's text: a line is "[bid] role 'name'", properties after it.
func (g *Guide) element(role, name string, after *regexp.Regexp) (string, error) {
	missing := fmt.Sprintf("the page has no %s %q", role, name)
	text := g.page
	if after.String() != "" {
		at := after.FindStringIndex(text)
		if at == nil {
			return "", fmt.Errorf("the page has nothing that fits %q", after)
		}
		missing += fmt.Sprintf(" below %q", text[at[0]:at[1]])
		_, text, _ = strings.Cut(text[at[1]:], "\n")
	}
	want := "] " + role + " " + pyrepr.Repr(pyrepr.Str(name))
	for line := range strings.Lines(text) {
		bid, _, ok := strings.Cut(strings.TrimSpace(line), want)
		if ok && strings.HasPrefix(bid, "[") && !strings.Contains(bid, "]") {
			return bid[1:], nil
		}
	}
	return "", errors.New(missing + "; it has " + offered(text, role))
}

var named = regexp.MustCompile(`(?m)^\s*\[\w+\] (\w+) ('(?:[^'\\]|\\.)+'|"(?:[^"\\]|\\.)+")`)

// offered lists what there is to choose from: elements of the role, or of any where there are none.
func offered(page, role string) string {
	const most = 15
	var same, all []string
	for _, m := range named.FindAllStringSubmatch(page, -1) {
		all = append(all, m[1]+" "+m[2])
		if m[1] == role {
			same = append(same, m[1]+" "+m[2])
		}
	}
	if len(same) == 0 {
		same = all
	}
	switch {
	case len(same) == 0:
		return "no elements with names"
	case len(same) > most:
		same = append(same[:most], "…")
	}
	return score.Clip(strings.Join(same, ", "), 1000)
}

// Play plays the actions in a browser, until there are no more or the episode is over.
func (o Oracle) Play(ctx context.Context, s *agent.Session) error {
	g := o.Guide(s.Goal.Text())
	for i, a := range append([]string{""}, o.Actions...) { // the first only looks
		code, err := g.Fill(a)
		if err != nil {
			return fmt.Errorf("action %d, %s: %w", i, a, err)
		}
		if err := g.step(ctx, s, code); errors.Is(err, agent.ErrDone) { // which is what actions are for
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// step acts, or only looks, and reads what there is to see. An action that fails is the known
// solution's failure.
func (g *Guide) step(ctx context.Context, s *agent.Session, code string) error {
	e := event.New(event.FromAgent, event.Browse{Code: code})
	e.Actor = s.Actor
	answer, err := s.Step(ctx, e)
	if err != nil {
		return err
	}
	b, ok := answer.Body.(event.Browsed)
	switch {
	case !ok:
		return fmt.Errorf("the oracle's environment has no browser: it answers %s", answer.Body.Kind())
	case b.Error != "":
		return fmt.Errorf("%s: %s", code, b.Error)
	}
	text, _, err := webtext.Look(s.Log, b).AX(ctx, obs.DefaultAX())
	if err != nil {
		return err
	}
	return g.See(text)
}
