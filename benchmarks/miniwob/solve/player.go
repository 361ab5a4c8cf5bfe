package solve

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// A player acts on a page.
type player struct {
	ctx  context.Context
	s    *agent.Session
	goal string
	page *node // as last seen
	last event.Browsed
}

func (p *player) look() error { return p.step("") }

// do performs an action whose arguments are strings or numbers. If the environment refuses it, do
// returns an error, because a script should know what works.
func (p *player) do(name string, args ...any) error {
	list := make([]string, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case string:
			list[i] = pyrepr.Repr(pyrepr.Str(a))
		case float64:
			list[i] = fmt.Sprintf("%.2f", a)
		default:
			list[i] = fmt.Sprint(a)
		}
	}
	code := name + "(" + strings.Join(list, ", ") + ")"
	if err := p.step(code); err != nil {
		return err
	}
	if p.last.Error != "" {
		first, _, _ := strings.Cut(p.last.Error, "\n")
		return fmt.Errorf("%s: %s", code, first)
	}
	return nil
}

func (p *player) step(code string) error {
	e, err := p.s.Step(p.ctx, event.New(event.FromAgent, event.Browse{Code: code}))
	if err != nil {
		return err
	}
	b, ok := e.Body.(event.Browsed)
	if !ok {
		return fmt.Errorf("%q was answered by %s, not by what there is to see", code, e.Body.Kind())
	}
	p.last = b
	p.page, err = parse(p.s.Log, p, b)
	return err
}

// click clicks an element by the bid it had in the last observation.
func (p *player) click(n *node) error {
	if n == nil {
		return fmt.Errorf("%q: what is to be clicked is not on the page", p.goal)
	}
	return p.do("click", n.attr["bid"])
}

// press clicks the first visible element that satisfies the conditions.
func (p *player) press(is ...func(*node) bool) error { return p.click(p.page.one(append(is, seen)...)) }

func (p *player) fill(n *node, text string) error {
	if n == nil {
		return fmt.Errorf("%q: what is to be filled in is not on the page", p.goal)
	}
	return p.do("fill", n.attr["bid"], text)
}

// submit presses the submit button.
func (p *player) submit() error {
	return p.press(tag("button", "input"), func(n *node) bool {
		return says("submit")(n) || n.attr["value"] == "Submit" || n.attr["id"] == "subbtn"
	})
}

// point clicks at the centre of an element, by its coordinates.
func (p *player) point(n *node) error {
	x, y, err := p.middle(n)
	if err != nil {
		return err
	}
	return p.do("mouse_click", x, y)
}

func (p *player) middle(n *node) (x, y float64, err error) {
	if n == nil || n.prop.Box == nil {
		return 0, 0, fmt.Errorf("%q: what is to be pointed at is not on the page", p.goal)
	}
	b := n.prop.Box
	return b[0] + b[2]/2, b[1] + b[3]/2, nil
}

// find matches a pattern against the goal and returns its groups.
func (p *player) find(pattern string) ([]string, error) {
	m := regexp.MustCompile(pattern).FindStringSubmatch(p.goal)
	if m == nil {
		return nil, fmt.Errorf("the goal %q is not of the kind that this script knows", p.goal)
	}
	return m[1:], nil
}

// quoted returns the texts in quotation marks in the goal.
func (p *player) quoted() []string {
	var out []string
	for i, s := range strings.Split(p.goal, `"`) {
		if i%2 == 1 {
			out = append(out, s)
		}
	}
	return out
}

// name returns the first text in quotation marks.
func (p *player) name() string {
	if q := p.quoted(); len(q) > 0 {
		return q[0]
	}
	return ""
}
