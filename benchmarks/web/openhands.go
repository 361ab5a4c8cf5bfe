package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// Actions of a [BrowserEnv] that make no step, where it plays a task.
const (
	GetGoal    = "GET_EVAL_GOAL"    // the task's goal: its first text, and the addresses of its images
	GetRewards = "GET_EVAL_REWARDS" // the rewards of all steps so far, as JSON
)

// A BrowserEnvConfig says what a [BrowserEnv] is for. Only Browser is required.
type BrowserEnvConfig struct {
	Browser browsergym.Opener
	Task    func(seed uint32) (browsergym.Task, error) // nil: no task: an empty page, and no goal
	Seed    uint32
	Pace    browsergym.Pace
	Timeout time.Duration // of one action; 0: 2 min

	// Dir is where addresses begin that name no site: "" means the file system's root.
	Dir string
	// Screenshots is a folder that each observation's picture is saved in; "": none is. It is told
	// to the agent as ScreenshotsAs.
	Screenshots, ScreenshotsAs string
	// Keep puts a file that a page has downloaded where the agent finds it, and says where that is.
	// Nil: pages may not download.
	Keep func(ctx context.Context, name, file string) (path string, err error)
}

// A BrowserEnv is the browser that agents of OpenHands use: an environment of BrowserGym that marks
// elements of every tag, takes the default actions, several a step, and tells of the page in its
// own way ([BrowserOutput]). With a task, it is that task's evaluation. It may be used by several
// goroutines; steps are made one after another. No run calls it yet: the workspace of CodeAct
// agents will, for their browse actions.
type BrowserEnv struct {
	c   BrowserEnvConfig
	env *browsergym.Env

	mu      sync.Mutex
	goal    []browsergym.Item
	rewards []float64
	kept    int // files that the agent was told of
	seen    map[string]bool
	broken  error // the browser is gone
	closed  bool
}

// envStarts is how often a browser is tried to be started.
const envStarts = 5

// OpenBrowserEnv starts the environment. Its error is the browser's or the task's.
func OpenBrowserEnv(ctx context.Context, c BrowserEnvConfig) (_ *BrowserEnv, err error) {
	if c.Browser == nil {
		return nil, errors.New("a browser environment needs a browser")
	}
	if c.Timeout <= 0 {
		c.Timeout = 2 * time.Minute
	}
	b := &BrowserEnv{c: c, seen: map[string]bool{}}
	o := browsergym.Options{Browser: c.Browser, Task: c.Task, Pace: c.Pace, AllTags: true,
		Context: cdp.ContextOptions{Timeout: 100 * time.Second}}
	if c.Task == nil {
		o.Task = func(uint32) (browsergym.Task, error) {
			return &browsergym.Openended{URL: "about:blank",
				Goal: browsergym.Text("There is no goal: the browser is a tool.")}, nil
		}
	}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	if c.Keep != nil { // the pool sets a folder of the context's own in its place
		o.Context.Downloads, o.Context.DownloadLimit = os.TempDir(), 100<<20
	}
	if b.env, err = browsergym.New(o); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		first, _, err := b.env.Reset(ctx, c.Seed)
		if err == nil {
			b.goal = first.GoalObject
			return b, nil
		}
		if ctx.Err() != nil || try == envStarts {
			return nil, err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Step plays an action. What goes wrong with the page or the action is in the output; an error says
// that the context has ended, or that the environment was closed.
func (b *BrowserEnv) Step(ctx context.Context, code string) (*BrowserOutput, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.New("the browser environment is closed")
	}
	if b.c.Task != nil {
		switch code {
		case GetGoal:
			return b.evalGoal(), nil
		case GetRewards:
			return b.evalRewards()
		}
	}
	return b.step(ctx, code, false)
}

// Browse opens an address, and tells of the page as text without bids.
func (b *BrowserEnv) Browse(ctx context.Context, url string) (*BrowserOutput, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.New("the browser environment is closed")
	}
	if !strings.HasPrefix(url, "http") {
		url = strings.TrimSuffix(b.c.Dir, "/") + "/" + strings.TrimPrefix(url, "/")
	}
	code := `goto("` + url + `")` // as it is written there, and told to the agent
	if strings.ContainsAny(url, "\"\\\n\r") {
		code = "goto(" + pyrepr.Repr(pyrepr.Str(url)) + ")"
	}
	return b.step(ctx, code, true)
}

