package webagent

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/browsergym/action"
)

// Config configures an agent: which parts of an observation the model is shown, and how it is
// prompted. The zero value is the default agent, which is BrowserGym's GenericAgent in its usual
// configuration. The JSON form of a Config is the agent's options.
type Config struct {
	HTML       string `json:"html,omitempty" enum:"auto,none,pruned,full" doc:"The page as HTML: without scripts, styles and empty wrappers (pruned), or all of it (full). auto: pruned where the actions are MiniWoB's, else none. Default auto."`
	AX         *bool  `json:"ax,omitempty" doc:"The accessibility tree. Default true."`
	Screenshot string `json:"screenshot,omitempty" enum:"none,plain,marks" doc:"A screenshot, as it is or with the bids of what can be acted on drawn over it (marks). The model must take images. Default none."`
	Tabs       *bool  `json:"tabs,omitempty" doc:"The open tabs. Default: where the actions can change them, or there are several."`
	Focused    *bool  `json:"focused,omitempty" doc:"Which element has the focus. Default true."`
	Errors     *bool  `json:"errors,omitempty" doc:"Why the previous action failed. Default true."`
	Console    bool   `json:"console,omitempty" doc:"What the page wrote to its console, and requests that failed."`

	Visible     *bool  `json:"visible,omitempty" doc:"Tag elements that are visible. Default true."`
	Clickable   *bool  `json:"clickable,omitempty" doc:"Tag elements that can be clicked. Default true."`
	Coords      string `json:"coords,omitempty" enum:"none,center,box" doc:"Where elements are. Actions by coordinates need this or a screenshot. Default none."`
	OnlyVisible bool   `json:"only_visible,omitempty" doc:"Leave out elements that are not visible."`
	OnlyWithBid bool   `json:"only_with_bid,omitempty" doc:"Leave out elements without a bid."`
	OnlyMarked  bool   `json:"only_marked,omitempty" doc:"Leave out elements that are not in the set of marks."`

	History    *bool `json:"history,omitempty" doc:"What was done so far. Default true."`
	Actions    *bool `json:"past_actions,omitempty" doc:"In it, the actions. Default true."`
	Thoughts   *bool `json:"past_thoughts,omitempty" doc:"In it, the thoughts. Default true."`
	PastErrors bool  `json:"past_errors,omitempty" doc:"In it, why actions failed."`

	Thinking  *bool `json:"thinking,omitempty" doc:"Ask for a thought before the action. Default true."`
	Plan      bool  `json:"plan,omitempty" doc:"Ask for a plan, which is shown again in the next step."`
	Memory    bool  `json:"memory,omitempty" doc:"Ask for what is to be remembered, which is shown in the history."`
	Criticise bool  `json:"criticise,omitempty" doc:"Ask for a draft of the action and a critique of it."`
	Hints     *bool `json:"hints,omitempty" doc:"General advice on browsers. Default true."`
	Cautious  *bool `json:"cautious,omitempty" doc:"Advice to be careful with several calls, where they are allowed. Default true."`
	Abstract  *bool `json:"abstract_example,omitempty" doc:"An example of the answer's form. Default true."`
	Concrete  *bool `json:"concrete_example,omitempty" doc:"An example of an answer. Default true."`

	Subsets      []string `json:"actions,omitempty" min:"1" doc:"Sets of actions that are offered in place of all that the benchmark takes: bid, coord, nav, tab, chat, infeas, miniwob_all …"`
	Descriptions bool     `json:"descriptions,omitempty" doc:"Describe each action in a paragraph, not only by its signature."`
	Examples     bool     `json:"action_examples,omitempty" doc:"Examples of each action."`

	Instructions    string `json:"instructions,omitempty" doc:"Said after the goal, in every step."`
	MaxPromptTokens int    `json:"max_prompt_tokens,omitempty" min:"0" max:"10000000" doc:"About how long a request may be, at three bytes a token, 1000 at least: longer ones lose the ends of HTML and accessibility tree. Less where the model's window is smaller. Default 40000."`
	MaxRetry        *int   `json:"max_retry,omitempty" min:"-1" max:"100" doc:"How often in a step an answer without a valid action is asked for again. 0: never. Default 4."`

	System string       `json:"-"` // the system message; "" means [DefaultSystem]
	Params model.Params `json:"-"` // of each request
}

// DefaultSystem is the system message if none is configured.
const DefaultSystem = `You work a web browser for somebody, by yourself: nobody can answer questions or do anything for you while you work. In each step you are shown what there is to see, and choose what is done next.`

// Check returns an error for invalid options. Each message begins with the option's name.
func (c Config) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	one := func(option, value string, of ...string) {
		if value != "" && !slices.Contains(of, value) {
			bad("%s: want one of %s, not %q", option, strings.Join(of, ", "), value)
		}
	}
	one("html", c.HTML, "auto", "none", "pruned", "full")
	one("screenshot", c.Screenshot, "none", "plain", "marks")
	one("coords", c.Coords, "none", "center", "box")
	if err := action.Known(c.Subsets); err != nil {
		bad("actions: %w", err)
	}
	if n := c.MaxPromptTokens; n != 0 && (n < minPromptTokens || n > maxPromptTokens) {
		bad("max_prompt_tokens: want a number from %d to %d, not %d; leave it out for %d", minPromptTokens,
			maxPromptTokens, n, promptTokens)
	}
	if n := c.MaxRetry; n != nil && (*n < -1 || *n > maxRetries) {
		bad("max_retry: want a number from 0, which is never, to %d, not %d; leave it out for %d", maxRetries, *n,
			retries)
	}
	if n := len(c.Instructions); n > maxInstructions {
		bad("instructions: %d bytes are too many for what is said in every step; the most is %d", n, maxInstructions)
	}
	if !on(c.AX) && (c.HTML == "none") && (c.Screenshot == "" || c.Screenshot == "none") {
		bad("ax: false, with html: none and no screenshot, lets the model see nothing of the page; show it one of them")
	}
	return errors.Join(errs...)
}

// Defaults and bounds. Below the minimum not even the goal and the actions fit.
const (
	promptTokens, minPromptTokens, maxPromptTokens = 40_000, 1000, 10_000_000
	retries, maxRetries                            = 4, 100
	maxInstructions                                = 100 << 10
)

// on returns the value of a switch that is on by default.
func on(b *bool) bool { return b == nil || *b }
