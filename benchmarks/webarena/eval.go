package webarena

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"net/http"
)

// A Page is a browser page as evaluators see it. Its errors are infrastructure errors (the browser
// is gone, the context has ended), except *[ScriptError].
type Page interface {
	URL() string
	// Content returns the whole document as HTML.
	Content(ctx context.Context) (string, error)
	// Eval evaluates an expression in the page's own JavaScript world, awaits the value if it is a
	// promise, and returns it as JSON. It returns nil for undefined and for values that JSON cannot
	// represent. An exception is returned as a *ScriptError.
	Eval(ctx context.Context, expression string) (json.RawMessage, error)
}

// A ScriptError is an exception that a script threw in a page.
type ScriptError struct{ Text string }

func (e *ScriptError) Error() string { return "script: " + e.Text }

// A Missing reports that the page to evaluate does not exist.
type Missing struct{ Text string }

func (e *Missing) Error() string { return e.Text }

// A Browser is the browser that an agent has used.
type Browser interface {
	// Active returns the page that was active when the agent stopped.
	Active() Page
	// Visit opens an address in a new page that shares the agent's cookies, waits until it has
	// loaded and settled, passes it to f, and closes it. It returns a *[Missing] if the address
	// does not open although its site responds.
	Visit(ctx context.Context, address string, f func(Page) error) error
}

// A Judge is a model that grades answers. Its errors are the provider's.
type Judge interface {
	Ask(ctx context.Context, system, user string) (string, error)
}

// A Captioner answers a question about each of several pictures.
type Captioner interface {
	Ask(ctx context.Context, pictures []image.Image, question string) ([]string, error)
}

// A Doer sends requests that need administrator access to a site. *http.Client implements it.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// An Evaluator grades the tasks of one benchmark.
type Evaluator struct {
	Dialect   Dialect
	Sites     Sites
	HTTP      Doer
	Admin     Account   // for the shop's REST API; zero means the published account
	Judge     Judge     // required for answers that may be phrased freely
	Captioner Captioner // required for questions about pictures
	// Picture reads a task's picture that is a file name rather than an address. It may be nil.
	Picture func(name string) (image.Image, error)
}

// A Part is the result of one evaluation.
type Part struct {
	Type  string  `json:"type"` // string_match, url_match, program_html, page_image_query
	Score float64 `json:"score"`
	Why   string  `json:"why,omitempty"` // what was missing; "" if nothing was
}

// Score grades a task: the result is the product of all parts. answer is the agent's last message,
// or nil if there is none yet; evaluations that need an answer then score 0 and no judge is called.
// A task may be solved without an answer, and Score is called after every step.
//
// A *[ConfigError] is the task's fault; other errors come from the browser, the judge or the sites.
// A judge whose reply cannot be understood scores 0.
func (e *Evaluator) Score(ctx context.Context, c *Config, b Browser, answer *string) (float64, []Part, error) {
	score := 1.0
	var parts []Part
	for _, t := range c.Eval.Types {
		p := Part{Type: t}
		var err error
		switch t {
		case "string_match":
			if answer == nil {
				p.Why = "no answer"
				break
			}
			p.Score, p.Why, err = e.answer(ctx, c, *answer)
		case "url_match":
			p.Score, p.Why, err = e.url(c, b.Active().URL())
		case "program_html":
			p.Score, p.Why, err = e.html(ctx, c, b)
		case "page_image_query":
			p.Score, p.Why, err = e.pictures(ctx, c, b)
		default:
			err = wrong("eval_type %q is not known", t)
		}
		if none := new(Missing); errors.As(err, &none) {
			p.Score, p.Why, err = 0, none.Text, nil
		}
		if err != nil {
			return 0, parts, fmt.Errorf("%s: %w", t, err)
		}
		parts = append(parts, p)
		if score *= p.Score; score == 0 {
			break // the product stays 0
		}
	}
	return score, parts, nil
}
