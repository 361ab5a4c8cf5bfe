// Package command is an agent that is an external program, in any language.
//
// With Where set to "sandbox", the program runs inside the task's sandbox like any other command
// there and acts by itself. It gets its instruction as a file, an argument or an environment
// variable ([Config] lists the placeholders); its answer is its output or a file. With Where set to
// "host", the program runs beside evalrun and exchanges JSON lines over its standard streams
// (docs/protocol.md). It requests steps and model replies, and evalrun executes them, so the
// program needs neither keys nor a sandbox of its own.
//
// A program that crashes, exits without an answer or violates the protocol causes a [Failure]: the
// agent's fault, and the trial is graded in its current state.
package command

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Where a program runs.
const (
	InSandbox = "sandbox"
	OnHost    = "host"
)

// A Config is the configuration of an agent.
//
// Run and the values of Env may contain these placeholders:
//
//	{files}             path of Files: FilesDir in the sandbox, its own path on the host
//	{instruction_file}  a file with the goal's text; sandbox only
//	{instruction}       the goal's text; sandbox only, and not in a Run that is a shell command
//	{dir}               the task's working directory; sandbox only
//	{stage} {seed}      the stage's number from 1; the session's seed
//	{skills}            the task's skill folders, joined by colons; sandbox only
//	{mcp_config}        a file with the task's tool servers, empty if there are none; sandbox only
//	{prompt_file}       a file with the arm's prompt, empty if there is none; sandbox only
//
// In the sandbox the variables EVALRUN_INSTRUCTION (if it fits into a variable),
// EVALRUN_INSTRUCTION_FILE, EVALRUN_STAGE and EVALRUN_SEED are set. EVALRUN_SKILLS and
// EVALRUN_MCP_CONFIG are set if the task offers skills and servers. If the arm has a prompt,
// EVALRUN_PROMPT (if it fits) and EVALRUN_PROMPT_FILE are set.
type Config struct {
	Where string `json:"where" enum:"sandbox,host" doc:"Where the program runs: inside the task's sandbox, or beside evalrun, speaking docs/protocol.md. Default sandbox."`
	Run   Line   `json:"run" doc:"The program and its arguments; one text is a command for /bin/sh. {files}, {instruction_file}, {instruction}, {dir}, {stage}, {seed}, {skills}, {mcp_config} and {prompt_file} stand for what they name."`

	// Files is a file or folder of this machine that belongs to the program: {files}.
	Files string            `json:"files" doc:"A file or folder that belongs to the program, copied into the sandbox: {files}."`
	Env   map[string]string `json:"env" doc:"Variables for the program; the same placeholders as in run."`
	// PassEnv names variables of evalrun's own environment that a program on the host gets in
	// addition to PATH, HOME, TMPDIR and LANG.
	PassEnv []string `json:"pass_env" doc:"Host only: variables of evalrun's own environment that the program gets, beside PATH, HOME, TMPDIR and LANG."`

	// Answer is where a program in the sandbox leaves its answer: "stdout" (the default; at most
	// the last 256 KiB of the output), "none", or a file, absolute or relative to the task's
	// working directory.
	Answer string `json:"answer" doc:"Sandbox only: stdout (what it prints, the default), none, or a file that it writes."`

	// Options are passed unchanged to a program on the host.
	Options json.RawMessage `json:"options" doc:"Host only: handed to the program in its start message, as they are."`

	Timeout string `json:"timeout" doc:"Sandbox only: how long the program may run in a stage, such as 10m. Default: the trial's limit alone."`
	Start   string `json:"start" doc:"Host only: how soon the program must say start. Default 60s."`

	// Prompt is the arm's prompt. A program on the host gets it in its start message.
	Prompt string `json:"-"`

	timeout, start time.Duration
}

// A Line is a program with its arguments. Given as one string, it is a shell command.
type Line []string

func (l *Line) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*l = Line{"/bin/sh", "-c", s}
		return nil
	}
	var args []string
	if err := json.Unmarshal(b, &args); err != nil {
		return errors.New("run: want a list of texts, the program and its arguments, or one text, a shell command")
	}
	*l = args
	return nil
}

// shell reports whether l is a shell command.
func (l Line) shell() bool { return len(l) == 3 && l[0] == "/bin/sh" && l[1] == "-c" }

// FilesDir is the folder of the program's files in the sandbox; taskDir holds its instruction.
const (
	FilesDir = "/opt/evalrun-agent"
	taskDir  = "/opt/evalrun-task"
)

var placeholder = regexp.MustCompile(`\{(files|instruction_file|instruction|dir|stage|seed|skills|mcp_config|prompt_file)\}`)

// Parse parses a configuration strictly and checks it. Files, and a host program given as a path,
// are relative to base unless they are absolute.
func Parse(raw json.RawMessage, base string) (Config, error) {
	var c Config
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return c, fmt.Errorf("agent command: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if c.Where == "" {
		c.Where = InSandbox
	}
	if c.Answer == "" {
		c.Answer = "stdout"
	}
	if c.Files != "" && !filepath.IsAbs(c.Files) {
		abs, err := filepath.Abs(filepath.Join(base, c.Files))
		if err != nil {
			return c, fmt.Errorf("agent command: files: %w", err)
		}
		c.Files = abs
	}
	if c.Where == OnHost && len(c.Run) > 0 && !c.Run.shell() {
		// The program's working directory is an empty folder, so a relative path cannot refer to
		// it.
		if name := c.Run[0]; strings.Contains(name, "/") && !filepath.IsAbs(name) && !placeholder.MatchString(name) {
			abs, err := filepath.Abs(filepath.Join(base, name))
			if err != nil {
				return c, fmt.Errorf("agent command: run: %w", err)
			}
			c.Run[0] = abs
		}
	}
	if err := c.check(); err != nil {
		return c, fmt.Errorf("agent command: %w", err)
	}
	return c, nil
}

