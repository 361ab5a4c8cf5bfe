package tasks

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// interpreter returns the command that runs a script: bash, or the interpreter named in its first
// line ("#!/usr/bin/env python3").
func interpreter(script string) ([]string, error) {
	first, _, _ := strings.Cut(script, "\n")
	line, ok := strings.CutPrefix(first, "#!")
	if !ok {
		return []string{"bash", "--noprofile", "--norc", "-c"}, nil
	}
	words := strings.Fields(line)
	if len(words) > 0 && path.Base(words[0]) == "env" {
		words = words[1:]
	}
	if len(words) == 1 {
		switch path.Base(words[0]) {
		case "bash":
			return []string{"bash", "--noprofile", "--norc", "-c"}, nil
		case "sh":
			return []string{"sh", "-c"}, nil
		case "python3", "python":
			// -I keeps Python from importing from the working directory, which may hold files of
			// the agent.
			return []string{"python3", "-I", "-B", "-c"}, nil
		}
	}
	return nil, fmt.Errorf("its first line is %q; scripts run with bash, sh or python3", score.Clip(first, 100))
}

// A variable of a script holds a path. It is set in the script's text, not in its environment, so
// that programs started by the script do not inherit it. The path is given relative to the script's
// directory and the script makes it absolute, because without isolation the root directory we know
// differs from the one that commands see.
type variable struct{ name, path string }

// relative returns the absolute path p relative to the absolute directory dir.
func relative(dir, p string) string {
	return strings.Repeat("../", strings.Count(path.Clean(dir), "/")) + strings.TrimPrefix(p, "/")
}

// command returns the command that runs a script.
func command(script, user string, vars []variable, dir string, timeout time.Duration) (sandbox.Command, error) {
	args, err := interpreter(script)
	if err != nil {
		return sandbox.Command{}, err
	}
	var set []string
	for _, v := range vars {
		if args[0] == "python3" {
			set = append(set, fmt.Sprintf("%s = __import__('os').path.abspath(%q)", v.name, v.path))
		} else {
			set = append(set, fmt.Sprintf(`%s="$PWD/%s"`, v.name, v.path))
		}
	}
	if len(set) > 0 {
		// Assignments go on the script's first line, or replace its "#!" line, so that line numbers
		// in error messages stay correct.
		end := "; "
		if strings.HasPrefix(script, "#!") {
			_, script, _ = strings.Cut(script, "\n")
			end = "\n"
		}
		script = strings.Join(set, "; ") + end + script
	}
	return sandbox.Command{Args: append(args, script), Dir: dir, User: user, Limit: 64 << 10, FullLimit: -1,
		Timeout: timeout}, nil
}

// run runs a script and waits for it.
func run(ctx context.Context, sb sandbox.Sandbox, script string, vars []variable, dir string,
	timeout time.Duration) (sandbox.Exit, string, error) {
	// always root, whatever user the image declares
	c, err := command(script, "root", vars, dir, timeout)
	if err != nil {
		return sandbox.Exit{}, "", err
	}
	var out sandboxed.Tail
	c.Stdout = &out
	exit, err := sb.Exec(ctx, c)
	return exit, out.String(), err
}
