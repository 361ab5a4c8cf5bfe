package web

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Rule says which of an episode's rewards is its score.
type Rule string

const (
	Last Rule = "last" // that of the last step
	Max  Rule = "max"  // the best of all
	Sum  Rule = "sum"  // all together, as BrowserGym's cum_reward
)

// An End is how an episode ended: the Data of its evidence.
type End struct {
	Rule  Rule   `json:"rule,omitempty"`
	Seed  uint32 `json:"seed"`
	Steps int    `json:"steps"`
	// the agent made no step: the reward is that of the page as it began
	Idle       bool              `json:"idle,omitempty"`
	Terminated bool              `json:"terminated,omitempty"` // the task is done, or given up
	Truncated  bool              `json:"truncated,omitempty"`  // there were no more steps
	Infeasible string            `json:"infeasible,omitempty"` // what the agent said
	Answers    []string          `json:"answers,omitempty"`    // what the agent said in the chat
	Sent       bool              `json:"sent,omitempty"`       // the last of them was its answer at its end
	URL        string            `json:"url,omitempty"`        // of the page that it ended on
	Failed     string            `json:"failed,omitempty"`     // why the page could no longer be looked at
	Task       map[string]any    `json:"task_info,omitempty"`  // what the task said last
	Refused    []sandbox.Refusal `json:"refused,omitempty"`    // places that the pages wanted to reach, and may not

	gaveUp bool
}

// Flags of a result.
const (
	FlagTruncated = "truncated"   // there were no more steps
	FlagPage      = "page_failed" // the page broke down under the agent's hands
	FlagReloaded  = browsergym.Reloaded
)

func (e *End) step(r *browsergym.Result) {
	e.Terminated, e.Truncated, e.Task = r.Terminated, r.Truncated && !r.Terminated, r.Info.Task
}

// recordChat notes what the agent has said.
func (e *End) recordChat(chat []browsergym.Message) {
	e.Answers, e.Infeasible = nil, ""
	for i, m := range chat {
		switch {
		case i > 0 && m.Role == browsergym.Assistant: // the first is the greeting
			e.Answers = append(e.Answers, cut(m.Text, maxChat))
		case m.Role == browsergym.Infeasible:
			e.Infeasible, e.gaveUp = cut(m.Text, maxChat), true
		}
	}
}

// hasAnswer reports whether the agent has said something in the chat.
func (e *End) hasAnswer() bool { return len(e.Answers) > 0 || e.gaveUp }

// info is a turn's: what is known of a step, and not told to the agent.
func (e *Episode) info(r *browsergym.Result) json.RawMessage {
	sum := 0.0
	for _, x := range e.rewards {
		sum += x
	}
	t := r.Info
	info := map[string]any{
		"cumulative": sum, "raw_reward": r.Info.Task["RAW_REWARD_GLOBAL"], "terminated": r.Terminated,
		"truncated": r.Truncated, "task_info": r.Info.Task,
		"timing": map[string]float64{
			"action_exec_start": t.ActionStart, "action_exec_stop": t.ActionStop, "action_exec_timeout": t.Timeout,
			"wait_for_page_loading_start": t.LoadStart, "wait_for_page_loading_stop": t.LoadStop,
			"validation_start": t.CheckStart, "validation_stop": t.CheckStop,
			"get_observation_start": t.LookStart, "get_observation_stop": t.LookStop,
		},
	}
	raw, err := json.Marshal(info)
	if err != nil { // a task's info that is no JSON
		delete(info, "task_info")
		raw, _ = json.Marshal(info)
	}
	return raw
}

// Grade makes a result of an episode's evidence: one score, "reward", by the episode's rule. Where
// the agent made no step, it is what the page gives away.
func Grade(ev benchmarks.Evidence) (benchmarks.Result, error) {
	var end End
	if len(ev.Data) > 0 {
		if err := json.Unmarshal(ev.Data, &end); err != nil {
			return benchmarks.Result{}, fmt.Errorf("evidence of a browser: %w", err)
		}
	}
	value, why := 0.0, "no step was made"
	if n := len(ev.Rewards); n > 0 {
		why = ""
		switch end.Rule {
		case Last, "":
			value = ev.Rewards[n-1]
		case Max:
			value = slices.Max(ev.Rewards)
		case Sum:
			for _, x := range ev.Rewards {
				value += x
			}
		default:
			return benchmarks.Result{}, fmt.Errorf("evidence of a browser: the rule %q is not known", end.Rule)
		}
	}
	r := benchmarks.Result{}
	switch reason, _ := end.Task["error"].(string); {
	case end.Failed != "":
		why, r.Flags = end.Failed, append(r.Flags, FlagPage)
	case reason != "":
		why = reason
	case end.Idle:
		if why = "no step was made"; value > 0 {
			why = "the page rewards what it begins with: no step was made"
		}
	case end.Truncated:
		if value == 0 {
			why = fmt.Sprintf("not done after %d steps", end.Steps)
		}
		r.Flags = append(r.Flags, FlagTruncated)
	}
	if again, _ := end.Task[browsergym.Reloaded].(bool); again {
		r.Flags = append(r.Flags, FlagReloaded)
	}
	r.Scores = []record.Score{{Name: "reward", Primary: true, Value: &value, Why: why}}
	return r, nil
}
