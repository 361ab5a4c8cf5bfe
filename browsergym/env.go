package browsergym

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// An Opener gives contexts, as a browser does.
type Opener interface {
	NewContext(context.Context, cdp.ContextOptions) (*cdp.Context, error)
}

// Options of an [Env]. Zero fields are the defaults.
type Options struct {
	Browser Opener                          // required
	Task    func(seed uint32) (Task, error) // required; called by each reset
	Actions *action.Set                     // nil: chat, infeas, bid, nav and tab, several calls an action
	// what is set here goes before the task's own settings; SlowMo and FixedPauses are the pace's
	// business
	Context cdp.ContextOptions
	SlowMo  *time.Duration // goes before the task's own
	Pace    Pace           // how long it waits for pages after an action
	// between an action and the observation, at most in pace Fast; 0: 500 ms, below 0: none
	Delay time.Duration
	Steps int // after so many the episode is truncated; 0: never
	// waits for the user's next message whenever it is the user's turn; nil: nobody waits
	Ask func(context.Context) (string, error)

	// Custom does the actions of [action.Options].Custom, by their names: on the page that is the
	// active one, with an argument for each parameter. What an agent is to read of a failure is a
	// *cdp.Failure or an *action.Error.
	Custom map[string]func(context.Context, *cdp.Page, []pyrepr.Value) error

	GoOn         bool // report_infeasible does not end the episode
	AllTags      bool // mark elements of any tag, not only those of standard HTML
	Native       bool // the accessibility tree as this browser gives it, not as the one of published results did
	NoAX         bool // no accessibility tree
	NoScreenshot bool
	Raw          bool // nothing is taken of the page, nor are its elements marked: see [Observation].Page
}

// An Env is the environment. It is not for several goroutines at once.
type Env struct {
	o Options

	task       Task
	context    *cdp.Context
	goal       []Item
	firstPage  *cdp.Page // the one that the set-up was given
	zoom       float64   // its scale
	marked     *cdp.Page // a page that was marked before its observation is taken; nil: none
	slow       time.Duration
	chat       chat
	infeasible bool
	steps      int
	began      time.Time
	lastAction string
	lastError  string
}

// Info is what is known of a step beside the observation. Times are seconds since 1970.
type Info struct {
	Task        map[string]any `json:"task_info"`
	ActionStart float64        `json:"action_exec_start"`
	ActionStop  float64        `json:"action_exec_stop"`
	// seconds that the action was in vain, where its error tells
	Timeout    float64 `json:"action_exec_timeout"`
	LoadStart  float64 `json:"wait_for_page_loading_start"`
	LoadStop   float64 `json:"wait_for_page_loading_stop"`
	CheckStart float64 `json:"validation_start"`
	CheckStop  float64 `json:"validation_stop"`
	LookStart  float64 `json:"get_observation_start"`
	LookStop   float64 `json:"get_observation_stop"`
}

// A Result is what comes of a step.
type Result struct {
	Observation *Observation
	Reward      float64
	Terminated  bool // the task is done, or given up
	Truncated   bool // there are no more steps
	Info        Info
}

// ErrNotReset: a step before the first reset.
var ErrNotReset = errors.New("the environment has no episode; reset it first")

// New makes an environment without an episode.
func New(o Options) (*Env, error) {
	if o.Browser == nil || o.Task == nil {
		return nil, errors.New("an environment needs a browser and a task")
	}
	if o.Actions == nil {
		s, err := action.New(action.Options{Subsets: []string{"chat", "infeas", "bid", "nav", "tab"}})
		if err != nil {
			return nil, err
		}
		o.Actions = s
	}
	for _, name := range o.Actions.Names() {
		if actionFuncs[name] == nil && o.Custom[name] == nil {
			return nil, fmt.Errorf("nobody does the action %s; say in Options.Custom what it does", name)
		}
	}
	if o.Delay == 0 {
		o.Delay = delay
	}
	o.Delay = max(o.Delay, 0)
	return &Env{o: o}, nil
}

// Reset ends the episode, if there is one, and begins another.
func (e *Env) Reset(ctx context.Context, seed uint32) (*Observation, Info, error) {
	o, info, err := e.reset(ctx, seed)
	if err != nil {
		return nil, info, fmt.Errorf("resetting the browser environment: %w", err)
	}
	return o, info, nil
}

func (e *Env) reset(ctx context.Context, seed uint32) (o *Observation, info Info, err error) {
	if err := e.Close(ctx); err != nil {
		return nil, info, err
	}
	task, err := e.o.Task(seed)
	if err != nil {
		return nil, info, err
	}
	if e.context, err = e.o.Browser.NewContext(ctx, e.options(task.Settings())); err != nil {
		return nil, info, err
	}
	e.task, e.chat, e.goal = task, nil, nil
	e.infeasible, e.steps, e.lastAction, e.lastError = false, 0, "", ""
	if e.firstPage, err = e.context.NewPage(ctx); err != nil {
		return nil, info, err
	}
	e.zoom = 1
	start, err := task.Setup(ctx, e.firstPage)
	if err != nil {
		return nil, info, err
	}
	if start.Scale > 0 {
		e.zoom = start.Scale
	}
	if err := checkGoal(start.Goal); err != nil {
		return nil, info, err
	}
	e.goal, info.Task = start.Goal, start.Info
	e.chat.say(Assistant, greeting)
	for _, i := range e.goal {
		if i.Type == "text" {
			e.chat.say(User, i.Text)
		} else {
			e.chat.say(UserImage, i.Image)
		}
	}
	if err := e.settle(ctx, true); err != nil {
		return nil, info, err
	}
	if _, err := e.context.Active(ctx); err != nil {
		return nil, info, err
	}
	e.began = time.Now()
	if err := e.waitForUser(ctx); err != nil {
		return nil, info, err
	}
	info.LookStart = unix(time.Now())
	o, err = e.observe(ctx)
	info.LookStop = unix(time.Now())
	return o, info, err
}

