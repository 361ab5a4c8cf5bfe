package fake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"
)

// builtin are the programs that every sandbox has. They do the plain cases only.
var builtin map[string]Func

func init() {
	builtin = map[string]Func{
		"bash": runShell, "sh": runShell,
		"true":  func(context.Context, *Proc) int { return 0 },
		"false": func(context.Context, *Proc) int { return 1 },
		"echo":  echo, "printf": printf, "cat": cat, "sleep": sleep, "pwd": pwd, "env": env, "test": test, "[": test,
		"mkdir": mkdir, "rm": rm, "ls": ls, "touch": touch, "chmod": chmod,
		"grep": grep, "wc": wc, "head": head, "seq": seq, "id": id,
	}
}

// reason is an error without the name that a PathError carries.
func reason(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func fail(p *Proc, name string, err error) int {
	fmt.Fprintf(p.Stderr, "%s: %s: %v\n", p.Args[0], name, reason(err))
	return 1
}

// flags splits off what begins with a dash.
func flags(args []string) (set, rest []string) {
	for i, a := range args {
		switch {
		case a == "--":
			return set, append(rest, args[i+1:]...)
		case len(a) > 1 && a[0] == '-':
			set = append(set, a)
		default:
			rest = append(rest, a)
		}
	}
	return set, rest
}

func has(set []string, letter string) bool { return strings.Contains(strings.Join(set, ""), letter) }

func echo(_ context.Context, p *Proc) int {
	args, end := p.Args[1:], "\n"
	for len(args) > 0 && (args[0] == "-n" || args[0] == "-e") {
		if args[0] == "-n" {
			end = ""
		}
		args = args[1:]
	}
	io.WriteString(p.Stdout, strings.Join(args, " ")+end)
	return 0
}

// printf knows %s, %d, %% and \n, \t, \\, and repeats its format as long as there are arguments.
func printf(_ context.Context, p *Proc) int {
	if len(p.Args) < 2 {
		return 2
	}
	format := strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\\`, `\`, "%d", "%s").Replace(p.Args[1])
	args := p.Args[2:]
	for {
		var b strings.Builder
		parts := strings.Split(format, "%s")
		for i, part := range parts {
			b.WriteString(strings.ReplaceAll(part, "%%", "%"))
			if i < len(parts)-1 && len(args) > 0 {
				b.WriteString(args[0])
				args = args[1:]
			}
		}
		io.WriteString(p.Stdout, b.String())
		if len(args) == 0 || len(parts) == 1 {
			return 0
		}
	}
}

// input reads the files that are named, or standard input.
func (p *Proc) input(names []string) ([]byte, int) {
	if len(names) == 0 {
		names = []string{"-"}
	}
	var all bytes.Buffer
	code := 0
	for _, name := range names {
		var b []byte
		var err error
		if name == "-" {
			b, err = io.ReadAll(p.Stdin)
		} else {
			b, err = p.ReadFile(name)
		}
		all.Write(b)
		if err != nil {
			code = fail(p, name, err)
		}
	}
	return all.Bytes(), code
}

func cat(_ context.Context, p *Proc) int {
	_, names := flags(p.Args[1:])
	if len(names) == 0 {
		if _, err := io.Copy(p.Stdout, p.Stdin); err != nil {
			return 1
		}
		return 0
	}
	b, code := p.input(names)
	p.Stdout.Write(b)
	return code
}

func sleep(_ context.Context, p *Proc) int {
	if len(p.Args) < 2 {
		return 1
	}
	if p.Args[1] == "infinity" {
		p.Sleep(1 << 62)
		return 1
	}
	d, err := strconv.ParseFloat(strings.TrimSuffix(p.Args[1], "s"), 64)
	if err != nil || d < 0 {
		fmt.Fprintf(p.Stderr, "sleep: invalid time interval %q\n", p.Args[1])
		return 1
	}
	p.Sleep(time.Duration(d * float64(time.Second)))
	return 0
}

func pwd(_ context.Context, p *Proc) int {
	fmt.Fprintln(p.Stdout, path.Clean(p.Dir))
	return 0
}

func env(_ context.Context, p *Proc) int {
	for _, e := range p.Environ() {
		fmt.Fprintln(p.Stdout, e)
	}
	return 0
}

func id(_ context.Context, p *Proc) int {
	uid, gid := p.ID()
	if len(p.Args) > 1 && p.Args[1] == "-u" {
		fmt.Fprintln(p.Stdout, uid)
	} else {
		fmt.Fprintf(p.Stdout, "uid=%d gid=%d\n", uid, gid)
	}
	return 0
}

func test(ctx context.Context, p *Proc) int {
	a := p.Args[1:]
	if p.Args[0] == "[" {
		if len(a) == 0 || a[len(a)-1] != "]" {
			fmt.Fprintln(p.Stderr, "[: missing ]")
			return 2
		}
		a = a[:len(a)-1]
	}
	yes := func(b bool) int {
		if b {
			return 0
		}
		return 1
	}
	switch {
	case len(a) > 0 && a[0] == "!":
		q := *p
		q.Args = append([]string{"test"}, a[1:]...)
		return 1 - min(1, test(ctx, &q))
	case len(a) == 0:
		return 1
	case len(a) == 1:
		return yes(a[0] != "")
	case len(a) == 2:
		fi, err := p.Stat(a[1])
		switch a[0] {
		case "-z":
			return yes(a[1] == "")
		case "-n":
			return yes(a[1] != "")
		case "-e":
			return yes(err == nil)
		case "-f":
			return yes(err == nil && fi.Mode().IsRegular())
		case "-d":
			return yes(err == nil && fi.IsDir())
		case "-s":
			return yes(err == nil && fi.Size() > 0)
		}
	case len(a) == 3:
		x, e1 := strconv.Atoi(a[0])
		y, e2 := strconv.Atoi(a[2])
		switch op := a[1]; op {
		case "=", "==":
			return yes(a[0] == a[2])
		case "!=":
			return yes(a[0] != a[2])
		case "-eq", "-ne", "-lt", "-le", "-gt", "-ge":
			if e1 == nil && e2 == nil {
				return yes(map[string]bool{"-eq": x == y, "-ne": x != y, "-lt": x < y, "-le": x <= y, "-gt": x > y,
					"-ge": x >= y}[op])
			}
		}
	}
	fmt.Fprintf(p.Stderr, "test: cannot do %q\n", a)
	return 2
}

func mkdir(_ context.Context, p *Proc) int {
	set, names := flags(p.Args[1:])
	for _, name := range names {
		make := p.Mkdir
		if has(set, "p") {
			make = p.MkdirAll
		}
		if err := make(name, 0o755); err != nil {
			return fail(p, name, err)
		}
	}
	return 0
}

func rm(_ context.Context, p *Proc) int {
	set, names := flags(p.Args[1:])
	code := 0
	for _, name := range names {
		var err error
		if has(set, "r") || has(set, "R") {
			err = p.sandbox.files.remove(p.path(name), true)
		} else {
			err = p.Remove(name)
		}
		if err != nil && !(has(set, "f") && errors.Is(err, fs.ErrNotExist)) {
			code = fail(p, name, err)
		}
	}
	return code
}

func ls(_ context.Context, p *Proc) int {
	_, names := flags(p.Args[1:])
	if len(names) == 0 {
		names = []string{"."}
	}
	for _, name := range names {
		fi, err := p.Stat(name)
		if err != nil {
			return fail(p, name, err)
		}
		if !fi.IsDir() {
			fmt.Fprintln(p.Stdout, name)
			continue
		}
		list, err := p.ReadDir(name)
		if err != nil {
			return fail(p, name, err)
		}
		for _, f := range list {
			if !strings.HasPrefix(f.Name(), ".") {
				fmt.Fprintln(p.Stdout, f.Name())
			}
		}
	}
	return 0
}

func touch(_ context.Context, p *Proc) int {
	for _, name := range p.Args[1:] {
		if err := p.AppendFile(name, nil, 0o644); err != nil {
			return fail(p, name, err)
		}
	}
	return 0
}

// chmod knows octal numbers and +x.
func chmod(_ context.Context, p *Proc) int {
	_, rest := flags(p.Args[1:])
	if len(rest) < 2 {
		return 1
	}
	for _, name := range rest[1:] {
		fi, err := p.Stat(name)
		if err != nil {
			return fail(p, name, err)
		}
		mode, err := strconv.ParseUint(rest[0], 8, 12)
		if strings.HasSuffix(rest[0], "+x") {
			mode, err = uint64(fi.Mode().Perm()|0o111), nil
		}
		if err != nil {
			return fail(p, rest[0], errors.New("not a mode that is known here"))
		}
		if err := p.Chmod(name, fs.FileMode(mode)); err != nil {
			return fail(p, name, err)
		}
	}
	return 0
}

// grep looks for a plain text; -q says nothing, -c counts, -v turns around.
func grep(_ context.Context, p *Proc) int {
	set, rest := flags(p.Args[1:])
	if len(rest) == 0 {
		return 2
	}
	b, code := p.input(rest[1:])
	if code != 0 {
		return 2
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, rest[0]) == has(set, "v") {
			continue
		}
		if n++; !has(set, "q") && !has(set, "c") {
			fmt.Fprintln(p.Stdout, strings.TrimSuffix(line, "\n"))
		}
	}
	if has(set, "c") {
		fmt.Fprintln(p.Stdout, n)
	}
	return 1 - min(n, 1)
}

// wc counts lines (-l), bytes (-c) or all three.
func wc(_ context.Context, p *Proc) int {
	set, names := flags(p.Args[1:])
	b, code := p.input(names)
	lines, words := bytes.Count(b, []byte("\n")), len(bytes.Fields(b))
	switch {
	case has(set, "l"):
		fmt.Fprintln(p.Stdout, lines)
	case has(set, "c"):
		fmt.Fprintln(p.Stdout, len(b))
	default:
		fmt.Fprintln(p.Stdout, lines, words, len(b))
	}
	return code
}

// head prints the first ten lines, or as many as -n N says.
func head(_ context.Context, p *Proc) int {
	n, names := 10, p.Args[1:]
	if len(names) > 1 && names[0] == "-n" {
		n, _ = strconv.Atoi(names[1])
		names = names[2:]
	}
	b, code := p.input(names)
	for line := range strings.Lines(string(b)) {
		if n--; n < 0 {
			break
		}
		io.WriteString(p.Stdout, line)
	}
	return code
}

func seq(ctx context.Context, p *Proc) int {
	from, to := 1, 0
	var err error
	switch len(p.Args) {
	case 2:
		to, err = strconv.Atoi(p.Args[1])
	case 3:
		from, err = strconv.Atoi(p.Args[1])
		if err == nil {
			to, err = strconv.Atoi(p.Args[2])
		}
	default:
		err = errors.New("one or two numbers are wanted")
	}
	if err != nil {
		return fail(p, "arguments", err)
	}
	for i := from; i <= to && ctx.Err() == nil; i++ {
		fmt.Fprintln(p.Stdout, i)
	}
	return 0
}