func (c *Config) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Run) == 0 || c.Run[0] == "" {
		bad("run: want the program and its arguments, such as [python3, \"{files}/agent.py\"]")
	}
	used := map[string]bool{}
	for _, a := range c.Run {
		for _, m := range placeholder.FindAllStringSubmatch(a, -1) {
			used[m[1]] = true
		}
	}
	if c.Run.shell() && used["instruction"] {
		bad("run: {instruction} in a shell command would be read as shell; write \"$EVALRUN_INSTRUCTION\", or use " +
			"{instruction_file}")
	}
	for _, v := range c.Env {
		for _, m := range placeholder.FindAllStringSubmatch(v, -1) {
			used[m[1]] = true
		}
	}
	if used["files"] && c.Files == "" {
		bad("run: {files} is used, and files is not set")
	}
	if c.Files != "" {
		if _, err := os.Stat(c.Files); err != nil {
			bad("files: %w", err)
		}
	}
	duration := func(name, v string) time.Duration {
		if v == "" {
			return 0
		}
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			bad("%s: a duration is written like 90s or 10m, not %q", name, v)
		}
		return d
	}
	c.timeout, c.start = duration("timeout", c.Timeout), duration("start", c.Start)
	switch c.Where {
	case InSandbox:
		if len(c.PassEnv) > 0 {
			bad("pass_env: nothing of this machine's environment enters a sandbox; set env, or where: host")
		}
		if len(c.Options) > 0 {
			bad("options: a program in the sandbox has no one to hand them to; set env, or where: host")
		}
		if c.Start != "" {
			bad("start: is for where: host")
		}
	case OnHost:
		for _, name := range []string{"instruction", "instruction_file", "dir", "skills", "mcp_config", "prompt_file"} {
			if used[name] {
				bad("run: {%s} is for where: sandbox; a program on the host gets its goal and its prompt in the "+
					"start message", name)
			}
		}
		for _, name := range c.PassEnv {
			if _, ok := os.LookupEnv(name); !ok {
				bad("pass_env: the environment has no %s; set it, or leave it out", name)
			}
		}
		if c.Answer != "stdout" {
			bad("answer: is for where: sandbox; a program on the host sends its answer with finish")
		}
		if c.Timeout != "" {
			bad("timeout: is for where: sandbox; a program on the host has the trial's limit")
		}
	default:
		bad("where: want %s or %s, not %q", InSandbox, OnHost, c.Where)
	}
	return errors.Join(errs...)
}

// FilesDigest returns a digest of the names and contents of Files, or "" if there are none. It is
// part of the arm's identity.
func (c Config) FilesDigest() (string, error) {
	if c.Files == "" {
		return "", nil
	}
	h := sha256.New()
	add := func(name string, mode fs.FileMode, r io.Reader) error {
		f := sha256.New()
		if _, err := io.Copy(f, r); err != nil {
			return err
		}
		_, err := fmt.Fprintf(h, "%q %o %x\n", name, mode.Perm()&0o111, f.Sum(nil))
		return err
	}
	src, err := files(c.Files)
	if err != nil {
		return "", err
	}
	defer src.Close()
	err = fs.WalkDir(src, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Type() == fs.ModeSymlink:
			to, err := fs.ReadLink(src, name)
			if err != nil {
				return err
			}
			return add(name, 0, strings.NewReader("-> "+to))
		case !d.Type().IsRegular():
			return nil
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		f, err := src.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		return add(name, fi.Mode(), f)
	})
	if err != nil {
		return "", fmt.Errorf("agent files: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// A Machine starts a machine for one program on the host: not isolated (driver "none"), or isolated
// like any other. The machine has an empty working directory and its own HOME and TMPDIR. The agent
// closes it.
type Machine func(ctx context.Context) (sandbox.Sandbox, error)

// Agent returns the agent of one session. Its first Run is stage 1, the second is stage 2; each
// starts the program again. m is called only if the program runs on the host.
func (c Config) Agent(m Machine) agent.Agent {
	if c.Where == OnHost {
		return &host{Config: c, machine: m}
	}
	return &inside{Config: c}
}

// fill replaces placeholders by their values.
func fill(s string, values map[string]string) string {
	return placeholder.ReplaceAllStringFunc(s, func(p string) string {
		if v, ok := values[p[1:len(p)-1]]; ok {
			return v
		}
		return p
	})
}

// A Failure reports that a program crashed or violated its protocol.
type Failure struct {
	Text   string
	Stderr string // last lines of the output, without control characters; may be empty
}

func (f *Failure) Error() string {
	if f.Stderr == "" {
		return "agent program: " + f.Text
	}
	return "agent program: " + f.Text + "; its stderr ends: " + f.Stderr
}

// below joins a path in the sandbox to its working directory.
func below(dir, name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join("/", dir, name)
}
