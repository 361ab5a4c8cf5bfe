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

// An oracle's actions are the same as an agent's, except that element ids and values that are not
// known before the page is open are written as placeholders in angle brackets:
//
//	click(<button "Send">)                      first element with this role and name
//	click(<button "Buy" after "Watering can">)  first one below a match of that pattern (RE2)
//	fill(<textbox "Code">, <code>)              a value defined by take
//	fill(<textbox "Code">, 'room <code>')       a value within quotes
//
// Elements are looked up in the accessibility tree. A value is extracted from the goal, or else
// from the first page that shows it. Patterns are matched against the text of the goal and against
// the page's accessibility tree as text, as agents see it. A value inserted into a pattern matches
// literally.

var (
	valueForm   = regexp.MustCompile(`^<([A-Za-z_]\w*)>`)
	elementForm = regexp.MustCompile(`^<([A-Za-z]+) +"((?:[^"\\]|\\.)*)"(?: +after +"((?:[^"\\]|\\.)*)")? *>`)
)

// A scene resolves placeholders.
type scene interface {
	has(name string) bool // reports whether a value of that name is defined
	value(name string) (string, error)
	element(role, name string, after *regexp.Regexp) (string, error)
}

// fillIn replaces the placeholders of an action.
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

// placeholder resolves the placeholder at the start of code. n is its length; n is 0 if, within
// quotes, code does not start with a placeholder.
func placeholder(code string, quote byte, s scene) (text string, n int, err error) {
	// <b> in a string is HTML
	if m := valueForm.FindStringSubmatch(code); m != nil && (quote == 0 || s.has(m[1])) {
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

// resolve replaces the values in the text of a placeholder, or in a pattern.
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

// sound checks an action as far as possible without a page.
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

// soundTake checks the pattern of a value.
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

// unseen is a scene used for validation, before there is a page.
type unseen struct{ o *Oracle }

func (u unseen) has(name string) bool { return u.o.Take[name] != "" }

func (u unseen) value(name string) (string, error) {
	if _, ok := u.o.Take[name]; !ok {
		return "", fmt.Errorf("<%s> is not among oracle.take", name)
	}
	return "x", nil
}

func (unseen) element(string, string, *regexp.Regexp) (string, error) { return "1", nil }

// A Guide resolves the placeholders in an oracle's actions while it moves from page to page.
type Guide struct {
	take  map[string]string
	goal  string
	known map[string]string
	page  string // as last seen
}

// Guide returns a Guide for the given goal.
func (o Oracle) Guide(goal string) *Guide {
	return &Guide{take: o.Take, goal: goal, known: map[string]string{}}
}

// See extracts values from a page, given as the text of its accessibility tree. Because patterns
// may contain values, See repeats until it finds nothing new.
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
				continue // the pattern contains a value that is not known yet
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

// Fill returns the action with its placeholders resolved for the page last seen.
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

// element finds an element in the page's text. Each line is "[bid] role 'name'", followed by
// properties.
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

// offered lists the elements of the role, or those of any role if there are none.
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

// Play performs the actions in a browser until there are no more or the episode ends.
func (o Oracle) Play(ctx context.Context, s *agent.Session) error {
	g := o.Guide(s.Goal.Text())
	for i, a := range append([]string{""}, o.Actions...) { // the first step only observes
		code, err := g.Fill(a)
		if err != nil {
			return fmt.Errorf("action %d, %s: %w", i, a, err)
		}
		// actions are expected to end the episode
		if err := g.step(ctx, s, code); errors.Is(err, agent.ErrDone) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// step performs an action, or only observes if there is none, and reads the resulting page. If the
// action fails, the oracle has failed.
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