func (b *BrowserEnv) step(ctx context.Context, code string, plain bool) (*BrowserOutput, error) {
	if b.broken != nil {
		return failedOutput(code, plain, b.broken.Error()), nil
	}
	short, cancel := context.WithTimeout(ctx, b.c.Timeout)
	defer cancel()
	r, err := b.env.Step(short, code)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case short.Err() != nil:
		return failedOutput(code, plain, "TimeoutError: Browser environment took too long to respond."), nil
	case err != nil:
		if errors.Is(err, cdp.ErrClosed) {
			b.broken = err
		}
		return failedOutput(code, plain, err.Error()), nil
	}
	b.rewards = append(b.rewards, r.Reward)
	out, err := b.output(ctx, r.Observation, plain)
	if err != nil {
		return nil, err
	}
	if !plain && out.Error {
		return b.downloaded(ctx, out)
	}
	return out, nil
}

// Rewards are those of all steps so far.
func (b *BrowserEnv) Rewards() []float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.rewards)
}

// Reward is the episode's: the best of its steps, 0 before the first.
func (b *BrowserEnv) Reward() float64 {
	best := 0.0
	for i, r := range b.Rewards() {
		if i == 0 || r > best {
			best = r
		}
	}
	return best
}

// Alive reports whether the browser still answers.
func (b *BrowserEnv) Alive(ctx context.Context) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.broken != nil || b.env.Context() == nil {
		return false
	}
	_, err := b.env.Context().Active(ctx)
	return err == nil
}

func (b *BrowserEnv) evalGoal() *BrowserOutput {
	o := &BrowserOutput{LastAction: GetGoal, Trigger: "browse_interactive"}
	for _, i := range b.goal {
		if i.Type == "text" && o.Content == "" {
			o.Content = i.Text
		}
		if i.Type == "image_url" {
			o.GoalImages = append(o.GoalImages, i.Image)
		}
	}
	o.Text = o.Content
	return o
}

func (b *BrowserEnv) evalRewards() (*BrowserOutput, error) {
	raw, err := json.Marshal(append([]float64{}, b.rewards...))
	if err != nil {
		return nil, fmt.Errorf("the rewards: %w", err)
	}
	return &BrowserOutput{LastAction: GetRewards, Trigger: "browse_interactive", Content: string(raw),
		Text: string(raw)}, nil
}

// Close ends the environment. It may be called again.
func (b *BrowserEnv) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	if b.env == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	return b.env.Close(ctx)
}

// save keeps a picture in the folder for them, and returns what it is called to the agent.
func (b *BrowserEnv) save(png []byte) (string, error) {
	if b.c.Screenshots == "" || len(png) == 0 {
		return "", nil
	}
	name := "screenshot_" + strings.Replace(time.Now().Format("20060102_150405.000000"), ".", "_", 1) + ".png"
	if err := os.MkdirAll(b.c.Screenshots, 0o755); err != nil {
		return "", fmt.Errorf("saving a screenshot: %w", err)
	}
	if err := os.WriteFile(filepath.Join(b.c.Screenshots, name), png, 0o644); err != nil {
		return "", fmt.Errorf("saving a screenshot: %w", err)
	}
	dir := b.c.ScreenshotsAs
	if dir == "" {
		dir = b.c.Screenshots
	}
	return strings.TrimSuffix(dir, "/") + "/" + name, nil
}
