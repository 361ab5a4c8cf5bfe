package workspace

import (
	"bytes"
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A job is one action on its way through the sandbox.
type job struct {
	w       *Workspace
	sb      sandbox.Sandbox
	run     event.Run
	actor   string
	id      string
	timeout time.Duration
}

func (j *job) do(ctx context.Context) (event.Body, error) {
	begin := j.w.begin(j.actor)
	dir := begin
	if j.run.Dir != "" {
		dir = resolve(begin, j.run.Dir)
	}
	shell := j.shell()
	res, moved, err := j.exec(ctx, shell, dir, j.id)
	if err != nil {
		return nil, err
	}
	note := ""
	if res.Code == 127 || res.Code == 126 {
		// The command's own word, or there is no such shell, or no such directory any more: then nothing ran yet.
		s, d, ok, err := j.working(ctx, shell, dir)
		if err != nil {
			return nil, err
		}
		if ok && (s != shell || d != dir) {
			if d != dir {
				note = "(the working directory " + dir + " is gone; this ran in " + show(d) + ")\n"
				begin, dir = d, d
				j.w.moved(j.actor, d)
			}
			again := j.id
			if again != "" {
				again += "-again"
			}
			if res, moved, err = j.exec(ctx, s, dir, again); err != nil {
				return nil, err
			}
		}
		if ok {
			j.found(s)
		}
	} else {
		j.found(shell)
	}
	res.Output = note + res.Output
	if moved != "" && j.run.Dir == "" {
		j.w.moved(j.actor, moved)
	}
	res.Dir = j.w.begin(j.actor)
	return res, nil
}

// shell is what to try first.
func (j *job) shell() string {
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	if j.w.shell != "" {
		return j.w.shell
	}
	return "bash"
}

// found remembers a shell that works. What the options name stays.
func (j *job) found(shell string) {
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	if len(j.run.Args) == 0 && j.w.shell == "" {
		j.w.shell = shell
	}
}

// working finds a shell and a directory in which something can be started; ok is false where there is none.
func (j *job) working(ctx context.Context, shell, dir string) (s, d string, ok bool, err error) {
	shells := []string{shell}
	if j.w.options.Shell == "" && shell != "sh" {
		shells = append(shells, "sh")
	}
	dirs := []string{dir}
	if j.run.Dir == "" { // an action that names its directory means it
		dirs = append(dirs, j.w.options.Dir, "/")
	}
	for _, d := range dirs {
		for _, s := range shells {
			c := sandbox.Command{Args: []string{s, "-c", ":"}, Dir: d, User: j.user(), Env: j.w.options.Env, Timeout: j.timeout}
			e, err := j.sb.Exec(ctx, c)
			if err != nil {
				return "", "", false, err
			}
			if e.Code == 0 {
				return s, d, true, nil
			}
		}
	}
	return "", "", false, nil
}

func (j *job) user() string {
	if j.run.User != "" {
		return j.run.User
	}
	return j.w.options.User
}

func (j *job) exec(ctx context.Context, shell, dir, id string) (res event.RunResult, moved string, err error) {
	var out bytes.Buffer
	limit := j.w.options.Limit
	c := sandbox.Command{ID: id, Args: j.run.Args, Dir: dir, User: j.user(), Env: j.w.options.Env, Timeout: j.timeout, Stdout: &out, Limit: limit}
	mark := ""
	if len(c.Args) == 0 {
		mark = rand.Text()
		script := tell(mark, dir) + j.run.Command
		c.Args = []string{shell, "-c", script}
		if len(script) >= maxArg-1 {
			// Too long for an argument. The shell reads it whole before it runs any of it, so the command's input is empty
			// as always.
			c.Args = []string{shell, "-c", `eval "$(cat)"`}
			c.Stdin = strings.NewReader(script)
		}
	}
	e, err := j.sb.Exec(ctx, c)
	if err != nil {
		return res, "", err
	}
	text, truncated := out.Bytes(), e.Out > limit
	if mark != "" {
		var hidden int
		text, moved, hidden = untell(text, mark)
		e.Out -= int64(hidden)
	}
	res = event.RunResult{
		Code: e.Code, Signal: e.Signal, TimedOut: e.TimedOut, OOM: e.OOM,
		Output:   clean(text),
		OutBytes: e.Out, ErrBytes: e.Err,
		Truncated: truncated,
		Full:      e.Full,
		WallMS:    e.Wall.Milliseconds(),
	}
	return res, moved, nil
}

// tell is put before a command: where the shell ends in another directory than dir, its last word is the mark and the new one.
// It stands on the command's first line, so that line numbers in messages stay true. A command that sets an EXIT
// trap of its own, or that ends without one (exec, a signal), leaves the directory as it was.
func tell(mark, dir string) string {
	if dir == "" {
		return `__d=$PWD; trap '[ "$PWD" = "$__d" ] || printf "\n` + mark + `%s\n" "$PWD"' EXIT; `
	}
	return `trap '[ "$PWD" = ` + quoteInner(dir) + ` ] || printf "\n` + mark + `%s\n" "$PWD"' EXIT; `
}

// quoteInner quotes a word that stands in double quotes inside single quotes.
func quoteInner(s string) string {
	s = strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`, "`", "\\`").Replace(s)
	return `"` + strings.ReplaceAll(s, `'`, `'\''`) + `"`
}

// untell takes the mark off again; hidden is how many bytes that were.
func untell(out []byte, mark string) (rest []byte, dir string, hidden int) {
	begin := []byte("\n" + mark)
	i := bytes.LastIndex(out, begin)
	if i < 0 {
		return out, "", 0
	}
	after := out[i+len(begin):]
	end := bytes.IndexByte(after, '\n')
	if end < 0 || len(after) == 0 || after[0] != '/' {
		return out, "", 0
	}
	dir = string(after[:end])
	hidden = len(begin) + end + 1
	return append(out[:i:i], after[end+1:]...), dir, hidden
}

// clean makes text that every reader of the record can take: valid UTF-8 without NUL. The exact counts stay beside it.
func clean(b []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\uFFFD")
}

func show(dir string) string {
	if dir == "" {
		return "the default one"
	}
	return dir
}
