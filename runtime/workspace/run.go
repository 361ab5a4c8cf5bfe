package workspace

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"path"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A job is the execution of one action.
type job struct {
	w       *Workspace
	sb      sandbox.Sandbox
	run     event.Run
	actor   string
	id      string
	timeout time.Duration
	apart   bool // the streams are kept apart, of which each has up to bashStream bytes
}

// play executes the action in a session, if that is what it asks for, or in a new shell.
func (j *job) play(ctx context.Context) (event.Body, error) {
	if !j.run.Session {
		return j.do(ctx)
	}
	res, ok, why, err := j.session(ctx)
	if ok || err != nil {
		return res, err
	}
	if j.run.Input || strings.TrimSpace(j.run.Command) == "" {
		return event.Error{Code: "unsupported",
			Text: "there is no persistent shell, so no command is running: each ends before its result comes"}, nil
	}
	body, err := j.do(ctx)
	if r, ok := body.(event.RunResult); ok && why != "" {
		r.Output = "(there is no persistent shell, so each command runs in a new one: " + why + ")\n" + r.Output
		body = r
	}
	return body, err
}

func (j *job) do(ctx context.Context) (event.Body, error) {
	shell, dir := j.shell(), j.w.options.Dir
	if path.IsAbs(j.run.Dir) {
		dir = j.run.Dir
	}
	if j.w.searches() { // the first process did not record which shell works
		s, _, ok, err := j.findWorking(ctx, shell, dir)
		if err != nil {
			return nil, err
		}
		if ok {
			shell = s
			j.rememberShell(s)
		}
	}
	res, moved, err := j.exec(ctx, shell, dir, j.id)
	if err != nil {
		return nil, err
	}
	note := ""
	if res.Code == 127 || res.Code == 126 {
		// Either it is the command's own exit code, or there is no such shell or directory; then
		// nothing was run yet.
		s, d, ok, err := j.findWorking(ctx, shell, dir)
		if err != nil {
			return nil, err
		}
		if ok && (s != shell || d != dir) {
			if d != dir {
				note = goneNote(dir) + d + ")\n" // both are the sandbox's
			}
			again := j.id
			if again != "" {
				again += "-again"
			}
			if res, moved, err = j.exec(ctx, s, d, again); err != nil {
				return nil, err
			}
		}
		if ok {
			j.rememberShell(s)
		}
	} else {
		j.rememberShell(shell)
	}
	res.Output = note + res.Output
	if moved != "" && j.run.Dir == "" {
		j.w.moved(j.actor, moved)
	}
	res.Dir = j.w.Dir(j.actor)
	return res, nil
}

// goneNote returns the beginning of the remark on a directory that does not exist any more.
func goneNote(dir string) string { return "(the working directory " + dir + " is gone; this runs in " }

// shell returns the shell to try first.
func (j *job) shell() string {
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	if j.w.shell != "" {
		return j.w.shell
	}
	return "bash"
}

// rememberShell stores a shell that works, unless the options name one.
func (j *job) rememberShell(shell string) {
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	if len(j.run.Args) == 0 && j.w.shell == "" {
		j.w.shell = shell
	}
}