// options are those of the episode's context.
func (e *Env) options(s Settings) cdp.ContextOptions {
	o := e.o.Context
	if o.Width == 0 || o.Height == 0 {
		o.Width, o.Height = s.Width, s.Height
	}
	if o.Timeout == 0 {
		o.Timeout = s.Timeout
	}
	if o.Locale == "" {
		o.Locale = s.Locale
	}
	if o.TimeZone == "" {
		o.TimeZone = s.TimeZone
	}
	e.slow = s.SlowMo
	if e.o.SlowMo != nil {
		e.slow = *e.o.SlowMo
	}
	if e.o.Pace == Reference {
		o.SlowMo, o.FixedPauses = e.slow, true
	} else {
		o.SlowMo, o.FixedPauses, o.Scripts = 0, false, append([]string{timers}, o.Scripts...)
	}
	return o
}

// scale is how many pixels an agent sees for one of CSS.
func (e *Env) scale(p *cdp.Page) float64 {
	if p == e.firstPage {
		return e.zoom
	}
	return 1
}

// waitForUser waits for the user where the episode is one with a user, and it is the user's turn.
func (e *Env) waitForUser(ctx context.Context) error {
	if e.o.Ask == nil || !e.chat.waitsForUser() {
		return nil
	}
	s, err := e.o.Ask(ctx)
	if err != nil {
		return fmt.Errorf("waiting for the user: %w", err)
	}
	e.chat.say(User, s)
	return nil
}

// Step does an action: text with calls in it. What the agent did wrong is in the observation; an
// error is the environment's own, and ends the episode.
func (e *Env) Step(ctx context.Context, text string) (*Result, error) {
	info, err := e.Begin(text)
	if err != nil {
		return nil, err
	}
	if err := e.perform(ctx, text); err != nil {
		return nil, fmt.Errorf("acting in the browser: %w", err)
	}
	info.Timeout = chooserTimeout(e.lastError)
	return e.Finish(ctx, info, true)
}

// Begin and Finish are a step whose action is done by somebody else in between, by means of their
// own. Finish without validate leaves the task alone: there is no reward then, and no end but the
// agent's own.
func (e *Env) Begin(text string) (Info, error) {
	if e.context == nil {
		return Info{}, ErrNotReset
	}
	e.lastAction, e.lastError = text, ""
	return Info{ActionStart: unix(time.Now())}, nil
}

// Finish ends a step: see [Env.Begin].
func (e *Env) Finish(ctx context.Context, info Info, validate bool) (*Result, error) {
	r, err := e.finish(ctx, info, validate)
	if err != nil {
		return nil, fmt.Errorf("ending a step of the browser environment: %w", err)
	}
	return r, nil
}

func (e *Env) finish(ctx context.Context, info Info, validate bool) (r *Result, err error) {
	info.ActionStop = unix(time.Now())
	info.LoadStart = info.ActionStop
	if err := e.settle(ctx, false); err != nil {
		return nil, err
	}
	info.LoadStop = unix(time.Now())
	info.CheckStart = info.LoadStop
	page, err := e.context.Active(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.waitForUser(ctx); err != nil {
		return nil, err
	}
	v := Verdict{Info: map[string]any{}}
	if validate {
		before := e.context.Activity()
		if v, err = e.task.Validate(ctx, page, e.chat.copy()); err != nil {
			return nil, fmt.Errorf("judging the step: %w", err)
		}
		if err := e.context.Sync(ctx, syncLimit); err != nil {
			return nil, err
		}
		if now := e.context.Activity(); now.Active != before.Active || !slices.Equal(now.History, before.History) {
			e.context.SetActivity(before)
		}
	}
	info.Task = v.Info
	info.CheckStop = unix(time.Now())
	if v.Message != "" {
		e.chat.say(User, v.Message)
	}
	info.LookStart = unix(time.Now())
	o, err := e.observe(ctx)
	if err != nil {
		return nil, err
	}
	info.LookStop = unix(time.Now())
	e.steps++
	return &Result{
		Observation: o, Reward: v.Reward, Info: info,
		Terminated: v.Done || e.infeasible && !e.o.GoOn,
		Truncated:  e.o.Steps > 0 && e.steps >= e.o.Steps,
	}, nil
}

// Context is that of the episode, with what its pages said and downloaded; nil without an episode.
func (e *Env) Context() *cdp.Context { return e.context }

// Close ends the episode. It may be called again, and so may Reset after it.
func (e *Env) Close(ctx context.Context) error {
	if e.context == nil {
		return nil
	}
	var err error
	if e.task != nil {
		if err = e.task.Teardown(ctx); err != nil {
			err = fmt.Errorf("ending the task: %w", err)
		}
	}
	err = errors.Join(err, e.context.Close(ctx))
	e.task, e.context, e.firstPage, e.marked = nil, nil, nil, nil
	return err
}
