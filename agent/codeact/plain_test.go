package codeact_test

import (
	"testing"

	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/codeact"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model/modeltest"
)

// A model is not told of a sandbox that it does not have.
func TestPlainPrompt(t *testing.T) {
	for _, c := range []struct {
		kinds []string
		want  string
	}{{nil, codeact.DefaultPrompt}, {[]string{"tool"}, codeact.PlainPrompt}} {
		_, reqs, _, err := play(t, codeact.Config{}, agenttest.Setup{Kinds: c.kinds},
			modeltest.Calls("finish", `{"message":"42"}`))
		if err != nil || len(reqs) != 1 {
			t.Fatal(len(reqs), err)
		}
		if got := event.PlainText(reqs[0].Messages[0].Parts); got != c.want {
			t.Errorf("kinds %v: the model was told: %s", c.kinds, got)
		}
	}
}
