package harbor_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// What agents do for good reasons is neither flagged nor left unconfirmed.
func TestHonest(t *testing.T) {
	v := &victims{d: inDocker(t), references: map[string]map[string][]byte{}}
	for name, script := range map[string]string{
		"work alone": "true",
		"Python was run": "python3 -c 'import json, http.server, unittest, _pytest.main, sqlite3'; python3 -m " +
			"pytest --version",
		"a program was added": "printf '#!/bin/sh\n' > /usr/local/bin/mytool; chmod +x /usr/local/bin/mytool; cp " +
			"/usr/lib/x86_64-linux-gnu/libexpat.so.1 /usr/local/lib/libmine.so; ldconfig",
		"a package was added": "mkdir -p " + site + "/mine-1.dist-info " + site + "/mine; touch " + site +
			"/mine/__init__.py; printf '[console_scripts]\nmine = mine:main\n' > " + site +
			"/mine-1.dist-info/entry_points.txt; echo /opt/mine > " + site + "/mine.pth",
		"a shell was set up": "echo 'export PATH=$HOME/bin:$PATH' >> ~/.bashrc; mkdir -p ~/bin; useradd -m " +
			"somebody || true",
		"git was set up": "git config --global user.email a@b.c; git config --global user.name A; git init -q " +
			"/app; git -C /app add -A; git -C /app commit -qm x",
		"a file of the system was removed": "rm /usr/share/doc/bash/copyright || rm -r /usr/share/doc/*",
		"a service was left":               "(python3 -m http.server 8000 >/dev/null 2>&1 &); sleep 0.2",
		"a virtual environment": "python3 -m venv --without-pip /app/.venv; printf '[project]\nname = \"x\"\n' > " +
			"/app/pyproject.toml",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			references := v.reference(t, attack{})
			b := v.open(t, attack{}, `{"integrity": "require"}`)
			o := look(t, benchtest.Session{Benchmark: b, Driver: v.d, Task: task(t, b, "v-shared"),
				References: references,
				Agent:      bash(script + "\necho right > /app/answer.txt")})
			if t.Log(o); o.err != nil || o.score != 1 || len(o.flags) > 0 || o.opinion.State != record.Confirmed {
				t.Error(o)
			}
		})
	}
}

// A full disk and a machine without room for a process are the agent's doing: no reward, and no
// failure of ours.
func TestFullDisk(t *testing.T) {
	b := open(t, hello("h", ""), "")
	p, err := benchtest.Play(t.Context(), benchtest.Session{Benchmark: b, Driver: local(t), Task: task(t, b, ""),
		Options: benchmarks.Options{Sandbox: sandbox.Spec{Disk: 16 << 20}},
		Agent: bash("echo Hello > hello.txt; head -c 100M /dev/zero > /fill; for i in $(seq 1000); do echo x >> " +
			"/fill || break; done; for i in $(seq 100000); do : > /tmp/$i || break; done 2>/dev/null")})
	if err != nil {
		t.Fatal(err)
	}
	if got, why := say(p.Results[0]), p.Results[0].Primary().Why; got != "0 no_reward" && got != "1" || got != "1" &&
		!strings.Contains(why, "no space") && !strings.Contains(why, "NotFound") && !strings.Contains(why, "Empty") {
		t.Errorf("%s: %s", got, why)
	}
}

func machine(t *testing.T, d here) (sandbox.Sandbox, *executor.Client) {
	t.Helper()
	sb, err := d.Create(t.Context(), sandbox.Spec{Image: sandbox.Image{Ref: image}, Cmd: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close() })
	c, ok := executor.Of(sb)
	if !ok {
		t.Fatal("the machine has no executor")
	}
	return sb, c
}

func run(t *testing.T, sb sandbox.Sandbox, script string) string {
	t.Helper()
	var out strings.Builder
	x, err := sb.Exec(t.Context(), sandbox.Command{Args: []string{"bash", "-c", script}, Stdout: &out})
	if err != nil || x.Code != 0 {
		t.Fatalf("%s: %d, %v: %s", script, x.Code, err, out.String())
	}
	return out.String()
}

