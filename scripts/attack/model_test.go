package attack

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model/modeltest"
)

// modelRows are services that misbehave, an arm each; codeact is the agent. faults are for the
// first requests, the service is well after them; all says that it never is.
func modelRows(t *testing.T) []row {
	if evalrun == "" {
		return nil
	}
	yes := modeltest.Reply{Calls: []event.ReplyCall{{ID: "c1", Name: "finish", Args: `{"message":"yes"}`}},
		Usage: event.Usage{In: 10, Out: 2}}
	arms := []struct {
		name   string
		faults []modeltest.Fault
		all    bool
		reply  *modeltest.Reply // first; nil: yes
		want   string
		fault  string
	}{
		{name: "well", want: "scored answered 1"},
		{name: "429-seconds", faults: []modeltest.Fault{modeltest.RateSeconds(time.Second)}, want: "scored answered 1"},
		{name: "429-millis", faults: []modeltest.Fault{modeltest.RateMillis(200 * time.Millisecond)},
			want: "scored answered 1"},
		{name: "429-date", faults: []modeltest.Fault{modeltest.RateDate(2 * time.Second)}, want: "scored answered 1"},
		{name: "429-plain", faults: []modeltest.Fault{modeltest.Rate}, want: "scored answered 1"},
		{name: "429-always", faults: []modeltest.Fault{modeltest.RateMillis(50 * time.Millisecond)}, all: true,
			want: "provider rate"},
		{name: "quota", faults: []modeltest.Fault{modeltest.Quota}, all: true, want: "provider quota"},
		{name: "500-once", faults: []modeltest.Fault{modeltest.ServerError}, want: "scored answered 1"},
		{name: "500-always", faults: []modeltest.Fault{modeltest.ServerError}, all: true, want: "provider overload"},
		{name: "401", faults: []modeltest.Fault{modeltest.BadKey}, all: true, want: "provider auth"},
		{name: "cut-once", faults: []modeltest.Fault{modeltest.Cut(true)}, want: "scored answered 1"},
		{name: "cut-always", faults: []modeltest.Fault{modeltest.Cut(false)}, all: true, want: "provider network"},
		{name: "dropped", faults: []modeltest.Fault{modeltest.Drop}, all: true, want: "provider network"},
		{name: "invalid-json", faults: []modeltest.Fault{modeltest.InvalidJSON}, all: true, want: "provider"},
		{name: "html", faults: []modeltest.Fault{modeltest.HTML}, all: true, want: "provider"},
		{name: "empty-choices", faults: []modeltest.Fault{modeltest.EmptyChoices}, all: true, want: "provider"},
		{name: "wrong-arguments", reply: &modeltest.Reply{
			Calls: []event.ReplyCall{{ID: "c0", Name: "execute_bash", Args: `{"cmd`},
				{ID: "c1", Name: "no_such", Args: `{}`}}}, want: "scored answered 1"},
		{name: "too-long", faults: []modeltest.Fault{modeltest.TooLong}, all: true, want: "scored broke 0",
			fault: "context"},
		{name: "refused", faults: []modeltest.Fault{modeltest.Filtered}, all: true, want: "scored broke 0",
			fault: "refused"},
		{name: "bad-request", faults: []modeltest.Fault{modeltest.BadRequest}, all: true, want: "infra request"},
		{name: "slow-first-byte", faults: []modeltest.Fault{modeltest.Slow(3 * time.Second)},
			want: "scored answered 1"},
		{name: "dead-host", want: "provider network"},
	}
	r := row{group: "model", name: "services", files: map[string]string{"tasks.yaml": one},
		args: []string{"run", "c.yaml"}, exit: 3,
		env: []string{"ATTACK_KEY=sk-secret-0123456789"}, trials: map[string]string{}, errors: map[string]string{}}
	var conf strings.Builder
	conf.WriteString("benchmark: tasks:tasks.yaml\nsandbox: {driver: local}\nworkers: 8\nretries: {attempts: " +
		"1}\nagent: codeact\narms:\n")
	for _, a := range arms {
		url := ""
		if a.name == "dead-host" {
			url = modeltest.DeadURL(t)
		} else {
			url = modeltest.NewServer(t, func(c modeltest.Call) modeltest.Reply {
				reply := yes
				if a.reply != nil && c.N == 0 {
					reply = *a.reply
				}
				if c.N < len(a.faults) {
					reply.Fault = a.faults[c.N]
				} else if a.all {
					reply.Fault = a.faults[len(a.faults)-1]
				}
				return reply
			}).URL
		}
		fmt.Fprintf(&conf, "  - {name: %q, model: {name: openai/test, base_url: %q, key: '${ATTACK_KEY}', tries: 3, "+
			"patience: 5s}}\n", a.name, url)
		key := a.name + "/bystander"
		r.trials[key], r.errors[key] = a.want, a.fault
	}
	r.files["c.yaml"] = conf.String()
	r.check = func(t *testing.T, w *work) {
		tellsPlainly(t, w)
		holdsNo(t, w, "sk-secret-0123456789")
	}
	return []row{r}
}
