package harbor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks/harbor/verify"

	"github.com/evalrun/evalrun/benchmarks/harbor/format"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// evidence is what evidence says beside answer and files.
type evidence struct {
	Options json.RawMessage `json:"wishes,omitempty"`
	// Broken says why the step could not be played, although the machine answered; it scores 0.
	Broken    string            `json:"broken,omitempty"`
	Artifacts []verify.Artifact `json:"artifacts,omitempty"`
	// Work is what a second opinion is played with; nil where the verifier is separate.
	Work *verify.Work `json:"work,omitempty"`
}

// Collect runs the hooks and keeps the artifacts: main's first, while what the agent left still
// runs there; then, where the verifier has a machine of its own, main's processes end, so that the
// sidecars' evidence is out of the agent's reach.
func (e *episode) Collect(ctx context.Context, ans agent.Answer) (benchmarks.Evidence, error) {
	i := max(e.next-1, 0)
	s := &e.task.Steps[i]
	ev := benchmarks.Evidence{Stage: i, Answer: ans}
	d := evidence{Options: sandboxed.SaveOptions(e.o), Broken: e.broken}
	if err := e.setNetwork(ctx, e.b.policies(e.task, i, e.o).Start); err != nil {
		return ev, err
	}
	var found verify.Collection
	if !s.Verifier.Separate && e.guard != nil && e.broken == "" { // before hooks, whose changes are not the agent's
		var err error
		if found, err = e.guard.Collect(ctx, e.h.Log()); err != nil {
			return ev, err
		}
		d.Work, ev.Changes, ev.Work = found.Work, found.Changes, found.Origins
	}
	c := &verify.Collector{Log: e.h.Log()}
	if err := e.hooks(ctx, s, e.Started(), format.MainService); err != nil {
		return ev, err
	}
	if err := c.Collect(ctx, e.sb, e.dir, format.Artifact{Source: format.ArtifactsDir}); err != nil {
		return ev, err
	}
	if err := e.artifacts(ctx, c, s, e.sb, format.MainService); err != nil {
		return ev, err
	}
	if s.Verifier.Separate {
		if err := e.sb.KillAll(ctx); err != nil {
			return ev, err
		}
	}
	for _, name := range e.sidecars(s) {
		sb, err := e.service(name)
		if err != nil {
			return ev, err
		}
		if err := e.hooks(ctx, s, sb, name); err != nil {
			return ev, err
		}
		if err := e.artifacts(ctx, c, s, sb, name); err != nil {
			return ev, err
		}
	}
	var err error
	if ev.Files, d.Artifacts, err = c.Finish(ctx); err != nil {
		return ev, err
	}
	maps.Copy(ev.Files, found.Files)
	ev.Data, err = json.Marshal(d)
	return ev, err
}

// sidecars are the services that a step asks something of, in order.
func (e *episode) sidecars(s *format.Step) (names []string) {
	add := func(n string) {
		if n != "" && n != format.MainService && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	for _, h := range s.Verifier.Collect {
		add(h.Service)
	}
	for _, a := range s.Artifacts {
		add(a.Service)
	}
	return names
}

func (e *episode) service(name string) (sandbox.Sandbox, error) {
	if grp, ok := sandbox.As[sandbox.Group](e.sb); ok {
		if sb, ok := grp.Service(name); ok {
			return sb, nil
		}
	}
	return nil, e.taskError("there is no service %q to collect from", name)
}

func (e *episode) artifacts(ctx context.Context, c *verify.Collector, s *format.Step, sb sandbox.Sandbox,
	service string) error {
	for _, a := range s.Artifacts {
		if a.Service == service || a.Service == "" && service == format.MainService {
			if err := c.Collect(ctx, sb, e.dir, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// hooks runs the hooks of one service. What they leave with is noted and decides nothing, as in
// Harbor.
func (e *episode) hooks(ctx context.Context, s *format.Step, sb sandbox.Sandbox, service string) error {
	shell := "bash"
	if service != format.MainService {
		shell = "sh"
	}
	for _, h := range s.Verifier.Collect {
		if h.Service != service && !(h.Service == "" && service == format.MainService) {
			continue
		}
		if service == format.MainService && e.guard != nil {
			e.guard.Ran("a collect hook")
		}
		limit := e.b.o.times().Verifier(h.Timeout)
		var out sandboxed.Tail
		x, err := sb.Exec(ctx, sandbox.Command{Args: []string{shell, "-c", h.Command}, User: h.User, Stdout: &out,
			Limit: 64 << 10, FullLimit: -1, Timeout: limit})
		if err != nil && !verify.Responds(ctx, e.sb) {
			return err
		}
		said := x.How(limit)
		if err != nil {
			said = "could not run: " + sandboxed.Cause(err).Error()
		}
		note := fmt.Sprintf("collect hook of %s %s: %s", service, said, out.String())
		if err := sandboxed.Note(ctx, e.h.Log(), "hook", strings.TrimSuffix(note, ": "), nil); err != nil {
			return err
		}
	}
	return nil
}
