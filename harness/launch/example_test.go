package launch_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/cmd/evalrun/builtin"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/harness/registry"
	"github.com/evalrun/evalrun/harness/rundir"
)

const configuration = `
benchmark: {name: qa, path: questions.jsonl, options: {machine: false}}
agent: pupil
workers: 1
`

const questions = `{"id": "one", "question": "What is 1 + 1?", "answer": 2}
{"id": "two", "question": "What is 2 + 2?", "answer": 4}
{"id": "three", "question": "What is 3 + 3?", "answer": 6}
{"id": "four", "question": "What is 4 + 4?", "answer": 8}
`

// kinds are those of evalrun and our own agent, which knows the solutions. If hangs is set, it
// hangs on the third task it is given.
func kinds(hangs bool) *registry.Registry {
	played := 0
	r := builtin.Kinds()
	r.Agents = append(r.Agents, agent.Kind{Name: "pupil", Open: func(agent.Setup) (agent.Maker, error) {
		return func(t agent.Task) (agent.Agent, error) {
			solver, err := t.Solve()
			return agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
				if played++; hangs && played == 3 {
					fmt.Println("hangs")
					<-ctx.Done()
				}
				return solver.Run(ctx, s)
			}), err
		}, nil
	}})
	return r
}

// begin plans a run in a new folder and runs it.
func begin(dir string) {
	ctx := context.Background()
	o := launch.Options{Kinds: kinds(true), Env: os.LookupEnv}
	eff, err := config.Parse(config.Source{Name: "run.yaml", Data: []byte(configuration), Dir: filepath.Dir(dir)},
		o.Kinds.Config())
	if err != nil {
		log.Fatal(err)
	}
	ready, err := launch.Prepare(ctx, eff, nil, o)
	if err != nil {
		log.Fatal(err)
	}
	defer ready.Close()
	d, err := rundir.Create(dir, ready.Plan)
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	if _, err := ready.Run(ctx, d, launch.Control{}); err != nil {
		log.Fatal(err)
	}
}

// A killed run continues where it was: decided trials do not run again.
func Example() {
	home, err := os.MkdirTemp("", "evalrun-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(home)
	if err := os.WriteFile(filepath.Join(home, "questions.jsonl"), []byte(questions), 0o666); err != nil {
		log.Fatal(err)
	}
	dir := filepath.Join(home, "run")

	// A process runs the trials (see begin) and is killed in the third one.
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "EVALRUN_EXAMPLE_RUN="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		log.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		log.Fatal(err)
	}
	bufio.NewReader(out).ReadString('\n') // "hangs"
	cmd.Process.Kill()
	fmt.Println("the first process:", cmd.Wait())

	// Another process resumes the run.
	ctx := context.Background()
	d, err := launch.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	ready, err := launch.Restore(ctx, d, launch.Options{Kinds: kinds(false), Env: os.LookupEnv})
	if err != nil {
		log.Fatal(err)
	}
	defer ready.Close()
	outcome, err := ready.Run(ctx, d, launch.Control{Begun: func(decided int) {
		fmt.Println("decided before:", decided)
	}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the second process:", outcome.Reason)

	results, err := launch.Results(d)
	if err != nil {
		log.Fatal(err)
	}
	summary, err := launch.Summary(results, dir)
	if err != nil {
		log.Fatal(err)
	}
	for _, arm := range summary.Arms {
		fmt.Printf("%s: %d of %d trials scored, mean %.2f\n", arm.Arm, arm.Scored, arm.Planned, *arm.Mean)
	}

	// Output:
	// the first process: signal: killed
	// decided before: 2
	// the second process: done
	// pupil: 4 of 4 trials scored, mean 1.00
}
