package browsergym

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	_ "embed"

	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/rng"
)

// MiniWoB is a task of MiniWoB++: a small page that generates its problem from a seed and computes
// its own reward. Any page with the same interface works.
type MiniWoB struct {
	Name  string // "click-button"
	Base  string // address of the folder with the pages, with a final slash
	Seed  uint32
	Limit time.Duration // of an episode, by the page's own clock; 0 means 1000 s
	Human bool          // keep the parts of the page that are meant only for people
	// AtLeast is the minimum score, as computed by the page, that counts as success. 0 means above
	// 0, as in published scores.
	AtLeast float64

	page     *cdp.Page
	reloaded bool
}

// Reloaded is the key in a step's task info that reports that the page was reloaded, by the agent
// or by itself, and shows another problem than that of the seed. The reference counts such an
// episode, and so does [MiniWoB].
const Reloaded = "page_reloaded"

// ErrNoPage reports that the page at a task's address does not have the interface.
var ErrNoPage = errors.New("no page of MiniWoB++")

//go:embed miniwob.js
var miniwobScript string

// setupLimit is how long a page may take to load and get ready. It is longer than the timeout of
// any action, because the load of the machine must not count against the agent.
const setupLimit = 30 * time.Second

// miniwobInfo reads the state of the page's episode.
const miniwobInfo = `() => ({REWARD_GLOBAL: WOB_REWARD_GLOBAL ?? null, RAW_REWARD_GLOBAL: WOB_RAW_REWARD_GLOBAL ?? null, REWARD_REASON: WOB_REWARD_REASON ?? null,
	DONE_GLOBAL: WOB_DONE_GLOBAL ?? null, EPISODE_ID: WOB_EPISODE_ID ?? null, TASK_READY: WOB_TASK_READY ?? null})`

// miniwobStart starts an episode and returns its state once it is ready.
const miniwobStart = `async (seed, limit) => {
	core[Symbol.for("evalrun")] = true;
	Math.seedrandom(seed);
	core.EPISODE_MAX_TIME = limit;
	core.startEpisodeReal();
	while (WOB_TASK_READY !== true) await new Promise(done => setTimeout(done, 10));
	const u = core.getUtterance();
	return {goal: typeof u === "object" && u ? u.utterance : u, info: (` + miniwobInfo + `)()};
}`

func (m *MiniWoB) Settings() Settings {
	return Settings{Width: 332, Height: 214, SlowMo: 100 * time.Millisecond, Timeout: 5 * time.Second}
}

func (m *MiniWoB) url() string { return m.Base + m.Name + ".html" }

func (m *MiniWoB) Setup(ctx context.Context, page *cdp.Page) (Start, error) {
	s, err := m.setup(ctx, page)
	if err != nil {
		return s, fmt.Errorf("setting up miniwob.%s: %w", m.Name, err)
	}
	return s, nil
}

func (m *MiniWoB) setup(ctx context.Context, page *cdp.Page) (s Start, err error) {
	switch {
	case m.Base == "":
		return s, errors.New("the address of the folder with MiniWoB++'s pages is not set")
	case m.Limit < 0:
		return s, fmt.Errorf("an episode's time must be above 0, not %v", m.Limit)
	}
	m.page = page
	if err := page.GotoWithin(ctx, m.url(), setupLimit); err != nil {
		return s, err
	}
	var there bool
	if err := page.Evaluate(ctx, `typeof core === "object" && typeof core.startEpisodeReal === "function" && !!document.getElementById("query")`, &there); err != nil {
		return s, err
	}
	if !there {
		return s, fmt.Errorf("%s is %w: it has no episode to start", m.url(), ErrNoPage)
	}
	if err := page.Call(ctx, miniwobScript, nil, !m.Human, m.Name); err != nil {
		return s, err
	}
	limit := m.Limit
	if limit == 0 {
		limit = 1000 * time.Second
	}
	seed := rng.NewRandomState(m.Seed).Randint(0, 1_000_000)
	short, cancel := context.WithTimeoutCause(ctx, setupLimit, errors.New("the page did not get ready"))
	defer cancel()
	var begun struct {
		Goal string
		Info map[string]any
	}
	err = page.Call(short, miniwobStart, &begun, seed, float64(limit)/float64(time.Millisecond))
	return Start{Goal: Text(begun.Goal), Scale: 1.5, Info: begun.Info}, err
}

func (m *MiniWoB) Validate(ctx context.Context, page *cdp.Page, _ []Message) (v Verdict, err error) {
	for _, wrong := range []struct {
		is   bool
		what string
	}{{page != m.page, "page"}, {page == m.page && page.URL() != m.url(), "url"}} {
		if wrong.is {
			return Verdict{Done: true, Info: map[string]any{"error": "invalid " + wrong.what + ", terminating task"}},
				nil
		}
	}
	var now struct {
		Same bool
		Info map[string]any
	}
	if err := page.Call(ctx, `() => ({same: typeof core === "object" && core[Symbol.for("evalrun")] === true, info: (`+
		miniwobInfo+`)()})`, &now); err != nil {
		return v, fmt.Errorf("reading the reward of miniwob.%s: %w", m.Name, err)
	}
	v.Info = now.Info
	if m.reloaded = m.reloaded || !now.Same; m.reloaded {
		v.Info[Reloaded] = true
	}
	if raw, ok := v.Info["RAW_REWARD_GLOBAL"].(float64); ok && !math.IsNaN(raw) && raw > 0 && raw >= m.AtLeast {
		v.Reward = 1
	}
	v.Done, _ = v.Info["DONE_GLOBAL"].(bool)
	return v, nil
}

func (m *MiniWoB) Teardown(context.Context) error { return nil }

// OnlyLooks implements [Looker].
func (m *MiniWoB) OnlyLooks() {}
