package harbor

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/benchmarks/harbor/format"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestPolicies(t *testing.T) {
	task := load(t, `
[environment]
network_mode = "no-network"
[agent]
network_mode = "allowlist"
allowed_hosts = ["a.org"]
[verifier]
network_mode = "public"
[[steps]]
name = "one"
[[steps]]
name = "two"
[steps.agent]
network_mode = "no-network"
[steps.verifier.environment]
docker_image = "i"
network_mode = "allowlist"
allowed_hosts = ["v.org"]
`, map[string]string{"steps/one/instruction.md": "x", "steps/two/instruction.md": "x"})
	none, public := sandbox.Network{Mode: "none"}, sandbox.Network{Mode: "public"}
	list := func(h ...string) sandbox.Network { return sandbox.Network{Mode: "allow", Allow: h} }
	b := &Benchmark{}
	for i, want := range []policies{{none, list("a.org"), public}, {none, none, public}} {
		if d := cmp.Diff(want, b.policies(task, i, benchmarks.Options{})); d != "" {
			t.Error(i, d)
		}
	}
	b.o = Options{AllowHosts: []string{"x.org"}, AgentAllowHosts: []string{"m.org"}}
	for i, want := range []policies{{list("x.org"), list("a.org", "x.org", "m.org"), public},
		{list("x.org"), list("x.org", "m.org"), public}} {
		if d := cmp.Diff(want, b.policies(task, i, benchmarks.Options{})); d != "" {
			t.Error("with more hosts", i, d)
		}
	}
	g, err := b.verifierMachine(task, 1, nil, benchmarks.Options{}, b.allowedVariables())
	if err != nil || !cmp.Equal(g.Spec.Network, list("v.org", "x.org")) || !g.Spec.Rewire {
		t.Errorf("%+v %v", g, err)
	}
	// What the run's own configuration says of the agent's machine holds in all its phases.
	o := benchmarks.Options{Sandbox: sandbox.Spec{Network: none}}
	if d := cmp.Diff(policies{none, none, none}, b.policies(task, 0, o)); d != "" {
		t.Error(d)
	}
	main, err := (&Benchmark{}).agentMachine(task, nil, o, b.allowedVariables())
	if err != nil || main.Spec.Rewire {
		t.Errorf("%+v %v", main, err)
	}
}

