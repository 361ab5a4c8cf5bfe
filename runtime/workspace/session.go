package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Remarks of a session. The bracketed lines that other tools look for are those of OpenHands.
const (
	continued = "[Below is the output of the previous command.]\n"
	options   = `An empty command waits for more output. With is_input, text is typed for the program that is running, ` +
		`and C-c, C-z or C-d are keys that interrupt, stop or end its input. A timeout lets a later command take longer.`
	nothing = "\n[Nothing was executed.]"
)

// session executes an action in the actor's persistent shell. The result ok is false if the sandbox
// has none; then nothing was executed, and why is the reason if the actor has not been told yet.
func (j *job) session(ctx context.Context) (res event.Body, ok bool, why string, err error) {
	sh, has := sandbox.As[sandbox.Sheller](j.sb)
	if j.w.without() {
		return nil, false, "", nil
	}
	if !has {
		return nil, false, j.w.noShell("this sandbox has none"), nil
	}
	call := sandbox.ShellCall{Shell: shellName(j.actor), ID: j.id, User: j.user(), Env: j.w.options.Env,
		Limit: j.w.options.Limit, Timeout: j.timeout, Text: strings.TrimSpace(j.run.Command)}
	if !j.run.Blocking {
		call.Quiet = j.w.options.NoChange
	}
	key := ""
	if len(call.Text) == 3 && strings.HasPrefix(call.Text, "C-") {
		key = call.Text[2:]
	}
	switch {
	case call.Text == "" && !j.run.Input:
		call.Op = sandbox.ShellWait
	case key != "":
		call.Op, call.Text = sandbox.ShellKey, strings.ToLower(key)
	case j.run.Input:
		call.Op, call.Text = sandbox.ShellInput, j.run.Command
	default:
		if all := topLevel(call.Text); len(all) > 1 {
			return event.Error{Code: "invalid_call", Text: severalText(all)}, true, "", nil
		}
		call.Text = strings.TrimRight(j.run.Command, " \t\r\n")
		if strings.HasSuffix(call.Text, `\`) {
			call.Text = j.run.Command // the white space may be escaped
		}
	}
	out := &capped{max: int(call.Limit) + 4<<10} // the sandbox may not keep to the limit
	call.Stdout = out
	var x sandbox.ShellResult
	for i, dir := range []string{j.w.options.Dir, "/"} {
		call.Dir = dir
		x, err = sh.Shell(ctx, call)
		var failed *sandbox.Error
		if i > 0 || !errors.As(err, &failed) || !failed.Inside {
			break
		}
	}
	var no *sandbox.Unsupported
	if errors.As(err, &no) {
		return nil, false, j.w.noShell(brief(no)), nil
	}
	var failed *sandbox.Error
	switch {
	case errors.As(err, &failed) && failed.Inside && !errors.Is(err, sandbox.ErrGone): // such as a bash that does not start
		return event.Error{Code: "internal", Text: brief(failed.Err)}, true, "", nil
	case err != nil:
		return nil, true, "", err
	}
	return j.result(call, x, out.Bytes(), key), true, "", nil
}

// result returns the observation of a call.
func (j *job) result(call sandbox.ShellCall, x sandbox.ShellResult, out []byte, key string) event.RunResult {
	res := event.RunResult{Code: -1, Running: x.End.Running(), TimedOut: x.End == sandbox.ShellTimeout, OOM: x.OOM,
		OutBytes: x.Out, Full: x.Full, Truncated: x.Out > call.Limit, WallMS: x.Wall.Milliseconds()}
	if res.Truncated {
		out = markCut(out, call.Limit, x.Out)
	}
	res.Output = clean(out)
	if call.Op != sandbox.ShellRun || x.End == sandbox.ShellBusy {
		res.Prefix = continued
	}
	if x.Began && j.w.began(j.actor) {
		res.Prefix = "[The shell was started anew: its directory and variables are those of the beginning.]\n"
	}
	switch x.End {
	case sandbox.ShellCompleted:
		res.Code = x.Code
		res.Suffix = fmt.Sprintf("\n[The command completed with exit code %d.]", x.Code)
		if key != "" {
			res.Suffix = fmt.Sprintf("\n[The command completed with exit code %d. CTRL+%s was sent.]", x.Code,
				strings.ToUpper(key))
		}
	case sandbox.ShellExited:
		res.Code, res.Signal = x.Code, x.Signal
		how := fmt.Sprintf("with exit code %d", x.Code)
		if x.Signal != "" {
			how = "by signal " + x.Signal
		}
		res.Suffix = "\n[The shell has ended " + how + ". The next command starts a new one.]"
	case sandbox.ShellQuiet:
		res.Suffix = fmt.Sprintf("\n[The command has no new output after %v seconds. %s]", call.Quiet.Seconds(), options)
	case sandbox.ShellTimeout:
		res.Suffix = fmt.Sprintf("\n[The command timed out after %v seconds. %s]", call.Timeout.Seconds(), options)
	case sandbox.ShellBusy:
		res.Suffix = "\n[This command was NOT executed, because the previous one is still running. " + options + "]"
	case sandbox.ShellIdle:
		res.Prefix = ""
		res.Output, res.Suffix = "ERROR: no command is running that has more output.", nothing
		if call.Op != sandbox.ShellWait {
			res.Output = "ERROR: no command is running that could take input."
		}
	}
	if x.Dir != "" {
		j.w.moved(j.actor, x.Dir)
		if !res.Running {
			res.Dir = clean([]byte(x.Dir))
		}
	}
	return res
}

// markCut replaces the executor's remark on what it has left out by that of OpenHands.
func markCut(out []byte, limit, all int64) []byte {
	mark := fmt.Appendf(nil, "\n[... %d bytes left out ...]\n", all-limit)
	before, after, ok := bytes.Cut(out, mark)
	if !ok {
		return out
	}
	return bytes.Join([][]byte{before, after}, []byte("\n[... Observation truncated due to length ...]\n"))
}

func shellName(actor string) string { return "agent" + actor }

// began notes that an actor's shell was started, and reports whether it was before.
func (w *Workspace) began(actor string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.shells[actor]
	w.shells[actor] = true
	return before
}

// noShell notes that there are no persistent shells. It returns why when it is called first, and
// then "".
func (w *Workspace) noShell(why string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shellless {
		return ""
	}
	w.shellless = true
	return why
}

func (w *Workspace) without() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shellless
}

// LeaveShells ends the tool servers that the workspace has started, the actors' kernels, and their
// persistent shells. Commands that are running, and what was started in the background, go on. The
// next action starts a new shell or kernel.
func (w *Workspace) LeaveShells(ctx context.Context) error {
	w.leaveServers()
	w.leaveKernels(ctx)
	w.mu.Lock()
	actors := w.shells
	w.shells = map[string]bool{}
	w.mu.Unlock()
	if len(actors) == 0 {
		return nil
	}
	sb, err := w.get(ctx)
	if err != nil {
		return err
	}
	sh, ok := sandbox.As[sandbox.Sheller](sb)
	if !ok {
		return nil
	}
	for actor := range actors {
		if _, err := sh.Shell(ctx, sandbox.ShellCall{Shell: shellName(actor), Op: sandbox.ShellLeave}); err != nil {
			return err
		}
	}
	return nil
}
