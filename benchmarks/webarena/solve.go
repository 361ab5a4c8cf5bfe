package webarena

import (
	"context"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/browsergym/pyrepr"
	"github.com/evalrun/evalrun/datasets"
)

// Solve returns an agent that goes to the reference address and gives the reference answer. Tasks
// that are graded in other ways have no known solution, because their configurations do not contain
// one.
func (b *Benchmark) Solve(t datasets.Task) (agent.Agent, error) {
	c, err := Parse(b.d, []byte(b.sites.expand(string(t.Data))))
	if err != nil {
		return nil, err
	}
	var codes []string
	for _, kind := range c.Eval.Types {
		switch kind {
		case "url_match":
			address, _, _ := strings.Cut(c.Eval.URL, or)
			codes = append([]string{"goto(" + pyrepr.Repr(pyrepr.Str(address)) + ")"}, codes...)
		case "string_match":
			text, ok := c.Eval.known(b.d)
			if !ok {
				return nil, fmt.Errorf("task %s: its rules do not tell an answer", t.ID)
			}
			codes = append(codes, "send_msg_to_user("+pyrepr.Repr(pyrepr.Str(text))+")")
		default:
			return nil, fmt.Errorf("task %s: it is graded by what the sites hold (%s), and how it is done is not known",
				t.ID, kind)
		}
	}
	return agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		for _, code := range codes {
			if _, err := s.Step(ctx, event.New(event.FromAgent, event.Browse{Code: code})); err != nil {
				return agent.Answer{}, err
			}
		}
		return agent.Answer{}, nil
	}), nil
}

// known returns an answer that should satisfy all rules.
func (e *Eval) known(d Dialect) (string, bool) {
	var parts []string
	for _, r := range e.Answers {
		switch {
		case !r.Many:
			return r.Text, true
		case r.Name == "must_include" || r.Name == "fuzzy_match":
			for _, w := range r.List {
				if d == Visual { // other dialects have no alternatives
					w, _, _ = strings.Cut(w, or)
				}
				parts = append(parts, w)
			}
		case r.Name == "one_of" && len(r.List) > 0:
			parts = append(parts, r.List[0])
		case r.Name != "must_exclude":
			return "", false
		}
	}
	return strings.Join(parts, ", "), len(parts) > 0
}
