package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/webtext"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/pyrepr"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Config says how a task is played. What has no default is required.
type Config struct {
	Host    benchmarks.Host
	Browser browsergym.Opener                          // where its context comes from: browsers.Pool.For
	Task    func(seed uint32) (browsergym.Task, error) // made once
	// what the agent may do; no subsets: chat, infeas, bid, nav and tab
	Actions action.Options

	Seed  uint32
	Steps int  // after so many the episode is truncated; 0: never
	Rule  Rule // which of the rewards counts; "": Last
	// the task is answered in its chat: what the agent says at its end is sent there, unless it has
	// sent something itself
	Answer  bool
	Context cdp.ContextOptions // goes before the task's own settings; Downloads is the episode's business
	Pace    browsergym.Pace
	GoOn    bool // report_infeasible does not end the episode
	AllTags bool // mark elements of any tag, not only those of standard HTML
	// Hide says which messages of pages are not for the agent: those that tell its reward. Nil:
	// none.
	Hide   func(event.BrowserLog) bool
	Record Record

	// Close is called once, when the episode has ended: for what was opened for it alone. May be
	// nil.
	Close func() error
}

// Record says what is kept of each observation. Zero fields are the defaults; the tree, the DOM and
// the properties are always kept, as agents render their texts from them.
type Record struct {
	NoScreenshot  bool  // nor are there any for the agent
	SOM           bool  // a second picture, with the marks of elements drawn over it
	NoDownloads   bool  // pages may not download
	DownloadLimit int64 // bytes that all downloads of an episode may have together; 0: 100 MB
}

// An Episode is a task of a browser as the harness plays it: one stage, actions browse and
// browse_interactive, an observation event.Browsed for each. Rewards are in the turns and the
// evidence, never in an observation.
type Episode struct {
	c     Config
	set   *action.Set
	env   *browsergym.Env
	files *downloads
	goal  agent.Goal

	mu          sync.Mutex // an agent's delegates may act at once
	begun       bool
	last        event.Browsed // the last observation
	chatSeen    int           // number of chat messages that were shown
	firstUnseen bool          // the first observation's chat and log were not shown yet
	steps       int
	rewards     []float64
	end         End
	closed      bool
	stepStart   time.Time       // when the reset, or the last step, began
	ownBrowser  bool            // the browser is for this episode only
	abandoned   <-chan struct{} // closed when an abandoned step has ended; nil: none
}

// Open begins an episode: the page is at its start, and the goal is known. Its error is of the
// browser or of the task's set-up.
func Open(ctx context.Context, c Config) (_ *Episode, err error) {
	if c.Host == nil || c.Browser == nil || c.Task == nil {
		return nil, errors.New("an episode in a browser needs a host, a browser and a task")
	}
	e := &Episode{c: c, end: End{Seed: c.Seed, Rule: c.Rule}}
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	e.files = newDownloads(c.Record)
	if l, ok := c.Host.(benchmarks.Loner); ok && l.Alone() {
		if a, ok := c.Browser.(*browsers.Access); ok {
			c.Browser = a.Alone()
			e.c.Browser, e.ownBrowser = c.Browser, true
		}
	}
	if len(c.Actions.Subsets) == 0 {
		e.c.Actions.Subsets = []string{"chat", "infeas", "bid", "nav", "tab"}
	}
	if e.set, err = action.New(e.c.Actions); err != nil {
		return nil, fmt.Errorf("the actions of an episode in a browser: %w", err)
	}
	o := browsergym.Options{
		Browser: c.Browser, Task: c.Task, Actions: e.set, Context: c.Context, Steps: c.Steps, Pace: c.Pace,
		GoOn: c.GoOn, AllTags: c.AllTags,
		NoScreenshot: c.Record.NoScreenshot,
	}
	// in whose place the pool sets a folder of the context's own
	if o.Context.Downloads = os.TempDir(); c.Record.NoDownloads {
		o.Context.Downloads = ""
	}
	if o.Context.DownloadLimit == 0 {
		o.Context.DownloadLimit = e.files.budget
	}
	if e.env, err = browsergym.New(o); err != nil {
		return nil, err
	}
	e.stepStart = time.Now()
	first, info, err := e.env.Reset(ctx, c.Seed)
	switch {
	case err != nil && ctx.Err() == nil && e.browserSlow():
		return nil, &benchmarks.BrowserLost{Err: err}
	case errors.As(err, new(*cdp.Failure)):
		return nil, browserLost(&benchmarks.Defect{Kind: record.FaultPage, Err: err})
	case err != nil:
		return nil, browserLost(err)
	}
	e.end.Task = info.Task
	if e.goal, err = e.goalOf(ctx, first.GoalObject); err != nil {
		return nil, err
	}
	e.firstUnseen = true
	return e, e.record(ctx, first)
}

