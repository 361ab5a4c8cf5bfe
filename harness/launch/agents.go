package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/codeact"
	"github.com/evalrun/evalrun/agent/command"
	"github.com/evalrun/evalrun/agent/nop"
	"github.com/evalrun/evalrun/agent/script"
	"github.com/evalrun/evalrun/agent/webagent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/internal/fsutil"
)

func agentKinds() []agentKind {
	return []agentKind{
		{config.Kind{Name: "oracle", Doc: "the known solution; earns the full score where benchmark and machine are sound"}, openOracle},
		{config.Kind{Name: "nop", Doc: "does nothing; what it earns is given away"}, openNop},
		{config.Kind{Name: "script", Arg: "FILE", IsPath: true, Model: true, Doc: "fixed actions from a file",
			Define: digestOfFile, Check: checkScript}, openScript},
		{config.Kind{Name: "command", Arg: "LINE", Optional: true, Model: true, Prompt: true, Options: optionsOf[command.Config](), Paths: []string{"files"},
			Doc: "an external program, inside the sandbox or beside evalrun", Define: digestOfFiles, Check: checkCommand}, openCommand},
		{config.Kind{Name: "codeact", Model: true, NeedsModel: true, Prompt: true, Options: optionsOf[codeactOptions](),
			Doc: "a model with a shell, or a browser"}, openCodeact},
		{config.Kind{Name: "browse", Model: true, NeedsModel: true, Prompt: true, Options: optionsOf[webagent.Config](),
			Doc: "a model with a browser", Check: checkBrowse}, openBrowse},
	}
}

// fixed is the maker of an agent that serves all sessions.
func fixed(a agent.Agent) maker {
	return func(benchmarks.Benchmark, datasets.Task) (agent.Agent, error) { return a, nil }
}

func openNop(*armContext) (maker, error) { return fixed(nop.Agent), nil }

func openOracle(*armContext) (maker, error) {
	return func(b benchmarks.Benchmark, t datasets.Task) (agent.Agent, error) {
		o, ok := b.(benchmarks.Oracle)
		if !ok {
			return nil, fmt.Errorf("benchmark %s knows no solutions", b.Name())
		}
		return o.Solve(t)
	}, nil
}

func digestOfFile(path string, _ json.RawMessage) (any, error) {
	b, err := fsutil.ReadFile(path, 0)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	return map[string]string{"sha256": hex.EncodeToString(sum[:])}, nil
}

func checkScript(path string, _ json.RawMessage) error {
	_, err := script.Load(path)
	return err
}

func openScript(a *armContext) (maker, error) {
	s, err := script.Load(a.arm.Agent.Arg)
	if err != nil {
		return nil, err
	}
	return func(_ benchmarks.Benchmark, t datasets.Task) (agent.Agent, error) { return s.For(t.ID), nil }, nil
}

// commandConfig is an agent's configuration; the short form command:LINE is a shell command inside
// the sandbox.
func commandConfig(line string, options json.RawMessage) (command.Config, error) {
	m := map[string]json.RawMessage{}
	if len(options) > 0 {
		if err := json.Unmarshal(options, &m); err != nil {
			return command.Config{}, err
		}
	}
	if line != "" {
		if m["run"] != nil {
			return command.Config{}, errors.New("command:LINE and options.run say the same thing; give one of them")
		}
		b, err := json.Marshal(line)
		if err != nil {
			return command.Config{}, err
		}
		m["run"] = b
	}
	if m["where"] == nil {
		m["where"] = json.RawMessage(`"` + command.InSandbox + `"`)
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return command.Config{}, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return command.Config{}, err
	}
	return command.Parse(raw, dir)
}

func checkCommand(line string, options json.RawMessage) error {
	_, err := commandConfig(line, options)
	return err
}

func digestOfFiles(line string, options json.RawMessage) (any, error) {
	c, err := commandConfig(line, options)
	if err != nil {
		return nil, err
	}
	sum, err := c.FilesDigest()
	if err != nil || sum == "" {
		return nil, err
	}
	return map[string]string{"files": sum}, nil
}

func openCommand(a *armContext) (maker, error) {
	c, err := commandConfig(a.arm.Agent.Arg, a.options)
	if err != nil {
		return nil, err
	}
	c.Prompt = a.prompt
	if len(a.secrets) > 0 && c.Env == nil {
		c.Env = map[string]string{}
	}
	for k, v := range a.secrets {
		c.Env[k] = v
	}
	return func(benchmarks.Benchmark, datasets.Task) (agent.Agent, error) { return c.Agent(a.machine), nil }, nil
}

