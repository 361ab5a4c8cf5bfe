package fake

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A shell runs what parse read. Each program is a process of its own, as in a real one; what
// changes the shell is not.
type shell struct {
	p      *Proc // its input and outputs are those of the shell
	ctx    context.Context
	env    map[string]string // what was set since the start
	params []string          // $0 $1 …
	last   int
	inner  int // of the last $(…): what a line that only assigns returns
	exited bool
	atExit list // of trap … EXIT
}

// runShell is bash and sh: -c SCRIPT [$0 …], a file, or standard input. Other options are let pass.
func runShell(ctx context.Context, p *Proc) int {
	args := p.Args[1:]
	command := false
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		opt := args[0]
		args = args[1:]
		if opt == "--" {
			break
		}
		if !strings.HasPrefix(opt, "--") && strings.HasSuffix(opt, "c") {
			command = true
			break
		}
		if opt == "-o" && len(args) > 0 {
			args = args[1:]
		}
	}
	sh := &shell{p: p, ctx: ctx, env: maps.Clone(p.env), params: []string{p.Args[0]}}
	var script string
	switch {
	case command && len(args) == 0:
		fmt.Fprintf(p.Stderr, "%s: -c: option requires an argument\n", p.Args[0])
		return 2
	case command:
		script = args[0]
		if len(args) > 1 {
			sh.params = args[1:]
		}
	case len(args) > 0:
		b, err := p.ReadFile(args[0])
		if err != nil {
			fmt.Fprintf(p.Stderr, "%s: %v\n", p.Args[0], err)
			return 127
		}
		script, sh.params = string(b), args
	default:
		b, err := io.ReadAll(p.Stdin)
		if err != nil {
			return 1
		}
		script = string(b)
	}
	l, err := parse(script)
	if err != nil {
		fmt.Fprintf(p.Stderr, "%s: %v\n", p.Args[0], err)
		return 2
	}
	sh.list(l, p)
	if code := sh.last; sh.atExit != nil && ctx.Err() == nil {
		sh.exited = false
		sh.list(sh.atExit, p)
		return code
	}
	return sh.last
}

// list runs commands with the input, outputs and directory of io.
func (sh *shell) list(l list, io *Proc) {
	for _, it := range l {
		if sh.exited || sh.ctx.Err() != nil {
			return
		}
		if it.op == "&&" && sh.last != 0 || it.op == "||" && sh.last == 0 {
			continue
		}
		if it.back {
			sh.background(it, io)
			continue
		}
		sh.last = sh.pipe(it.pipe, io)
		if it.not {
			if sh.last == 0 {
				sh.last = 1
			} else {
				sh.last = 0
			}
		}
	}
}

// spawn runs f as a process with io's streams, and returns it.
func (sh *shell) spawn(io *Proc, args []string, f Func) (*Proc, error) {
	child := &Proc{Args: args, Dir: sh.p.Dir, User: sh.p.User, Stdin: io.Stdin, Stdout: io.Stdout, Stderr: io.Stderr,
		env: maps.Clone(sh.env)}
	return child, sh.p.spawn(f, child)
}

// wait is the code of a process, once it has one.
func (sh *shell) wait(child *Proc) int {
	<-child.done
	sh.p.sandbox.mu.Lock()
	defer sh.p.sandbox.mu.Unlock()
	if n := signals[child.signal]; n > 0 {
		return 128 + n
	}
	return child.code
}

var signals = map[string]int{"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGABRT": 6, "SIGKILL": 9, "SIGSEGV": 11,
	"SIGPIPE": 13, "SIGTERM": 15}

// subshell runs l in a process of its own, as a shell that changes nothing of this one. What it
// inherits is copied now, since this one may go on beside it.
func (sh *shell) subshell(l list) Func {
	sub := &shell{ctx: sh.ctx, env: maps.Clone(sh.env), params: sh.params, last: sh.last}
	return func(ctx context.Context, p *Proc) int {
		sub.p = p
		sub.list(l, p)
		return sub.last
	}
}

func (sh *shell) background(it item, io *Proc) {
	io = &Proc{Stdin: strings.NewReader(""), Stdout: io.Stdout, Stderr: io.Stderr}
	it.back, it.op = false, ""
	sh.last = 0
	if _, err := sh.spawn(io, []string{"sh"}, sh.subshell(list{it})); err != nil {
		sh.complain(io, "fork", err)
		sh.last = 254
	}
}

