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

// An Opener opens contexts, as a browser does.
type Opener interface {
	NewContext(context.Context, cdp.ContextOptions) (*cdp.Context, error)
}

// Options of an [Env]. A zero field means its default.
type Options struct {
	Browser Opener                          // required
	Task    func(seed uint32) (Task, error) // required; called by each Reset
	Actions *action.Set                     // nil means chat, infeas, bid, nav and tab with several calls per action
	// Context overrides the task's own settings, except for SlowMo and FixedPauses, which depend on
	// Pace.
	Context cdp.ContextOptions
	SlowMo  *time.Duration // overrides the task's own setting
	Pace    Pace           // how long to wait for pages after an action
	// Delay is the time between an action and its observation; in pace Fast it is the maximum. 0
	// means 500 ms, negative means none.
	Delay time.Duration
	Steps int // number of steps after which the episode is truncated; 0 means no limit
	// Ask waits for the user's next message whenever it is the user's turn. If nil, nobody waits.
	Ask func(context.Context) (string, error)

	// Custom has the implementations of the actions in [action.Options].Custom, by name. They get
	// the active page and one argument per parameter. To be shown to the agent, an error must be a
	// *cdp.Failure or an *action.Error.
	Custom map[string]func(context.Context, *cdp.Page, []pyrepr.Value) error

	GoOn         bool // report_infeasible does not end the episode
	AllTags      bool // mark elements of any tag, not only those of standard HTML
	Native       bool // the accessibility tree as this browser returns it, not adapted to that of published results
	NoAX         bool // no accessibility tree
	NoScreenshot bool
	Raw          bool // neither marks nor reads the page: see [Observation].Page
}

// An Env is the environment. It is not safe for concurrent use.
type Env struct {
	o Options

	task       Task
	context    *cdp.Context
	goal       []Item
	firstPage  *cdp.Page // the page that was passed to the set-up
	zoom       float64   // its scale
	marked     *cdp.Page // a page already marked for the next observation; may be nil
	slow       time.Duration
	chat       chat
	infeasible bool
	steps      int
	began      time.Time
	lastAction string
	lastError  string
}

// Info has details of a step besides the observation. Times are in seconds since 1970.
type Info struct {
	Task        map[string]any `json:"task_info"`
	ActionStart float64        `json:"action_exec_start"`
	ActionStop  float64        `json:"action_exec_stop"`
	// Timeout is how many seconds the action waited in vain, if its error says so.
	Timeout    float64 `json:"action_exec_timeout"`
	LoadStart  float64 `json:"wait_for_page_loading_start"`
	LoadStop   float64 `json:"wait_for_page_loading_stop"`
	CheckStart float64 `json:"validation_start"`
	CheckStop  float64 `json:"validation_stop"`
	LookStart  float64 `json:"get_observation_start"`
	LookStop   float64 `json:"get_observation_stop"`
}

// A Result is the result of a step.
type Result struct {
	Observation *Observation
	Reward      float64
	Terminated  bool // the task is done or was given up
	Truncated   bool // the step limit was reached
	Info        Info
}

// ErrNotReset reports a step before the first reset.
var ErrNotReset = errors.New("the environment has no episode; reset it first")

// New returns an environment without an episode.
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

// Reset ends the current episode, if there is one, and starts a new one.
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

// options returns the options of the episode's context.
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

// scale returns the number of screenshot pixels per CSS pixel.
func (e *Env) scale(p *cdp.Page) float64 {
	if p == e.firstPage {
		return e.zoom
	}
	return 1
}

// waitForUser waits for the user's message if the episode has a user and it is the user's turn.
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

// Step executes an action given as text with calls. Errors of the agent are part of the
// observation. An error of Step is one of the environment and ends the episode.
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

// Begin starts a step whose action is executed by the caller, and [Env.Finish] ends it. Finish
// without validate does not ask the task: there is no reward, and only the agent itself can end the
// episode.
func (e *Env) Begin(text string) (Info, error) {
	if e.context == nil {
		return Info{}, ErrNotReset
	}
	e.lastAction, e.lastError = text, ""
	return Info{ActionStart: unix(time.Now())}, nil
}

// Finish ends a step that [Env.Begin] started.
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

// Context returns the episode's context, with its pages' console messages and downloads; nil if
// there is no episode.
func (e *Env) Context() *cdp.Context { return e.context }

// Close ends the episode. It may be called again, and Reset may be called after it.
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
