package command

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// maxArg is the size of the longest argument or variable on Linux (MAX_ARG_STRLEN), including its
// terminator.
const maxArg = 128 << 10

// promptFile is the prompt file of a program in the sandbox.
const promptFile = taskDir + "/prompt.md"

// maxAnswer limits the size of an answer, maxOutput what is read from each stream of a program.
const (
	maxAnswer = event.MaxInline
	maxOutput = 16 << 20
)

// inside is a program in the task's sandbox.
type inside struct {
	Config
	stages atomic.Int64
}

func (a *inside) Run(ctx context.Context, s *agent.Session) (agent.Answer, error) {
	if ctx.Err() != nil {
		return agent.Answer{}, context.Cause(ctx)
	}
	stage := a.stages.Add(1)
	m, ok := agent.As[agent.Machine](s.Env)
	if !ok {
		return agent.Answer{}, errors.New("this benchmark gives its agents no machine; a program that speaks the " +
			"protocol (where: host) may do")
	}
	if stage == 1 && a.Files != "" {
		if err := putFiles(ctx, m, a.Files); err != nil {
			return agent.Answer{}, err
		}
	}
	goal := s.Goal.Text()
	if err := m.Put(ctx, taskDir, oneFile{"instruction.md", goal}); err != nil {
		return agent.Answer{}, err
	}
	offered, err := offer(s.Goal)
	if err != nil {
		return agent.Answer{}, err
	}
	if offered.servers != "" {
		if err := m.Put(ctx, taskDir, oneFile{path.Base(serversFile), offered.servers}); err != nil {
			return agent.Answer{}, err
		}
	}
	if a.Prompt != "" {
		if err := m.Put(ctx, taskDir, oneFile{path.Base(promptFile), a.Prompt}); err != nil {
			return agent.Answer{}, err
		}
	}
	c, err := a.command(goal, offered, m.Dir(), stage, s.Seed)
	if err != nil {
		return agent.Answer{}, err
	}
	stdout, stderr := &tail{max: maxAnswer}, &tail{max: 4 << 10}
	c.Stdout, c.Stderr = stdout, stderr
	exit, err := m.Exec(ctx, c)
	if ctx.Err() != nil { // the trial is graded in its current state
		var ans agent.Answer
		if a.Answer == "stdout" {
			text, _ := stdout.text()
			ans = textAnswer(text)
		}
		return ans, context.Cause(ctx)
	}
	if err != nil {
		return agent.Answer{}, err
	}
	ans, aerr := a.answer(ctx, m, stdout)
	if errors.As(aerr, new(*sandbox.Error)) {
		return ans, aerr
	}
	if exit.TimedOut {
		return ans, &agent.LimitError{Kind: agent.LimitTime, Max: a.timeout.String()}
	}
	if exit.Code != 0 || exit.Signal != "" {
		return ans, &Failure{Text: "it " + exit.How(0), Stderr: stderr.last()}
	}
	return ans, aerr
}

func (a *inside) command(goal string, o offered, dir string, stage int64, seed uint64) (sandbox.Command, error) {
	file := path.Join(taskDir, "instruction.md")
	values := map[string]string{
		"files": FilesDir, "instruction": goal, "instruction_file": file, "dir": dir,
		"stage": strconv.FormatInt(stage, 10), "seed": strconv.FormatUint(seed, 10), "skills": o.skills,
		"mcp_config": "", "prompt_file": "",
	}
	if o.servers != "" {
		values["mcp_config"] = serversFile
	}
	if a.Prompt != "" {
		values["prompt_file"] = promptFile
	}
	if fi, err := os.Stat(a.Files); a.Files != "" && err == nil && !fi.IsDir() {
		values["files"] = path.Join(FilesDir, filepath.Base(a.Files))
	}
	c := sandbox.Command{Dir: dir, Timeout: a.timeout, Limit: maxOutput, Env: map[string]string{
		"EVALRUN_INSTRUCTION_FILE": file, "EVALRUN_STAGE": values["stage"], "EVALRUN_SEED": values["seed"],
	}}
	variable := func(name, v string) {
		if len(v) < maxArg-len(name)-1 && !strings.Contains(v, "\x00") {
			c.Env[name] = v
		}
	}
	variable("EVALRUN_INSTRUCTION", goal)
	if a.Prompt != "" {
		c.Env["EVALRUN_PROMPT_FILE"] = promptFile
		variable("EVALRUN_PROMPT", a.Prompt)
	}
	if o.skills != "" {
		c.Env["EVALRUN_SKILLS"] = o.skills
	}
	if o.servers != "" {
		c.Env["EVALRUN_MCP_CONFIG"] = serversFile
	}
	fits := func(what, v string) error {
		switch {
		case len(v) >= maxArg:
			return fmt.Errorf("%s has %d bytes with the instruction in it, and Linux takes %d; use {instruction_file}",
				what, len(v), maxArg-1)
		case strings.Contains(v, "\x00"):
			return fmt.Errorf("%s has a NUL byte from the instruction; use {instruction_file}", what)
		}
		return nil
	}
	for i, arg := range a.Config.Run {
		arg = fill(arg, values)
		if err := fits(fmt.Sprintf("argument %d", i), arg); err != nil {
			return c, err
		}
		c.Args = append(c.Args, arg)
	}
	for k, v := range a.Env {
		v = fill(v, values)
		if err := fits("variable "+k, k+"="+v); err != nil {
			return c, err
		}
		c.Env[k] = v
	}
	return c, nil
}

// putFiles copies the program's files into the sandbox.
func putFiles(ctx context.Context, m agent.Machine, name string) error {
	src, err := files(name)
	if err != nil {
		return err
	}
	defer src.Close()
	return m.Put(ctx, FilesDir, src)
}

// answer reads the answer, also of a program that failed, because the trial is graded in its
// current state.
func (a *inside) answer(ctx context.Context, m agent.Machine, stdout *tail) (agent.Answer, error) {
	switch a.Answer {
	case "none":
		return agent.Answer{}, nil
	case "stdout":
		text, _ := stdout.text()
		return textAnswer(text), nil
	}
	name := below(m.Dir(), a.Answer)
	r, err := m.Get(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return agent.Answer{}, &Failure{Text: "it left with status 0 and wrote no answer to " + name}
	}
	if err != nil {
		return agent.Answer{}, err
	}
	defer r.Close()
	tr := tar.NewReader(r)
	h, err := tr.Next()
	switch {
	case errors.As(err, new(*sandbox.Error)):
		return agent.Answer{}, err
	case err != nil:
		return agent.Answer{}, &Failure{Text: fmt.Sprintf("its answer %s cannot be read: %v", name, err)}
	case h.Typeflag != tar.TypeReg:
		return agent.Answer{}, &Failure{Text: fmt.Sprintf("its answer %s is not a plain file", name)}
	case h.Size > maxAnswer:
		return agent.Answer{}, &Failure{
			Text: fmt.Sprintf("its answer %s has %d bytes; at most %d are taken", name, h.Size, int64(maxAnswer))}
	}
	data, err := io.ReadAll(tr)
	if errors.As(err, new(*sandbox.Error)) {
		return agent.Answer{}, err
	}
	if err != nil {
		return agent.Answer{}, &Failure{Text: fmt.Sprintf("its answer %s cannot be read: %v", name, err)}
	}
	return textAnswer(strings.ToValidUTF8(string(data), "\uFFFD")), nil
}

func textAnswer(s string) agent.Answer {
	if s = strings.TrimSpace(s); s == "" {
		return agent.Answer{}
	}
	return agent.Answer{Parts: event.Text(s)}
}