func (sh *shell) pipe(cmds []*simple, std *Proc) int {
	if len(cmds) == 1 {
		return sh.simple(cmds[0], std)
	}
	in := std.Stdin
	var stages []*Proc
	for i, c := range cmds {
		at := &Proc{Stdin: in, Stdout: std.Stdout, Stderr: std.Stderr}
		var w *io.PipeWriter
		r, _ := in.(*io.PipeReader)
		if i < len(cmds)-1 {
			var next *io.PipeReader
			next, w = io.Pipe()
			at.Stdout, in = w, next
		}
		f := sh.subshell(list{{pipe: []*simple{c}}})
		stage, err := sh.spawn(at, []string{"sh"}, func(ctx context.Context, p *Proc) int {
			// Whoever ends, lets his neighbours know. The last one of a killed pipe may wait for no
			// one.
			stop := context.AfterFunc(ctx, func() { closePipe(r, w) })
			defer stop()
			defer closePipe(r, w)
			return f(ctx, p)
		})
		if err != nil {
			closePipe(r, w)
			sh.complain(std, "fork", err)
			return 254
		}
		stages = append(stages, stage)
	}
	code := 0
	for _, s := range stages {
		code = sh.wait(s)
	}
	return code
}

func closePipe(r *io.PipeReader, w *io.PipeWriter) {
	if r != nil {
		r.Close()
	}
	if w != nil {
		w.Close()
	}
}

func (sh *shell) complain(io *Proc, what string, err error) {
	fmt.Fprintf(io.Stderr, "%s: %s: %v\n", sh.params[0], what, err)
}

// simple runs one command.
func (sh *shell) simple(c *simple, std *Proc) int {
	at := &Proc{Stdin: std.Stdin, Stdout: std.Stdout, Stderr: std.Stderr}
	for _, r := range c.redirs {
		if err := sh.redirect(at, r); err != nil {
			sh.complain(std, sh.expand(r.to), err)
			return 1
		}
	}
	if c.isSub {
		child, err := sh.spawn(at, []string{"sh"}, sh.subshell(c.sub))
		if err != nil {
			sh.complain(std, "fork", err)
			return 254
		}
		return sh.wait(child)
	}
	sh.inner = 0
	var args []string
	for _, w := range c.words {
		args = append(args, sh.fields(w)...)
	}
	if len(args) == 0 {
		for _, a := range c.assign {
			sh.set(a.name, sh.expand(a.value))
		}
		return sh.inner
	}
	set := map[string]string{}
	for _, a := range c.assign {
		set[a.name] = sh.expand(a.value)
	}
	if b := shellBuiltins[args[0]]; b != nil {
		return b(sh, at, args)
	}
	child := &Proc{Args: args, Dir: sh.p.Dir, User: sh.p.User, Stdin: at.Stdin, Stdout: at.Stdout, Stderr: at.Stderr,
		env: maps.Clone(sh.env)}
	for name, v := range set {
		if child.env == nil {
			child.env = map[string]string{}
		}
		child.env[name] = v
	}
	child.sandbox = sh.p.sandbox
	f, failed, why := child.sandbox.lookup(child)
	if f == nil {
		fmt.Fprintf(at.Stderr, "%s: %s: %s\n", sh.params[0], args[0], why)
		return failed
	}
	if child.sandbox.driver.inline[args[0]] {
		child.tree = sh.p.tree
		return f(sh.ctx, child)
	}
	if err := sh.p.spawn(f, child); err != nil {
		sh.complain(std, "fork", err)
		return 254
	}
	return sh.wait(child)
}

func (sh *shell) redirect(at *Proc, r *redirection) error {
	to := func(w io.Writer) {
		if r.fd != 2 {
			at.Stdout = w
		}
		if r.fd == 2 || r.fd == 12 {
			at.Stderr = w
		}
	}
	switch r.op {
	case "<<", "<<-":
		at.Stdin = strings.NewReader(sh.expand(r.body))
		return nil
	case "<<<":
		at.Stdin = strings.NewReader(sh.expand(r.to) + "\n")
		return nil
	case ">&":
		switch target := sh.expand(r.to); target {
		case "1":
			to(at.Stdout)
		case "2":
			to(at.Stderr)
		default:
			return fmt.Errorf("bad file descriptor")
		}
		return nil
	}
	name := sh.expand(r.to)
	if name == "/dev/null" {
		if r.op == "<" {
			at.Stdin = strings.NewReader("")
		} else {
			to(io.Discard)
		}
		return nil
	}
	if r.op == "<" {
		b, err := sh.p.ReadFile(name)
		at.Stdin = bytes.NewReader(b)
		return reason(err)
	}
	w, err := sh.p.Create(name, 0o644, r.op == ">")
	if err != nil {
		return reason(err)
	}
	to(w)
	return nil
}

func (sh *shell) set(name, value string) {
	if sh.env == nil {
		sh.env = map[string]string{}
	}
	sh.env[name] = value
}

// get is the value of a variable or parameter.
func (sh *shell) get(name string) string {
	switch name {
	case "?":
		return strconv.Itoa(sh.last)
	case "$":
		return "2"
	case "PWD":
		return path.Clean(sh.p.Dir)
	case "#":
		return strconv.Itoa(len(sh.params) - 1)
	case "@", "*":
		return strings.Join(sh.params[1:], " ")
	}
	if n, err := strconv.Atoi(name); err == nil {
		if n < len(sh.params) {
			return sh.params[n]
		}
		return ""
	}
	if v, ok := sh.env[name]; ok {
		return v
	}
	return sh.p.Getenv(name)
}

