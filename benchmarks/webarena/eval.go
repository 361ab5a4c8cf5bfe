package webarena

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"net/http"
)

// A Page is a browser's page as evaluators see it. Its errors are ours (the browser is gone, the
// context has ended), but for a *[ScriptError].
type Page interface {
	URL() string
	// Content is the whole document as HTML.
	Content(ctx context.Context) (string, error)
	// Eval evaluates an expression in the page's own world, waits for it if it is a promise, and
	// returns it as JSON; nil is undefined, and what JSON does not have. An exception is a
	// *ScriptError.
	Eval(ctx context.Context, expression string) (json.RawMessage, error)
}

// A ScriptError is an exception that a script threw in a page.
type ScriptError struct{ Text string }

func (e *ScriptError) Error() string { return "script: " + e.Text }

// A Missing says that there is no page to look at: what was wanted of it is not there.
type Missing struct{ Text string }

func (e *Missing) Error() string { return e.Text }

// A Browser is where an agent has been.
type Browser interface {
	// Active is the page that the agent left in front.
	Active() Page
	// Visit opens an address in a page of its own, beside the agent's and with its cookies, waits
	// until it is loaded and has settled, lends it to f, and closes it. It is a *[Missing] where
	// the address does not open though its site answers.
	Visit(ctx context.Context, address string, f func(Page) error) error
}

// A Judge is a model that grades. Its errors are the provider's.
type Judge interface {
	Ask(ctx context.Context, system, user string) (string, error)
}

// A Captioner answers a question about each of several pictures.
type Captioner interface {
	Ask(ctx context.Context, pictures []image.Image, question string) ([]string, error)
}

// A Doer asks sites for what only their administrators see; http.Client is one.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// An Evaluator grades tasks of one benchmark.
type Evaluator struct {
	Dialect   Dialect
	Sites     Sites
	HTTP      Doer
	Admin     Account   // of the shop's interface; zero: the published one
	Judge     Judge     // needed where an answer may be worded freely
	Captioner Captioner // needed where pictures are asked about
	// Picture reads a picture of a task that is no address; nil: there are none.
	Picture func(name string) (image.Image, error)
}

// A Part is what one way of grading gave.
type Part struct {
	Type  string  `json:"type"` // string_match, url_match, program_html, page_image_query
	Score float64 `json:"score"`
	Why   string  `json:"why,omitempty"` // what was missing; "" if nothing was
}

// Score grades: the product of all parts. answer is what the agent said last, nil if it has not
// said anything yet; then what asks for an answer is 0 and nobody is asked about it. A task may be
// solved without an answer, and the score is asked for after every step.
//
// Errors: *[ConfigError] is the task's fault; others are those of the browser, the judge or the
// sites. A judge who does not say what it was asked to say gives 0.
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
			break // nothing makes it more again
		}
	}
	return score, parts, nil
}