// findWorking finds a shell and a directory in which a command can be started; ok is false if there
// is none.
func (j *job) findWorking(ctx context.Context, shell, dir string) (s, d string, ok bool, err error) {
	shells := []string{shell}
	if j.w.options.Shell == "" && shell != "sh" {
		shells = append(shells, "sh")
	}
	dirs := []string{dir}
	if j.run.Dir == "" { // a directory that the action names is not replaced
		dirs = append(dirs, "/")
	}
	for _, d := range dirs {
		for _, s := range shells {
			c := sandbox.Command{Args: []string{s, "-c", ":"}, Dir: d, User: j.user(), Env: j.w.options.Env,
				Timeout: j.timeout}
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
	limit := j.w.options.Limit
	out := &capped{max: int(max(limit, bashStream)) + 4<<10}
	c := sandbox.Command{ID: id, Args: j.run.Args, Dir: dir, User: j.user(), Env: j.w.options.Env, Timeout: j.timeout,
		Stdout: out, Limit: limit}
	mark, root := j.mark(id), j.w.hostRoot()
	if cd := j.prologue(mark); len(c.Args) == 0 {
		script := cd + root.Command(j.run.Command, j.w.mapped()...)
		c.Args = []string{shell, "-c", script}
		if len(script) >= maxArg-1 {
			// Too long for an argument. The shell reads the whole script before it runs any of it,
			// so the command's input is empty as always.
			c.Args = []string{shell, "-c", `eval "$(cat)"`}
			c.Stdin = strings.NewReader(script)
		}
	} else if j.needsCd() {
		c.Args = append([]string{shell, "-c", cd + `exec "$@"`, shell}, c.Args...)
	}
	errs := &capped{max: out.max}
	if j.apart {
		limit = bashStream
		c.Stderr, c.Limit = errs, limit
	}
	e, err := j.sb.Exec(ctx, c)
	if err != nil {
		return res, "", err
	}
	text, truncated := out.Bytes(), e.Out > limit
	var hidden int
	text, moved, hidden = cutMark(text, mark)
	e.Out -= int64(hidden)
	res = event.RunResult{
		Code: e.Code, Signal: e.Signal, TimedOut: e.TimedOut, OOM: e.OOM,
		Output:   root.Mask(clean(text)),
		Stderr:   root.Mask(clean(errs.Bytes())),
		OutBytes: e.Out, ErrBytes: e.Err,
		Truncated: truncated,
		Full:      root.Mask(e.Full),
		WallMS:    e.Wall.Milliseconds(),
	}
	return res, moved, nil
}

// capped keeps the first bytes that are written to it. A sandbox that is in an agent's hands may not
// keep to the limit of a command's output.
type capped struct {
	bytes.Buffer
	max int
}

func (c *capped) Write(b []byte) (int, error) {
	c.Buffer.Write(b[:min(len(b), max(c.max-c.Len(), 0))])
	return len(b), nil
}

// mark returns the mark for the directory in which a command ends. A host that asks for a command
// again by its ID has to know the mark that the first one has used.
func (j *job) mark(id string) string {
	if id == "" {
		return rand.Text()
	}
	sum := sha256.Sum256([]byte(j.sb.ID() + "/" + id))
	return base32.StdEncoding.EncodeToString(sum[:])[:26]
}

// needsCd reports whether the command runs in another directory than the one that the sandbox
// starts it in.
func (j *job) needsCd() bool {
	return !path.IsAbs(j.run.Dir) && (j.run.Dir != "" || j.w.where(j.actor) != "")
}

// prologue returns the prologue of a command. It changes to the directory where the actor's last
// command ended. When this command ends in another directory, the shell prints the mark and that
// directory at last. The prologue is on the command's first line, so that line numbers in error
// messages stay right. The shell itself changes the directory, because paths inside may differ from
// those that the driver uses (driver "none"). The directory stays the same after a command that
// sets its own EXIT trap, or that ends without one (exec, a signal). If a command has redirected
// the shell's output to a file (exec >), the line with the mark is in that file.
func (j *job) prologue(mark string) string {
	var b strings.Builder
	at := ""
	if !path.IsAbs(j.run.Dir) {
		at = j.w.where(j.actor)
	}
	if at != "" {
		b.WriteString("__d=; cd " + quote(at) + " 2>/dev/null && __d=$PWD || echo " + quote(goneNote(at)) + `"$PWD)"; `)
	}
	switch {
	case j.run.Dir != "" && !path.IsAbs(j.run.Dir):
		b.WriteString("cd " + quote("./"+j.run.Dir) + " || exit 126; ")
		return b.String()
	case len(j.run.Args) > 0 || j.run.Dir != "":
		return b.String()
	case at == "":
		b.WriteString("__d=$PWD; ")
	}
	b.WriteString(`trap '[ "$PWD" = "$__d" ] || printf "\n` + mark + `%s\n" "$PWD"' EXIT; `)
	return b.String()
}

// quote quotes a string for the shell.
func quote(s string) string { return `'` + strings.ReplaceAll(s, `'`, `'\''`) + `'` }

// cutMark removes the line with the mark; hidden is its length.
func cutMark(out []byte, mark string) (rest []byte, dir string, hidden int) {
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

// clean makes text that all readers of records accept: valid UTF-8 without NUL. The byte counts are
// those of the original.
func clean(b []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\uFFFD")
}
