// Package shell is an agent for evalrun. It asks a model for a shell command, runs it, shows the
// output, and goes on until the model gives an answer.
package shell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// DefaultPrompt is the system prompt of arms without one.
const DefaultPrompt = "You work in a shell. Reply with one command between ```sh and ```, and its output is " +
	"shown to you. " +
	"When the task is done, reply with a last line that begins with ANSWER: instead."

// An Agent is safe for several sessions at once.
type Agent struct {
	Prompt  string // "": DefaultPrompt
	Options Options
}

var (
	command = regexp.MustCompile("(?s)```sh\n(.*?)```")
	answer  = regexp.MustCompile(`(?m)^ANSWER:\s*(.*)$`)
)

// Run plays one stage. Limits on steps, tokens, money and time are the harness's: they arrive as
// errors of Generate and Step, which an agent passes on.
func (a *Agent) Run(ctx context.Context, s *agent.Session) (agent.Answer, error) {
	m, err := s.Model("main")
	if err != nil {
		return agent.Answer{}, err
	}
	talk := []model.Message{say(model.System, cmp.Or(a.Prompt, DefaultPrompt)), say(model.User, s.Goal.Text())}
	for {
		reply, err := m.Generate(ctx, &model.Request{Messages: talk})
		if err != nil {
			return agent.Answer{}, err
		}
		text := event.PlainText(reply.Parts)
		talk = append(talk, say(model.Assistant, text))
		if found := answer.FindStringSubmatch(text); found != nil {
			return agent.Answer{Parts: event.Text(found[1])}, nil
		}
		found := command.FindStringSubmatch(text)
		if found == nil {
			talk = append(talk, say(model.User, "There is neither a command nor an answer in this."))
			continue
		}
		obs, err := s.Step(ctx, event.New(event.FromAgent, event.Run{Command: found[1]}))
		if errors.Is(err, agent.ErrDone) {
			return agent.Answer{}, nil
		}
		if err != nil {
			return agent.Answer{}, err
		}
		talk = append(talk, say(model.User, a.show(obs.Body)))
	}
}

// show is an observation as the model reads it.
func (a *Agent) show(body event.Body) string {
	var text string
	switch b := body.(type) {
	case event.RunResult:
		text = fmt.Sprintf("exit status %d\n%s", b.Code, b.Output)
	case event.Error:
		text = "error: " + b.Text
	default:
		text = "there is no output"
	}
	text = strings.ToValidUTF8(text, "�")
	if shown := cmp.Or(a.Options.Shown, 4000); len(text) > shown {
		text = strings.ToValidUTF8(text[:shown], "") + "\n(cut)"
	}
	return text
}

func say(role, text string) model.Message { return model.Message{Role: role, Parts: event.Text(text)} }