// Next gives the one stage. Its one tool says which actions there are.
func (e *Episode) Next(context.Context, *benchmarks.Result) (*benchmarks.Stage, error) {
	if e.begun {
		return nil, io.EOF
	}
	tool, err := webtext.Tool(e.c.Actions)
	if err != nil {
		return nil, err
	}
	e.begun = true
	return &benchmarks.Stage{Goal: e.goal, Kinds: []string{event.Browse{}.Kind(), event.BrowseURL{}.Kind()},
		Tools: []agent.Tool{tool}, Last: true}, nil
}

// Step acts in the browser, or only looks.
func (e *Episode) Step(ctx context.Context, a event.Event) (benchmarks.Turn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	code := ""
	switch b := a.Body.(type) {
	case event.Browse:
		code = b.Code
	case event.BrowseURL:
		code = "goto(" + pyrepr.Repr(pyrepr.Str(b.URL)) + ")"
	case event.ToolCall:
		return benchmarks.Turn{Obs: event.Error{Code: "unsupported",
			Text: "the browser is used by actions of kind browse_interactive"}}, nil
	default:
		return benchmarks.Turn{Obs: event.Error{Code: "unsupported", Text: "there is only a browser to act on"}}, nil
	}
	if strings.TrimSpace(code) == "" || e.last.Done {
		return benchmarks.Turn{Obs: e.lastSeen(), Done: e.last.Done}, nil
	}
	return e.act(ctx, code, a.Timeout)
}

// lastSeen returns the last observation again, without the messages that were shown with it.
func (e *Episode) lastSeen() event.Browsed {
	o := e.last
	if !e.firstUnseen {
		o.Chat, o.Log, o.LogDropped, o.Downloads, o.Error = nil, nil, 0, nil, ""
	}
	e.firstUnseen = false
	return o
}

// act makes a step within a limit; 0: [stepLimit]. The lock is held.
func (e *Episode) act(whole context.Context, code string, limit time.Duration) (benchmarks.Turn, error) {
	if limit <= 0 {
		limit = stepLimit
	}
	ctx, cancel := context.WithTimeoutCause(whole, limit, fmt.Errorf("%w: longer than %v", errStepTimeout, limit))
	defer cancel()
	e.steps++
	e.stepStart = time.Now()
	r, err := e.stepEnv(ctx, code)
	if err == nil && (math.IsNaN(r.Reward) || math.IsInf(r.Reward, 0)) {
		err = fmt.Errorf("%w: %v", errReward, r.Reward)
	}
	if err != nil {
		return e.failed(ctx, code, err)
	}
	e.rewards = append(e.rewards, r.Reward)
	e.end.step(r)
	before := e.last
	if err := e.record(whole, r.Observation); err != nil { // the action is over, whatever its limit says now
		return benchmarks.Turn{}, err
	}
	if e.firstUnseen { // what came with the first observation was not shown yet
		e.last.Chat = append(before.Chat, e.last.Chat...)
		e.last.Log = append(before.Log, e.last.Log...)
		e.last.LogDropped += before.LogDropped
		e.last.Downloads = append(before.Downloads, e.last.Downloads...)
		e.firstUnseen = false
	}
	e.last.Done = r.Terminated || r.Truncated
	return benchmarks.Turn{Obs: e.last, Reward: &r.Reward, Done: e.last.Done, Info: e.info(r)}, nil
}

// stepEnv makes a step of the environment. A step that does not end after its limit is abandoned,
// and its browser context closed.
func (e *Episode) stepEnv(ctx context.Context, code string) (*browsergym.Result, error) {
	var r *browsergym.Result
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err = e.env.Step(ctx, code)
	}()
	select {
	case <-done:
		return r, err
	case <-ctx.Done():
	}
	select {
	case <-done:
		return r, err
	case <-time.After(abandonLimit):
	}
	left, c := make(chan struct{}), e.env.Context()
	e.abandoned = left
	go func() {
		defer close(left)
		if c != nil {
			c.Close(context.Background()) // which ends what the step waits for; an error is the pool's to see
		}
		<-done
	}()
	return nil, context.Cause(ctx)
}

var (
	// errStepTimeout: a step took longer than the harness lets it.
	errStepTimeout = errors.New("an action in the browser took too long")
	// errReward: what an agent does to a page may show in what the page rewards.
	errReward = errors.New("the task gives a reward that is no number")
)

