package launch

import (
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/config"
)

// maker creates the agent of one session; see harness.Arm.Agent.
type maker = func(b benchmarks.Benchmark, t datasets.Task) (agent.Agent, error)

// openAgent returns the function that creates an arm's agents.
func (r *Ready) openAgent(arm *config.Arm) (maker, error) {
	k := r.o.Kinds.Agent(arm.Agent.Name)
	if k == nil {
		return nil, fmt.Errorf("unknown agent %q", strings.TrimSpace(arm.Agent.Name))
	}
	s := agent.Setup{Arg: arm.Agent.Arg, Options: arm.Agent.Options, Secrets: map[string]string{}, Machine: r.beside,
		NoPictures: r.browsers.Record.NoScreenshot}
	if m := arm.Model; m != nil && m.Images != nil && !*m.Images {
		s.BlindModel = m.Name
	}
	if arm.Prompt != nil {
		s.Prompt = arm.Prompt.Text
	}
	for name, ref := range arm.Agent.Secrets {
		v, err := r.env.Secret(ref)
		if err != nil {
			return nil, fmt.Errorf("arm %s: secret %s: %w", arm.Name, name, err)
		}
		s.Secrets[name] = v
	}
	mk, err := k.Open(s)
	if err == nil && mk == nil {
		err = fmt.Errorf("agent %s: %w", k.Name, errNoValue)
	}
	if err != nil {
		return nil, fmt.Errorf("arm %s: %w", arm.Name, err)
	}
	return func(b benchmarks.Benchmark, t datasets.Task) (agent.Agent, error) {
		return mk(agent.Task{
			ID: t.ID,
			Browser: func() (bool, error) {
				n, err := b.Needs(t, benchmarks.Options{})
				return n.Browser || n.Skip != "", err
			},
			Solve: func() (agent.Agent, error) {
				o, ok := b.(benchmarks.Oracle)
				if !ok {
					return nil, benchmarks.NoSolution("benchmark %s knows no solutions", b.Name())
				}
				return o.Solve(t)
			},
		})
	}, nil
}
