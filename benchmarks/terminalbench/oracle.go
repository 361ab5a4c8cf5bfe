package terminalbench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/internal/yamldoc"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Solve plays solution.sh, or types the commands of solution.yaml.
func (b *Benchmark) Solve(dt datasets.Task) (agent.Agent, error) {
	t, err := decodeTask(dt)
	if err != nil {
		return nil, err
	}
	if t.Solution == "" {
		return nil, benchmarks.NoSolution("task %s has neither a solution.sh nor a solution.yaml", dt.ID)
	}
	text, err := readText(dt.Files, t.Solution)
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", dt.ID, err)
	}
	play := func(ctx context.Context, m agent.Machine) error { return script(ctx, m, text) }
	if t.Solution == "solution.yaml" {
		keys, err := readKeys(text)
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", dt.ID, err)
		}
		play = func(ctx context.Context, m agent.Machine) error { return typeKeys(ctx, m, keys) }
	}
	return agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		m, ok := agent.As[agent.Machine](s.Env)
		if !ok {
			return agent.Answer{}, fmt.Errorf("the oracle has no machine to work on")
		}
		return agent.Answer{}, play(ctx, m)
	}), nil
}

// script runs a solution.sh. As in v1 its exit code is not looked at: the tests say whether it
// solved the task.
func script(ctx context.Context, m agent.Machine, text []byte) error {
	files := fstest.MapFS{"solution.sh": {Data: unix(text), Mode: 0o755}}
	if err := m.Put(ctx, oracleDir, files); err != nil {
		return err
	}
	_, err := m.Exec(ctx, sandbox.Command{
		Args: []string{"bash", oracleDir + "/solution.sh"}, Env: map[string]string{"DEBIAN_FRONTEND": "noninteractive"},
		Limit: 256 << 10, FullLimit: -1,
	})
	return err
}

// unix is a script with the line ends that shells understand.
func unix(text []byte) []byte { return []byte(strings.ReplaceAll(string(text), "\r\n", "\n")) }

// keystrokes are one entry of a solution.yaml: what is typed, and how long to wait.
type keystrokes struct {
	text  string
	enter bool
	block bool // wait for the command's end, up to most; else only for least
	least time.Duration
	most  time.Duration
}

func readKeys(text []byte) ([]keystrokes, error) {
	root, err := yamldoc.Parse("solution.yaml", text, bounds)
	if err != nil {
		return nil, err
	}
	if root.Kind != yamldoc.List {
		return nil, root.Errorf("want a list of commands")
	}
	var out []keystrokes
	for _, v := range root.Items {
		k := keystrokes{enter: true, most: 180 * time.Second}
		if v.Kind != yamldoc.Map {
			return nil, v.Errorf("want a command with its keys")
		}
		r := taskYAML{t: &Task{}}
		for _, f := range v.Entries {
			switch f.Key {
			case "command":
				k.text = r.text(f)
			case "min_timeout_sec":
				k.least = time.Duration(max(0, min(r.number(f), maxSeconds)) * float64(time.Second))
			case "max_timeout_sec":
				k.most = r.seconds(f, k.most)
			case "block":
				k.block = r.truth(f)
			case "append_enter":
				k.enter = r.truth(f)
			default:
				return nil, f.Errorf("unknown key")
			}
		}
		if len(r.errs) > 0 {
			return nil, r.errs[0]
		}
		out = append(out, k)
	}
	return out, nil
}

const oracleSession = "oracle"

// typeKeys types keys into a terminal, which only tmux can give: v1's images have it.
func typeKeys(ctx context.Context, m agent.Machine, list []keystrokes) error {
	tmux := func(timeout time.Duration, args ...string) (sandbox.Exit, error) {
		return m.Exec(ctx, sandbox.Command{Args: append([]string{"tmux"}, args...), Limit: 16 << 10, FullLimit: -1,
			Timeout: timeout})
	}
	x, err := tmux(time.Minute, "new-session", "-d", "-x", "160", "-y", "40", "-s", oracleSession, "bash")
	if err != nil {
		return err
	}
	if x.Code != 0 {
		return fmt.Errorf("solution.yaml is typed into tmux, which did not start in this image (status %d)", x.Code)
	}
	for i, k := range list {
		done := "done-" + strconv.Itoa(i)
		text := k.text
		if k.block {
			text = strings.TrimRight(text, "\n") + "; tmux wait-for -S " + done
		}
		if text != "" {
			if _, err := tmux(time.Minute, "send-keys", "-t", oracleSession, "-l", "--", text); err != nil {
				return err
			}
		}
		if k.enter || k.block {
			if _, err := tmux(time.Minute, "send-keys", "-t", oracleSession, "Enter"); err != nil {
				return err
			}
		}
		if k.block {
			if _, err := tmux(k.most, "wait-for", done); err != nil {
				return err
			}
			continue
		}
		select {
		case <-time.After(k.least):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
