package harbor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/harbor/format"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks/filetree"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Solve plays each step's solution as Harbor's oracle does: solution/ goes to /solution, solve.sh
// runs from the working directory, and what it leaves with is recorded and decides nothing; where
// that is no success, the answer says so. A step without a solution of its own takes the task's.
func (b *Benchmark) Solve(t datasets.Task) (agent.Agent, error) {
	task, err := decode(t)
	if err != nil {
		return nil, err
	}
	for i := range task.Steps {
		if s := &task.Steps[i]; s.Solution == "" {
			which := ""
			if task.Multi {
				which = fmt.Sprintf(", step %q,", s.Name)
			}
			return nil, benchmarks.NoSolution("task %s%s has no solution/solve.sh", t.ID, which)
		}
	}
	env, err := task.SolutionEnv.Resolve("solution.env",
		func(name string) (string, error) { return "", &format.MissingVariable{Name: name} })
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", t.ID, err)
	}
	env["DEBIAN_FRONTEND"] = "noninteractive"
	next := 0 // an agent plays the stages of one session, in their order
	return agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		step := &task.Steps[min(next, len(task.Steps)-1)]
		next++
		status, err := solve(ctx, s, t, step, env)
		if err != nil || status == 0 {
			return agent.Answer{}, err
		}
		text := fmt.Sprintf("solve.sh left with status %d", status)
		if step.Name != "" {
			text = fmt.Sprintf("step %q: %s", step.Name, text)
		}
		return agent.Answer{Parts: event.Text(text)}, nil
	}), nil
}

func solve(ctx context.Context, s *agent.Session, t datasets.Task, step *format.Step,
	env map[string]string) (status int, err error) {
	m, ok := agent.As[agent.Machine](s.Env)
	if !ok {
		return 0, errors.New("the oracle has no machine to run its script on")
	}
	files, err := format.Scripts(t.Files, step.Solution)
	if err != nil {
		return 0, fmt.Errorf("reading the solution: %w", err)
	}
	if err := m.Put(ctx, format.SolutionDir, files); err != nil {
		return 0, err
	}
	args, err := format.ScriptCommand(t.Files, path.Join(step.Solution, "solve.sh"), format.SolutionDir+"/solve.sh")
	if err != nil {
		return 0, err
	}
	var out bytes.Buffer
	x, err := m.Exec(ctx, sandbox.Command{Args: args, Dir: m.Dir(), Env: env, Stdout: &out, Limit: 1 << 20,
		FullLimit: -1})
	if err != nil {
		return 0, err
	}
	logs := filetree.New()
	logs.Text("oracle.txt", out.Bytes(), 0o644)
	logs.Text("exit-code.txt", []byte(strconv.Itoa(x.Code)), 0o644)
	return x.Code, m.Put(ctx, format.AgentLogs, logs)
}
