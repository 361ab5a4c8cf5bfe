package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/search"
	"github.com/evalrun/evalrun/runtime/local"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// acting measures what agents act with: shells, the editor and searches.
func (b *bench) acting() error {
	ctx := context.Background()
	d := local.New()
	defer d.Close()
	if err := d.Probe(ctx); err != nil {
		return err
	}
	sb, err := d.Create(ctx, sandbox.Spec{Owner: sandbox.Owner{Run: "bench", PID: os.Getpid()}, Dir: "/workspace"})
	if err != nil {
		return err
	}
	defer sb.Close()
	if err := b.shells(ctx, sb); err != nil {
		return err
	}
	if err := b.edits(ctx, sb); err != nil {
		return err
	}
	return b.searches(ctx)
}

func (b *bench) shells(ctx context.Context, sb sandbox.Sandbox) error {
	sh, ok := sandbox.As[sandbox.Sheller](sb)
	if !ok {
		return errors.New("the sandbox has no shells")
	}
	run := func(shell, text string) error {
		x, err := sh.Shell(ctx, sandbox.ShellCall{Shell: shell, Op: sandbox.ShellRun, Text: text, Limit: 30_000,
			Timeout: time.Minute, Stdout: io.Discard})
		if err == nil && (x.End != sandbox.ShellCompleted || x.Code != 0) {
			err = fmt.Errorf("%s: %+v", text, x)
		}
		return err
	}
	if err := run("a", "true"); err != nil {
		return err
	}
	m, err := median(201, func() error { return run("a", "true") })
	if err != nil {
		return err
	}
	b.add("persistent shell: a command", m, 3e-3, b.floors.exec, ms, "exec")

	if err := run("a", "head -c 100000000 /dev/zero"+
		" | tr '\\0' '\\n' > /tmp/large; cat /tmp/large > /dev/null"); err != nil {
		return err
	}
	floor, err := median(5, func() error {
		_, err := sb.Exec(ctx, sandbox.Command{Args: []string{"sh", "-c", "cat /tmp/large > /dev/null"}})
		return err
	})
	if err != nil {
		return err
	}
	m, err = median(3, func() error { return run("a", "cat /tmp/large") })
	if err != nil {
		return err
	}
	b.add("persistent shell: 100 MB of output", m, 2*floor, floor, ms, "cat > /dev/null")

	t := time.Now()
	for i := range 100 {
		if err := run(fmt.Sprint("s", i), "true"); err != nil {
			return err
		}
	}
	b.note("100 shells in one sandbox, each with a command", ms(time.Since(t).Seconds())+" in all")
	return nil
}

func (b *bench) edits(ctx context.Context, sb sandbox.Sandbox) error {
	f, ok := sandbox.As[sandbox.Filer](sb)
	if !ok {
		return errors.New("the sandbox has no editor")
	}
	op := func(o sandbox.FileOp) error {
		o.Path = "/tmp/edited"
		res, err := f.FileOp(ctx, o)
		if err == nil && res.Error {
			err = errors.New(res.Text)
		}
		return err
	}
	text := "one\n" + strings.Repeat("0123456789abcde\n", 1<<16)
	if err := op(sandbox.FileOp{Op: sandbox.FileCreate, Text: text}); err != nil {
		return err
	}
	was, is := "one", "two"
	m, err := median(21, func() error {
		was, is = is, was
		return op(sandbox.FileOp{Op: sandbox.FileReplace, Old: is, Text: was})
	})
	if err != nil {
		return err
	}
	b.add("editor: a replacement in a file of 1 MB", m, 5e-3, b.floors.exec, ms, "exec")
	return nil
}

func (b *bench) searches(ctx context.Context) error {
	if _, err := exec.LookPath("rg"); err != nil {
		return errors.New("searches: there is no rg to compare with")
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	dir := filepath.Join(strings.TrimSpace(string(root)), "src")
	for _, c := range []struct {
		name string
		s    sandbox.Search
		glob bool
		args []string // of rg
	}{
		{"glob *_test.go", sandbox.Search{Pattern: "*_test.go"}, true, []string{"--files", "-g", "*_test.go"}},
		{"grep for a text", sandbox.Search{Pattern: "no such text"}, false, []string{"no such text"}},
		{"— without its case", sandbox.Search{Pattern: "no such text", IgnoreCase: true}, false,
			[]string{"-i", "no such text"}},
		{"— for a regular expression with a text", sandbox.Search{Pattern: `^func \(.*\) WriteTo\(`}, false,
			[]string{`^func \(.*\) WriteTo\(`}},
		{"— for one without", sandbox.Search{Pattern: `[0-9]{4}-[0-9]{2}-[0-9]{2}T`}, false,
			[]string{`[0-9]{4}-[0-9]{2}-[0-9]{2}T`}},
	} {
		do := search.Grep
		if c.glob {
			do = search.Glob
		}
		var ours, theirs []float64
		for range 11 {
			t := time.Now()
			if _, err := do(ctx, dir, c.s); err != nil {
				return err
			}
			ours = append(ours, time.Since(t).Seconds())
			t = time.Now()
			cmd := exec.Command("rg", append([]string{"--no-config", "-n"}, c.args...)...)
			cmd.Dir = dir
			if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() != 1 { // 1: nothing was found
				return err
			}
			theirs = append(theirs, time.Since(t).Seconds())
		}
		b.add("Go's standard library: "+c.name, mid(ours), 2*mid(theirs), mid(theirs), ms, "ripgrep")
	}
	return nil
}