// openAgent makes the maker of an arm's agents.
func (r *Ready) openAgent(arm *config.Arm) (maker, error) {
	env := r.env
	for _, k := range agentKinds() {
		if k.Name != arm.Agent.Name {
			continue
		}
		a := &armContext{arm: arm, options: arm.Agent.Options, secrets: map[string]string{}, machine: r.beside, blind: r.browsers.Record.NoScreenshot}
		if arm.Prompt != nil {
			a.prompt = arm.Prompt.Text
		}
		for name, ref := range arm.Agent.Secrets {
			v, err := env.Secret(ref)
			if err != nil {
				return nil, fmt.Errorf("arm %s: secret %s: %w", arm.Name, name, err)
			}
			a.secrets[name] = v
		}
		m, err := k.open(a)
		if err != nil {
			return nil, fmt.Errorf("arm %s: %w", arm.Name, err)
		}
		return m, nil
	}
	return nil, fmt.Errorf("unknown agent %q", strings.TrimSpace(arm.Agent.Name))
}

// codeactOptions are codeact's own options.
type codeactOptions struct {
	GoOn     string `json:"go_on,omitempty" doc:"What a reply without a tool call is answered with."`
	MaxIdle  int    `json:"max_idle,omitempty" doc:"How many such replies in a row are answered so; the next one is the answer. Default 2, -1: none."`
	MaxChars int    `json:"max_chars,omitempty" min:"0" doc:"Characters of an observation that the model is shown. Default 30000."`

	Screenshot  string `json:"screenshot,omitempty" enum:"none,plain,marks" doc:"Where there is a browser, a picture with each observation of it: as it is, or with the bids of what can be acted on (marks). The model must take images. Default none."`
	Pages       int    `json:"pages,omitempty" doc:"How many observations of a browser the model is shown, the newest; of older ones only the address is left. -1: all. Default 1."`
	OnlyVisible bool   `json:"only_visible,omitempty" doc:"Of a page, show only what is visible."`
}

func openCodeact(a *armContext) (maker, error) {
	var o codeactOptions
	if len(a.options) > 0 {
		if err := json.Unmarshal(a.options, &o); err != nil {
			return nil, err
		}
	}
	if err := sees(a, o.Screenshot); err != nil {
		return nil, err
	}
	return fixed(codeact.New(codeact.Config{Prompt: a.prompt, GoOn: o.GoOn, MaxIdle: o.MaxIdle, MaxChars: o.MaxChars,
		Picture: o.Screenshot, Pages: o.Pages, Visible: o.OnlyVisible})), nil
}

func browseConfig(options json.RawMessage) (c webagent.Config, err error) {
	if len(options) > 0 {
		err = json.Unmarshal(options, &c)
	}
	return c, err
}

func checkBrowse(_ string, options json.RawMessage) error {
	c, err := browseConfig(options)
	if err != nil {
		return err
	}
	return c.Check()
}

func openBrowse(a *armContext) (maker, error) {
	c, err := browseConfig(a.options)
	if err != nil {
		return nil, err
	}
	if err := sees(a, c.Screenshot); err != nil {
		return nil, err
	}
	c.System = a.prompt
	made, err := webagent.New(c)
	if err != nil {
		return nil, err
	}
	return func(b benchmarks.Benchmark, t datasets.Task) (agent.Agent, error) {
		n, err := b.Needs(t, benchmarks.Options{})
		if err != nil {
			return nil, err
		}
		if !n.Browser && n.Skip == "" {
			return nil, errors.New("agent browse: this task has no browser; set sandbox.browser: true to have one beside its machine, or use the agent codeact")
		}
		return made, nil
	}, nil
}

// sees refuses to show pictures where there are none, or to a model that is known to take none.
func sees(a *armContext, screenshot string) error {
	if screenshot == "" || screenshot == "none" {
		return nil
	}
	if a.blind {
		return fmt.Errorf("the agent's option screenshot is %s, but browser.screenshots is false: there would be none to show; set one of them otherwise", screenshot)
	}
	if m := a.arm.Model; m != nil && m.Images != nil && !*m.Images {
		return fmt.Errorf("the agent's option screenshot is %s, but the model %s takes no images (images: false); set screenshot: none, or name another model", screenshot, m.Name)
	}
	return nil
}