// failed says what an error of the environment means: a browser that is gone or hangs is our
// trouble; a page that can no longer be looked at or judged, since it has crashed, hangs or throws,
// is the episode's end. Were that infra, too, an agent could have another try whenever it wants
// one.
func (e *Episode) failed(ctx context.Context, code string, err error) (benchmarks.Turn, error) {
	late := errors.Is(context.Cause(ctx), errStepTimeout)
	switch {
	case ctx.Err() != nil && !late, browsers.Infra(err):
		return benchmarks.Turn{}, browserLost(err)
	case late && !e.browserAnswers(), (late || cdp.Hung(err) || cdp.Timeout(err)) && e.browserSlow():
		return benchmarks.Turn{}, &benchmarks.BrowserLost{Err: err}
	case !late && !isPageError(err):
		return benchmarks.Turn{}, err
	}
	e.end.Failed, e.end.Terminated = err.Error(), true
	zero := 0.0
	e.rewards = append(e.rewards, zero)
	e.last.Action, e.last.Error, e.last.Step, e.last.Done = cut(code, maxAction), "Error: "+err.Error(), e.steps, true
	e.last.Chat, e.last.Log, e.last.Downloads = nil, nil, nil
	return benchmarks.Turn{Obs: e.last, Reward: &zero, Done: true, Info: e.info(&browsergym.Result{Terminated: true})},
		nil
}

// isPageError reports whether an error was caused by the page or the agent.
func isPageError(err error) bool {
	return errors.Is(err, cdp.ErrGone) || errors.Is(err, errReward) ||
		errors.As(err, new(*cdp.Failure)) || errors.As(err, new(*cdp.Thrown))
}

// browserLost wraps an error that means that the browser has ended.
func browserLost(err error) error {
	if browsers.Lost(err) {
		return &benchmarks.BrowserLost{Err: err}
	}
	return err
}

// Limits of a step.
const (
	stepLimit    = 30 * time.Second // of one whose action names none
	abandonLimit = 5 * time.Second  // how long it may take to end when its time is up
	answerLimit  = 4 * time.Second  // how long a browser may take to say that it is well, though a page of it is not
)

// browserAnswers reports whether the browser process answers and, if others use it too, draws.
func (e *Episode) browserAnswers() bool {
	c := e.env.Context()
	if c == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	defer cancel()
	return c.Browser().Probe(ctx, !e.ownBrowser) == nil
}

// browserSlow reports whether the step may have been slow because the browser was: the browser or
// the machine may be overloaded by other episodes. It is false for an episode with its own browser.
func (e *Episode) browserSlow() bool {
	c := e.env.Context()
	return c != nil && !e.ownBrowser && c.Browser().ProbeDelay(e.stepStart) >= answerLimit
}

// Collect sends the agent's answer where the task waits for one, and gathers the rewards.
func (e *Episode) Collect(ctx context.Context, ans agent.Answer) (benchmarks.Evidence, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.c.Answer && !e.last.Done && !e.end.hasAnswer() {
		code := ""
		switch text := ans.Text(); {
		case ans.GaveUp != "":
			code = "report_infeasible(" + pyrepr.Repr(pyrepr.Str(ans.GaveUp)) + ")"
		case strings.TrimSpace(text) != "":
			code = "send_msg_to_user(" + pyrepr.Repr(pyrepr.Str(text)) + ")"
		}
		if _, err := e.set.Parse(code); err == nil {
			if _, err := e.act(ctx, code, 0); err != nil {
				return benchmarks.Evidence{}, err
			}
			e.end.Sent = true
		}
	}
	if e.steps == 0 && !e.last.Done { // judged as it stands, so that a task that is done from its start on is seen
		if _, err := e.act(ctx, "noop(0)", 0); err != nil {
			return benchmarks.Evidence{}, err
		}
		e.steps, e.end.Idle, e.end.Truncated = 0, true, false
	}
	e.end.Steps, e.end.URL = e.steps, e.last.URL
	e.end.Refused = e.Refused()
	data, err := json.Marshal(e.end)
	if err != nil { // what the task says is no JSON
		e.end.Task = nil
		data, err = json.Marshal(e.end)
	}
	if err != nil {
		return benchmarks.Evidence{}, fmt.Errorf("keeping how the episode ended: %w", err)
	}
	return benchmarks.Evidence{Answer: ans, Rewards: e.rewards, Data: data}, nil
}

// Refused lists the places that the pages wanted to reach, and may not.
func (e *Episode) Refused() []sandbox.Refusal {
	if w, ok := e.c.Browser.(sandbox.RefusalLister); ok {
		return w.Refused()
	}
	return nil
}

// closeLimit bounds the time to close a context.
const closeLimit = 20 * time.Second

// Close ends the episode and gives its context back. It may be called again.
func (e *Episode) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	var errs []error
	if e.env != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		if e.abandoned != nil {
			select {
			case <-e.abandoned:
			case <-ctx.Done():
				go func(env *browsergym.Env) { // which only one may use
					<-e.abandoned
					env.Close(context.Background())
				}(e.env)
				e.env = nil
			}
		}
		if e.env != nil {
			errs = append(errs, e.env.Close(ctx))
		}
	}
	if e.c.Close != nil {
		errs = append(errs, e.c.Close())
	}
	return errors.Join(errs...)
}