func (sh *shell) value(x piece) string {
	switch x.kind {
	case 'v':
		return sh.get(x.text)
	case 'c':
		var out collected
		child, err := sh.spawn(&Proc{Stdin: sh.p.Stdin, Stdout: &out, Stderr: sh.p.Stderr}, []string{"sh"},
			sh.subshell(x.sub))
		if err != nil {
			sh.complain(sh.p, "fork", err)
			sh.inner = 254
			return ""
		}
		sh.inner = sh.wait(child)
		return strings.TrimRight(out.String(), "\n")
	}
	return x.text
}

// A collected takes the output of a $(…), whose background commands may still write when it is
// over.
type collected struct {
	mu sync.Mutex
	b  strings.Builder
}

func (c *collected) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.Write(p)
}

func (c *collected) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.String()
}

// expand is a word as one text.
func (sh *shell) expand(w word) string {
	var b strings.Builder
	for _, x := range w {
		b.WriteString(sh.value(x))
	}
	return b.String()
}

// fields is a word as arguments: what comes from unquoted variables and commands is split at
// blanks.
func (sh *shell) fields(w word) []string {
	var all []string
	cur, started := "", false
	for _, x := range w {
		if x.kind == 'v' && x.text == "@" && x.quoted {
			for i, v := range sh.params[1:] {
				if i > 0 {
					all, cur = append(all, cur), ""
				}
				cur, started = cur+v, true
			}
			continue
		}
		v := sh.value(x)
		if x.kind == 'l' || x.quoted {
			cur, started = cur+v, true
			continue
		}
		if v != "" && strings.ContainsRune(" \t\n", rune(v[0])) && started {
			all, cur, started = append(all, cur), "", false
		}
		parts := strings.Fields(v)
		for i, part := range parts {
			if i > 0 {
				all, cur = append(all, cur), ""
			}
			cur, started = cur+part, true
		}
		if len(parts) > 0 && strings.ContainsRune(" \t\n", rune(v[len(v)-1])) {
			all, cur, started = append(all, cur), "", false
		}
	}
	if started {
		all = append(all, cur)
	}
	return all
}

// shellBuiltins change the shell itself.
var shellBuiltins map[string]func(sh *shell, at *Proc, args []string) int

func init() { // they run shells themselves
	shellBuiltins = map[string]func(sh *shell, at *Proc, args []string) int{
		":":   func(*shell, *Proc, []string) int { return 0 },
		"set": func(*shell, *Proc, []string) int { return 0 }, // options are let pass
		"exit": func(sh *shell, at *Proc, args []string) int {
			sh.exited = true
			if len(args) > 1 {
				n, err := strconv.Atoi(args[1])
				if err != nil {
					fmt.Fprintf(at.Stderr, "exit: %s: numeric argument required\n", args[1])
					return 2
				}
				return n & 0xff
			}
			return sh.last
		},
		"cd": func(sh *shell, at *Proc, args []string) int {
			dir := sh.get("HOME")
			if len(args) > 1 {
				dir = args[1]
			}
			fi, err := sh.p.Stat(dir)
			if err == nil && !fi.IsDir() {
				err = fmt.Errorf("not a directory")
			}
			if err != nil {
				sh.complain(at, "cd: "+dir, reason(err))
				return 1
			}
			sh.p.Dir = path.Clean(sh.p.path(dir)) // as bash, by the text
			return 0
		},
		"export": func(sh *shell, at *Proc, args []string) int {
			for _, a := range args[1:] {
				if name, v, ok := strings.Cut(a, "="); ok {
					sh.set(name, v)
				}
			}
			return 0
		},
		"unset": func(sh *shell, at *Proc, args []string) int {
			for _, name := range args[1:] {
				sh.set(name, "")
			}
			return 0
		},
		"trap": func(sh *shell, at *Proc, args []string) int {
			if len(args) != 3 || args[2] != "EXIT" {
				sh.complain(at, "trap", fmt.Errorf("only: trap COMMANDS EXIT"))
				return 2
			}
			l, err := parse(strings.TrimPrefix(args[1], "-"))
			if err != nil {
				sh.complain(at, "trap", err)
				return 2
			}
			sh.atExit = l
			return 0
		},
		"eval": func(sh *shell, at *Proc, args []string) int {
			l, err := parse(strings.Join(args[1:], " "))
			if err != nil {
				sh.complain(at, "eval", err)
				return 2
			}
			sh.list(l, at)
			return sh.last
		},
		"exec": func(sh *shell, at *Proc, args []string) int {
			if len(args) == 1 {
				return 0
			}
			quoted := make(word, 0)
			c := &simple{}
			for _, a := range args[1:] {
				c.words = append(c.words, append(slices.Clone(quoted), piece{text: a, kind: 'l', quoted: true}))
			}
			code := sh.simple(c, at)
			sh.exited = true
			return code
		},
	}
}
