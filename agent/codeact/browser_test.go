package codeact_test

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/codeact"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/webtext"
	"github.com/evalrun/evalrun/browsergym/action"
)

// site is an environment with a browser whose page tells how many actions there were.
func site(t *testing.T, kinds ...string) (agenttest.Setup, *agenttest.Log) {
	log := &agenttest.Log{}
	put := func(kind, s string) *event.Blob {
		b, err := log.PutBlob(t.Context(), kind, strings.NewReader(s))
		if err != nil {
			t.Fatal(err)
		}
		return &b
	}
	var shot bytes.Buffer
	if err := png.Encode(&shot, image.NewRGBA(image.Rect(0, 0, 50, 50))); err != nil {
		t.Fatal(err)
	}
	n := 0
	return agenttest.Setup{Log: log, Kinds: kinds, Step: func(_ context.Context, e event.Event) (event.Body, error) {
		switch b := e.Body.(type) {
		case event.Browse:
			n++
			o := event.Browsed{URL: "http://site/" + strings.Repeat("x", n), Action: b.Code, Focused: "7"}
			o.AX = put("application/json",
				`{"nodes":[{"nodeId":"1","role":{"value":"button"},"name":{"value":"go `+strings.Repeat("x", n)+
					`"},"browsergym_id":"7"}]}`)
			o.Properties = put("application/json",
				`{"7":{"visibility":1,"bbox":[1,1,20,20],"clickable":true,"set_of_marks":true}}`)
			o.Screenshot = put("image/png", shot.String())
			if strings.Contains(b.Code, "bad") {
				o.Error = "ValueError: no"
			}
			return o, nil
		case event.Invalid:
			return event.Error{Text: b.Why}, nil
		}
		return event.Ack{Of: e.Body.Kind()}, nil
	}}, log
}

func TestBrowser(t *testing.T) {
	setup, log := site(t, "run", "browse_interactive")
	_, reqs, ans, err := play(t, codeact.Config{Picture: "marks"}, setup,
		modeltest.Calls("browser", `{"code":"goto('http://site/')"}`),
		modeltest.Calls("browser", `{"code":"click('bad')"}`, "browser", `{"code":" "}`),
		modeltest.Calls("finish", `{"message":"42"}`))
	if err != nil || ans.Text() != "42" {
		t.Fatalf("%+v, %v", ans, err)
	}
	var names []string
	for _, tool := range reqs[0].Tools {
		names = append(names, tool.Name)
	}
	if d := cmp.Diff([]string{"execute_bash", "browser", "finish"}, names); d != "" {
		t.Error(d)
	}
	set, err := action.New(action.Options{Subsets: []string{"bid", "nav"}})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(set.Specs()); n != 15 {
		t.Errorf("%d actions", n)
	}
	for _, s := range set.Specs() {
		if !strings.Contains(reqs[0].Tools[1].Description, "\n"+s.Signature()+"\n") {
			t.Errorf("the tool does not tell of %s", s.Signature())
		}
	}
	first := reqs[1].Messages[3]
	want := "[Current URL: http://site/x]\n[Focused element bid: 7]\n\n[Action executed successfully.]\n"
	if got := event.PlainText(first.Parts); !strings.HasPrefix(got, want) ||
		!strings.Contains(got, "[7] button 'go x', clickable\n=======") {
		t.Errorf("observation:\n%s", got)
	}
	if b := first.Parts[1].Blob; b == nil || b.Type != "image/png" {
		t.Errorf("parts %+v", first.Parts)
	} else if r, err := log.OpenBlob(t.Context(), *b); err != nil {
		t.Error(err)
	} else {
		r.Close()
	}
	last := reqs[2].Messages
	if got := event.PlainText(last[3].Parts); got != "Visited URL http://site/x\nContent omitted" ||
		len(last[3].Parts) != 1 {
		t.Errorf("an older observation: %q", got)
	}
	if got := event.PlainText(last[5].Parts); !strings.Contains(got,
		"BEGIN error message ===============\nThe action failed:\nValueError: no\n") {
		t.Errorf("observation:\n%s", got)
	}
	if got := event.PlainText(last[6].Parts); !strings.Contains(got, "code is missing or empty") {
		t.Errorf("an empty call: %q", got)
	}
}

// A task that begins in a browser is looked at first, and its own tool is what the model gets.
func TestBrowserTask(t *testing.T) {
	setup, _ := site(t, "browse_interactive")
	tool, err := webtext.Tool(action.Options{Subsets: []string{"miniwob_liu18"}, Single: true})
	if err != nil {
		t.Fatal(err)
	}
	setup.Tools = []agent.Tool{tool}
	log, reqs, _, err := play(t, codeact.Config{Pages: 2}, setup,
		modeltest.Calls("browser", `{"code":"click('7')"}`), modeltest.Calls("browser", `{"code":"click('7')"}`),
		modeltest.Calls("finish", `{"message":""}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := event.PlainText(reqs[0].Messages[2].Parts); !strings.HasPrefix(got,
		"What was done without you: a look at the browser\n[Current URL: http://site/x]") {
		t.Errorf("first look: %q", got)
	}
	if got := event.PlainText(reqs[0].Messages[0].Parts); got != codeact.BrowserPrompt {
		t.Errorf("prompt %q", got)
	}
	if len(reqs[0].Tools) != 2 || strings.Contains(reqs[0].Tools[1].Description, "goto") ||
		!strings.Contains(reqs[0].Tools[1].Description, "3 kinds of actions") {
		t.Errorf("tools %+v", reqs[0].Tools)
	}
	last := reqs[2].Messages
	if got := event.PlainText(last[2].Parts); got != "What was done without you: a look at the browser\nVisited URL "+
		"http://site/x\nContent omitted" {
		t.Errorf("the first look later: %q", got)
	}
	if got := event.PlainText(last[4].Parts); !strings.Contains(got, "BEGIN accessibility tree") {
		t.Errorf("the last but one: %q", got)
	}
	if e := log.All()[2]; e.Body.(event.Browse).Code != "" {
		t.Errorf("first action %+v", e)
	}
}

type blind struct{ model.Client }

func (blind) Info() model.Info { return model.Info{Name: "blind", Tools: true} }

func TestBrowserBlind(t *testing.T) {
	setup, _ := site(t, "browse_interactive")
	setup.Model = blind{modeltest.Script().Client()}
	if _, err := codeact.New(codeact.Config{Picture: "plain"}).Run(t.Context(),
		agenttest.NewSession(setup)); err == nil || !strings.Contains(err.Error(), "takes no images") {
		t.Errorf("%v", err)
	}
}
