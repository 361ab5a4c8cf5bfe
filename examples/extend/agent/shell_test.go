package shell

import (
	"context"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/modeltest"
)

// A model that asks for one command and then answers with what it was shown.
func clerk(_ context.Context, _ model.Binding, _ int, req *model.Request) (*model.Response, error) {
	last := event.PlainText(req.Messages[len(req.Messages)-1].Parts)
	reply := modeltest.Text("Let me look.\n```sh\ncat name.txt\n```")
	if len(req.Messages) > 2 {
		reply = modeltest.Text("ANSWER: " + last[strings.LastIndex(last, "\n")+1:])
	}
	return &reply, nil
}

func setup(*testing.T) agenttest.Setup {
	return agenttest.Setup{
		Goal: "What is in name.txt?", Model: modeltest.Func(clerk).Client(),
		Outputs: map[string]string{"cat name.txt\n": "Ada"},
	}
}

func TestSuite(t *testing.T) {
	agenttest.Run(t, agenttest.Suite{New: func(*testing.T) agent.Agent { return new(Agent) }, Setup: setup})
}

func TestAnswer(t *testing.T) {
	ans, err := new(Agent).Run(t.Context(), agenttest.NewSession(setup(t)))
	if err != nil || ans.Text() != "Ada" {
		t.Errorf("answer %q, %v; want Ada", ans.Text(), err)
	}
}

func TestShown(t *testing.T) {
	a := &Agent{Options: Options{Shown: 100}}
	if got := a.show(event.RunResult{Output: strings.Repeat("é", 500)}); len(got) > 110 ||
		!strings.HasSuffix(got, "é\n(cut)") {
		t.Errorf("shown %q", got)
	}
}
