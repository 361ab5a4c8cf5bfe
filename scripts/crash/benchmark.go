package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// workers is the number of concurrent trials, and thus the maximum number of calls in flight at a
// kill.
const workers = 8

// writeBenchmark writes a benchmark, an agent and a configuration with known verdicts: three arms
// that, depending on the task number, solve the task, fail it, crash, give up, or play a second
// stage; and two arms that call a model: codeact, and a program that uses the protocol.
func writeBenchmark(dir string, trials int, model string) (config string, err error) {
	const arms, repeats = 5, 2
	if trials%(arms*repeats) != 0 {
		return "", fmt.Errorf("-trials %d: want a multiple of %d", trials, arms*repeats)
	}
	var tasks strings.Builder
	tasks.WriteString("name: crash\ntasks:\n")
	for i := range trials / arms / repeats {
		switch {
		case i%5 == 4: // two stages
			fmt.Fprintf(&tasks, "  - id: t%d-stages\n    stages:\n      - {instruction: say yes, answer: yes}\n      "+
				"- {instruction: say no, answer: no}\n", i)
		default:
			fmt.Fprintf(&tasks, "  - id: t%d-k%d\n    instruction: say yes\n    answer: yes\n", i, i%5)
		}
	}
	script := `- task: "*-k0"   # right, after some work
  do: [{run: "echo one > a"}, {run: "cat a"}, {think: what now}, {sleep: 2ms}, {finish: "yes"}]
- task: "*-k1"   # wrong
  do: [{run: "echo two"}, {finish: "no"}]
- task: "*-k2"   # breaks
  do: [{run: "echo three"}, {sleep: 5ms}, {fail: out of ideas}]
- task: "*-k3"   # gives up
  do: [{finish: {message: too hard, gave_up: true}}]
- task: "*-stages"
  stage: 1
  do: [{run: "echo first > stage"}, {finish: "yes"}]
- task: "*-stages"
  stage: 2
  do: [{run: "cat stage"}, {sleep: 2ms}, {finish: "no"}]
`
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	conf := fmt.Sprintf(`name: crash
benchmark: tasks:tasks.yaml
repeats: %d
workers: %d
models:
  crash: {name: openai/crash, base_url: %q, price: {in: 1, out: 1, cached: 1}}
arms:
  - {name: script, agent: "script:agent.yaml"}
  - {name: same, agent: "script:same.yaml"}
  - {name: nop, agent: nop}
  - {name: codeact, agent: codeact, model: crash}
  - {name: protocol, model: crash, agent: {name: command, options: {where: host, run: [%q, -agent]}}}
`, repeats, workers, model, self)
	for name, text := range map[string]string{
		"tasks.yaml": tasks.String(), "agent.yaml": script, "same.yaml": "# the same, another arm\n" + script,
		"crash.yaml": conf,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "crash.yaml"), nil
}