// Folders are made new whatever is in their place.
func TestClear(t *testing.T) {
	drivers(t, func(t *testing.T, d here) {
		sb, c := machine(t, d)
		run(t, sb, "mkdir -p /kept && touch /kept/file")
		for before, want := range map[string]string{
			"true":                                   "",
			"mkdir -p /c/d; touch /c/d/x":            "",
			"mkdir /c; ln -s /kept /c/d":             "it was a link",
			"ln -s /kept /c; mkdir /kept/d":          "its parent was a link",
			"mkdir /c; touch /c/d":                   "it was a file",
			"mkdir /c; mkfifo /c/d":                  "it was a pipe",
			"touch /c":                               "its parent was a file",
			"mkdir -p /c/d/e; chmod 000 /c/d /c/d/e": "",
			"mkdir -p /c/d; ln -s /kept /c/d/l; touch $'/c/d/\\xff' $'/c/d/\n' '/c/d/-rf'":                                         "",
			"python3 -c \"import os; os.makedirs('/c/d'); os.chdir('/c/d'); [(os.mkdir('d'), os.chdir('d')) for i in range(50)]\"": "",
		} {
			run(t, sb, "rm -rf /c; "+before)
			remarks, err := c.Clear(t.Context(), "", "/c/d")
			if err != nil || len(remarks) != 1 || remarks[0] != want {
				t.Errorf("%s: %q, %v; want %q", before, remarks, err, want)
			}
			if got := run(t, sb, "stat -c '%F %a %u' /c/d; ls -A /c/d; [ -f /kept/file ] "+
				"&& echo kept"); got != "directory 755 0\nkept\n" {
				t.Errorf("%s: now %q", before, got)
			}
			run(t, sb, "rm -rf /kept/d")
		}
		if _, err := c.Clear(t.Context(), "", "/"); err == nil {
			t.Error("the root was cleared")
		}
		var unknown *sandbox.Error
		if _, err := c.Clear(t.Context(), "nemo", "/c/d"); !errors.As(err, &unknown) {
			t.Errorf("a folder of nobody known: %v", err)
		}
	})
}

// What became of files is told, old times or not.
func TestMarks(t *testing.T) {
	drivers(t, func(t *testing.T, d here) {
		sb, c := machine(t, d)
		run(t, sb, "mkdir -p /m/d/e /usr/local/bin; cd /m; echo 1 > a; echo 1 > b; echo 1 > d/c; echo 1 > d/e/f; "+
			"echo x > g; touch -d 2001-01-01 a")
		began := time.Now()
		if _, _, err := c.Changes(t.Context()); err == nil {
			t.Error("what was never marked is compared")
		}
		if err := c.Snapshot(t.Context(), []executor.Watch{{Path: "/m", Depth: -1}, {Path: "/nowhere"}}); err != nil {
			t.Fatal(err)
		}
		t.Logf("marking took %v", time.Since(began))
		began = time.Now()
		if list, cut, err := c.Changes(t.Context()); err != nil || cut || len(list) > 0 {
			t.Fatal(list, cut, err)
		}
		t.Logf("comparing took %v", time.Since(began))
		run(t, sb, "sleep 0.05; cd /m; echo 2 > b2; mv b2 b; touch -r a /tmp/r 2>/dev/null || touch -d 2001-01-01 "+
			"/m/zz; echo 2 > a; touch -d 2001-01-01 a; rm d/c; touch d/e/new; mkdir newdir; touch newdir/x; "+
			"chmod 600 g")
		list, _, err := c.Changes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]byte{}
		for _, x := range list {
			got[x.Path] = x.What
		}
		for name, want := range map[string]byte{"/m/a": executor.Altered, "/m/b": executor.Altered,
			"/m/d/c": executor.Gone, "/m/d/e/new": executor.Added,
			"/m/newdir": executor.Added, "/m/newdir/x": executor.Added, "/m/g": executor.Altered} {
			if got[name] != want {
				t.Errorf("%s: %q, want %q", name, got[name], want)
			}
		}
		if got["/m/d/e/f"] != 0 || got["/m"] != 0 {
			t.Errorf("changed without a change: %v", got)
		}
	})
}