// A task cannot open this host's services or network to itself; the run's configuration can.
func TestNotPublic(t *testing.T) {
	list := func(hosts string) string { return "{network_mode='allowlist', allowed_hosts=[" + hosts + "]}" }
	steps := map[string]string{"steps/a/instruction.md": "x"}
	for _, c := range []struct {
		options, toml string
		over          map[string]string
		run           sandbox.Network
		want          string
	}{
		{"", "environment = " + list("'pypi.org', '0.0.0.0/0', '192.0.0.0/2', '8.8.8.8', 'localhost'"), nil,
			sandbox.Network{}, ""},
		{"", "environment = " + list("'127.0.0.1', 'pypi.org'"), nil, sandbox.Network{},
			"its allow-list opens 127.0.0.1, not"},
		{"", "environment = " + list("'10.1.0.0/16', '169.254.169.254', '::1'"), nil, sandbox.Network{},
			"add allow_hosts: [10.1.0.0/16, 169.254.169.254, ::1] to harbor"},
		{"", "agent = " + list("'192.168.1.1'"), nil, sandbox.Network{}, "opens 192.168.1.1,"},
		{"", "verifier = " + list("'fe80::/10'"), nil, sandbox.Network{}, "opens fe80::/10,"},
		{"", "[[steps]]\nname='a'\nagent=" + list("'10.0.0.1'"), steps, sandbox.Network{}, "opens 10.0.0.1,"},
		{"", "[verifier.environment]\ndocker_image='i'\nnetwork_mode='allowlist'\nallowed_hosts=['10.0.0.1']", nil,
			sandbox.Network{}, "opens 10.0.0.1,"},
		// What is known in another way of writing, too.
		{"", "environment = " + list("'::ffff:10.0.0.1'"), nil, sandbox.Network{}, "opens 10.0.0.1,"},
		{"", "environment = " + list("'2130706433'"), nil, sandbox.Network{}, "is no address in the usual form"},

		{`{"allow_hosts": ["10.1.0.0/16"]}`, "environment = " + list("'10.1.0.0/16'"), nil, sandbox.Network{}, ""},
		{`{"allow_hosts": ["10.0.0.0/8"]}`, "environment = " + list("'10.1.0.0/16', '10.2.3.4'"), nil,
			sandbox.Network{}, ""},
		{`{"allow_hosts": ["10.1.0.0/16"]}`, "environment = " + list("'10.0.0.0/8'"), nil, sandbox.Network{},
			"opens 10.0.0.0/8,"},
		{`{"allow_hosts": ["0.0.0.0/0"]}`, "environment = " + list("'127.0.0.1'"), nil, sandbox.Network{},
			"opens 127.0.0.1,"},
		{`{"agent_allow_hosts": ["10.0.0.1"]}`, "agent = " + list("'10.0.0.1'"), nil, sandbox.Network{}, ""},
		{`{"agent_allow_hosts": ["10.0.0.1"]}`, "verifier = " + list("'10.0.0.1'"), nil, sandbox.Network{},
			"opens 10.0.0.1,"},

		// The run's own policy takes the place of the task's, but for a separate verifier's.
		{"", "environment = " + list("'127.0.0.1'"), nil, sandbox.Network{Mode: "public"}, ""},
		{"", "[verifier.environment]\ndocker_image='i'\nnetwork_mode='allowlist'\nallowed_hosts=['10.0.0.1']", nil,
			sandbox.Network{Mode: "none"}, "opens 10.0.0.1,"},
		{"", "[verifier.environment]\ndocker_image='i'\nnetwork_mode='allowlist'\nallowed_hosts=['10.0.0.1']", nil,
			sandbox.Network{Mode: "allow", Allow: []string{"10.0.0.0/24"}}, ""},
	} {
		n := needs(t, c.options, c.toml, c.over, benchmarks.Options{Sandbox: sandbox.Spec{Network: c.run}})
		if c.want == "" && n.Skip != "" || !strings.Contains(n.Skip, c.want) {
			t.Errorf("%s %s %+v: %q", c.toml, c.options, c.run, n.Skip)
		}
	}
}

func TestOptions(t *testing.T) {
	o, err := parseOptions(json.RawMessage(`{"timeout_multiplier": 2, "verifier_timeout_multiplier": 0.5}`))
	if err != nil {
		t.Fatal(err)
	}
	x, forever := o.times(), format.Seconds(1e12)
	if x.Agent(100) != 200 || x.Verifier(100) != 50 || x.Build(100) != 200 || x.Setup(0) != 0 ||
		x.Agent(forever) != forever {
		t.Error("multipliers")
	}
	check := &sandbox.Health{Timeout: time.Minute, StartPeriod: time.Hour, Interval: time.Second, Retries: 2}
	if h := x.Health(check); h.Timeout != 2*time.Minute || h.StartPeriod != 2*time.Hour || h.Interval != time.Second ||
		check.Timeout != time.Minute || x.Health(nil) != nil {
		t.Errorf("a health check: %+v", h)
	}
	var n benchmarks.Needs
	(&Benchmark{o: o}).phaseTimes(&format.Task{Steps: []format.Step{{Health: check, Verifier: format.Verifier{
		Timeout: time.Hour, Separate: true, Environment: &format.Environment{Health: check},
		Collect: []format.Hook{{Timeout: 10 * time.Minute}},
	}}}}, &n)
	if patient := 2*time.Hour + 3*(2*time.Minute+time.Second); n.Setup != overhead+patient ||
		n.Collect != overhead+5*time.Minute || n.Grade != overhead+time.Hour/2+patient {
		t.Errorf("phases: %v, %v, %v", n.Setup, n.Collect, n.Grade)
	}
	_, err = parseOptions(json.RawMessage(
		`{"timeout_multiplier": -1, "build_timeout_multiplier": 0, "env": ["a b"], "allow_hosts": ["http://x"], "gpus": "yes", "integrity": "no", "n_tasks": -1}`))
	for _, want := range []string{"timeout_multiplier: -1", "build_timeout_multiplier: 0", `"a b" is no name`,
		`"http://x" is a URL`, "want skip or ignore", "want one of off, flag, confirm, confirm-all, require",
		"must not be negative"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if _, err := parseOptions(json.RawMessage(`{"nope": 1}`)); err == nil {
		t.Error("an unknown option")
	}
}
