package executor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/docker"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/local"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

const (
	changedImage = "evalrun-test/bookworm:1" // has python3 and perl
	longEnough   = 5 * time.Minute
)

// A place is a sandbox of one driver.
type place struct {
	sandbox.Sandbox
	*executor.Client
	driver string
}

func newPlace(t testing.TB, driver string, spec sandbox.Spec) *place {
	t.Helper()
	var d sandbox.Driver
	gate := "EVALRUN_TEST_LOCAL"
	if driver == "docker" {
		gate = "EVALRUN_TEST_DOCKER"
		spec.Image.Ref = changedImage
		of := docker.New(docker.Options{State: t.TempDir()})
		t.Cleanup(func() { of.Close() })
		d = of
	} else {
		of := local.New()
		t.Cleanup(func() { of.Close() })
		d = of
	}
	if os.Getenv(gate) == "" {
		t.Skip("set " + gate)
	}
	spec.Owner = sandbox.Self()
	sb, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	})
	c, ok := executor.Of(sb)
	if !ok {
		t.Fatal("no executor")
	}
	return &place{sb, c, driver}
}

// everywhere runs a test on each driver.
func everywhere(t *testing.T, spec sandbox.Spec, f func(t *testing.T, p *place)) {
	for _, d := range []string{"local", "docker"} {
		t.Run(d, func(t *testing.T) { f(t, newPlace(t, d, spec)) })
	}
}

func (p *place) run(t testing.TB, user, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longEnough)
	defer cancel()
	var out bytes.Buffer
	x, err := p.Sandbox.Exec(ctx, sandbox.Command{Args: []string{"/bin/sh", "-ec", script}, User: user, Stdout: &out})
	if err != nil || x.Code != 0 {
		t.Fatalf("%s: %+v, %v\n%s", script, x, err, &out)
	}
	return out.String()
}

func (p *place) python(t testing.TB, script string) {
	t.Helper()
	p.run(t, "", "cat >/tmp/run.py <<'E'\n"+script+"\nE\npython3 /tmp/run.py; rm /tmp/run.py")
}

func (p *place) baseline(t testing.TB) {
	t.Helper()
	if err := p.Baseline(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// changed returns what changed where: "+/path" is new, "-" gone, "*" altered, "~" only in its mode
// or owner, "m" a mount, "s" a setting.
func (p *place) changed(t testing.TB) (list []string, all map[string]executor.FileChange) {
	t.Helper()
	all = map[string]executor.FileChange{}
	gap, err := p.Changed(t.Context(), func(c executor.FileChange) error {
		sign := map[byte]string{executor.Added: "+", executor.Gone: "-", executor.Altered: "*",
			executor.Mounted: "m", executor.Setting: "s"}[c.What]
		if c.Meta {
			sign = "~"
		}
		list = append(list, sign+c.Path)
		all[c.Path] = c
		return nil
	})
	if gap != "" || err != nil {
		t.Fatalf("gap %q, %v", gap, err)
	}
	return list, all
}

// All that changes anywhere in the sandbox is found, and nothing else.
func TestChanged(t *testing.T) {
	everywhere(t, sandbox.Spec{}, func(t *testing.T, p *place) {
		p.run(t, "", "mkdir /w")
		for _, tt := range []struct {
			name       string
			before, do string
			want       []string
		}{
			{"nothing", "", "ls -lR /etc /w >/dev/null; cat /etc/passwd >/dev/null", nil},
			{"new files", "mkdir d", "echo a >d/a; mkdir -p e/f; echo b >e/f/b; ln -s d/a l; mkfifo p",
				[]string{"+/w/d/a", "+/w/e", "+/w/e/f", "+/w/e/f/b", "+/w/l", "+/w/p"}},
			{"removed", "mkdir -p d/e/f; touch d/e/f/g a", "rm -r d a", []string{"-/w/a", "-/w/d"}},
			{"content", "echo one >a; touch b", "echo more >>a", []string{"*/w/a"}},
			{"content, its time set back", "echo one >a; echo x >ref; touch -r a ref",
				"echo two >a; touch -r ref a", []string{"*/w/a"}},
			{"written through a mapping",
				"head -c 9000 /dev/zero >a; head -c 9000 /dev/zero >/dev/shm/m; touch a /dev/shm/m",
				`python3 -c '
import mmap, os
for f in "a", "/dev/shm/m":
    with mmap.mmap(os.open(f, os.O_RDWR), 0) as m: m[5000] = 1'`, []string{"*/dev/shm/m", "*/w/a"}},
			{"replaced by a copy", "echo one >a", "cp -p a b; mv b a", []string{"*/w/a"}},
			{"mode", "touch a; mkdir d", "chmod 600 a; chmod 700 d", []string{"~/w/a", "~/w/d"}},
			{"mode and content", "echo one >a; touch -d @1 a", "echo twos >a; chmod 600 a", []string{"*/w/a"}},
			{"file becomes directory", "touch a", "rm a; mkdir a; touch a/b", []string{"*/w/a", "+/w/a/b"}},
			{"directory becomes file", "mkdir a; touch a/b", "rm -r a; touch a", []string{"*/w/a"}},
			{"link led elsewhere", "ln -s x a", "ln -sf y a", []string{"*/w/a"}},
			{"directory renamed", "mkdir -p a/s; touch a/s/f", "mv a b",
				[]string{"-/w/a", "+/w/b", "+/w/b/s", "+/w/b/s/f"}},
			{"directories swapped", "mkdir a b; echo 1 >a/f; echo 2 >b/f; touch a/only", "mv a x; mv b a; mv x b",
				[]string{"*/w/a/f", "-/w/a/only", "*/w/b/f", "+/w/b/only"}},
			{"directory replaced by a copy", "mkdir -p a/s; touch a/s/f", "cp -a a b; rm -r a; mv b a",
				[]string{"*/w/a/s/f"}},
			{"entries moved to a new directory", "mkdir a; touch a/f", "mkdir b; mv a/f b; rmdir a; mv b a",
				[]string{"*/w/a/f"}},
			{"new hard link", "touch a b", "ln a c", []string{"*/w/a", "+/w/c"}},
			{"entries of a directory are no change of it", "mkdir d; touch d/a",
				"rm d/a; touch d; mkdir d/b; rmdir d/b",
				[]string{"-/w/d/a"}},
			{"names of bytes", "", `touch "$(printf 'n\nl')" "$(printf '\377\001')" ' ' -- -rf`,
				[]string{"+/w/ ", "+/w/-rf", "+/w/n\nl", "+/w/\xff\x01"}},
			{"order of names", "touch a a- a.b ab b; mkdir a.d; touch a.d/x", "rm a-; touch a+ a.c a.d/w",
				[]string{"+/w/a+", "-/w/a-", "+/w/a.c", "+/w/a.d/w"}},
			{"pipe in use", "mkfifo p", "echo x >p & cat p >/dev/null; wait", nil},
			{"devices in use", "", "echo x >/dev/null; head -c1 /dev/zero >/dev/null", nil},
			{"outside", "", "touch /dev/shm/a /tmp/b /root/c; echo '1.2.3.4 x' >>/etc/hosts",
				[]string{"+/dev/shm/a", "*/etc/hosts", "+/root/c", "+/tmp/b"}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				p.run(t, "", "rm -rf /w/* /w/.[a-z]*; cd /w; "+tt.before)
				p.baseline(t)
				p.run(t, "", "cd /w; "+tt.do)
				got, _ := p.changed(t)
				slices.Sort(got)
				want := slices.Sorted(slices.Values(tt.want))
				if !slices.Equal(got, want) {
					t.Errorf("changed: %q\nwant:    %q", got, want)
				}
			})
		}
	})
}

// Each change tells what the file is now.
// What commands inherit from process 1, and what outlives processes, is compared, too.
func TestChangedSettings(t *testing.T) {
	everywhere(t, sandbox.Spec{}, func(t *testing.T, p *place) {
		for _, c := range []struct{ name, do, undo, want string }{
			{"nothing", "ulimit -n 100; nice -n 5 true; taskset 1 true; dd if=/dev/zero of=/dev/shm/x bs=1M count=1 2>/dev/null",
				"rm /dev/shm/x", ""},
			{"processors", "taskset -ap 1 1 >/dev/null", "", "/proc/1/status"},
			{"a processor of one thread", "taskset -p 2 1 >/dev/null", "", "/proc/1/status"},
			{"priority", "renice -n 7 -p 1 >/dev/null", "", "/proc/1/stat"},
			{"the kernel's victim", "echo 900 >/proc/1/oom_score_adj", "", "/proc/1/oom_score_adj"},
			{"shared memory", "ipcmk -M 1000 >/dev/null", "ipcrm -a", "/proc/sysvipc/shm"},
			{"a semaphore", "ipcmk -S 1 >/dev/null", "ipcrm -a", "/proc/sysvipc/sem"},
			{"a queue", "ipcmk -Q >/dev/null", "ipcrm -a", "/proc/sysvipc/msg"},
			{"a full file system", "dd if=/dev/zero of=/dev/shm/x bs=64k 2>/dev/null || :", "rm /dev/shm/x", "/dev/shm"},
		} {
			p.baseline(t)
			if p.driver == "local" && c.want == "/dev/shm" {
				c.want = "/" // it has no mount of its own
			}
			// Root of a local sandbox may not touch process 1.
			if out := p.run(t, "", "{ "+c.do+"; } 2>/dev/null || echo refused"); out != "" {
				if c.want = ""; p.driver != "local" {
					t.Errorf("%s: %s", c.name, out)
				}
			}
			list, _ := p.changed(t)
			list = slices.DeleteFunc(list, func(s string) bool { return s[0] != 's' })
			if got := strings.TrimPrefix(strings.Join(list, " "), "s"); got != c.want {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
			p.run(t, "", c.undo+"\n:")
		}
	})
}

func TestChangedDetails(t *testing.T) {
	everywhere(t, sandbox.Spec{}, func(t *testing.T, p *place) {
		p.baseline(t)
		p.run(t, "", "mkdir /w; cd /w; echo hello >a; ln a b; chmod 4751 a; ln -s /etc/../x y; chown 1:2 y "+
			"-h; mknod p p")
		_, all := p.changed(t)
		for path, want := range map[string]executor.FileChange{
			"/w":   {Mode: 0o40755, Links: 2},
			"/w/a": {Mode: 0o104751, Links: 2, Size: 6},
			"/w/b": {Mode: 0o104751, Links: 2, Size: 6},
			"/w/y": {Mode: 0o120777, Links: 1, Size: 9, Target: "/etc/../x", UID: 1, GID: 2},
			"/w/p": {Mode: 0o10644, Links: 1},
		} {
			got := all[path]
			if want.Path, want.What = path, executor.Added; path == "/w" {
				got.Size, got.Links = 0, 2 // differ between file systems
			}
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
	})
}

// A folder in the place of a file, or a file in that of a folder, is said to be so.
func TestChangedTurned(t *testing.T) {
	everywhere(t, sandbox.Spec{}, func(t *testing.T, p *place) {
		p.run(t, "", "mkdir -p /w/dir /w/dir2link /w/meta; cd /w; touch file file2link file2pipe; ln -s file link; ln -s file link2dir")
		p.baseline(t)
		p.run(t, "", "cd /w; rm -r *; mkdir file link2dir meta; chmod 700 meta; touch dir link; ln -s / dir2link; "+
			"ln -s / file2link; mkfifo file2pipe")
		_, all := p.changed(t)
		for path, want := range map[string]bool{"/w/file": true, "/w/dir": true, "/w/dir2link": false, "/w/meta": false,
			"/w/file2link": false, "/w/file2pipe": false, "/w/link": false, "/w/link2dir": false} {
			if got := all[path]; got.What != executor.Altered || got.Turned != want {
				t.Errorf("%s: %+v", path, got)
			}
		}
	})
}

// Directories in directories need neither a descriptor each nor a path that fits a system call.
func TestChangedDeep(t *testing.T) {
	const levels = 3000
	dig := `import os
os.chdir("/dev/shm")
for i in range(%d):
    try: os.mkdir("d")
    except FileExistsError: pass
    os.chdir("d")
open("f", "w").write(%q)
`
	everywhere(t, sandbox.Spec{}, func(t *testing.T, p *place) {
		p.python(t, fmt.Sprintf(dig, levels, "a"))
		p.baseline(t)
		p.python(t, fmt.Sprintf(dig, levels, "bc"))
		got, _ := p.changed(t)
		if want := "*/dev/shm" + strings.Repeat("/d", levels) + "/f"; len(got) != 1 || got[0] != want {
			t.Errorf("%d changes", len(got))
		}
		// Deeper than any path that is reported: that is not passed over in silence.
		p.python(t, fmt.Sprintf(dig, 9000, "c"))
		n := 0
		gap, err := p.Changed(t.Context(), func(executor.FileChange) error { n++; return nil })
		if err != nil || !strings.Contains(gap, "path that is too long") || n < levels {
			t.Errorf("%d changes, gap %q, %v", n, gap, err)
		}
	})
}

// Files that change during a walk neither stop nor break it.
func TestChangedWhileChanging(t *testing.T) {
	everywhere(t, sandbox.Spec{}, func(t *testing.T, p *place) {
		p.run(t, "", `mkdir /w; cat >/w/churn.py <<'E'
import os, shutil, threading
def churn(n):
    at = '/w/%d' % n
    while not os.path.exists('/w/stop'):
        os.makedirs(at + '/a/b/c')
        open(at + '/a/b/c/f', 'w')
        os.rename(at + '/a', at + '/x')
        os.symlink('/', at + '/a')
        os.mkfifo(at + '/p')
        open('/w/begun', 'w')
        shutil.rmtree(at)
threads = [threading.Thread(target=churn, args=(i,)) for i in range(4)]
for t in threads: t.start()
for t in threads: t.join()
E`)
		done := make(chan sandbox.Exit, 1)
		var out bytes.Buffer
		go func() {
			x, _ := p.Sandbox.Exec(t.Context(), sandbox.Command{Args: []string{"python3", "/w/churn.py"}, Stdout: &out})
			done <- x
		}()
		p.run(t, "", "while ! [ -e /w/begun ]; do sleep 0.01; done")
		p.baseline(t)
		for range 10 {
			if _, err := p.Changed(t.Context(), func(executor.FileChange) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		p.run(t, "", "touch /w/stop")
		if x := <-done; x.Code != 0 || out.Len() > 0 {
			t.Errorf("%+v\n%s", x, &out)
		}
	})
}

// What a directory's mode forbids is found, since process 1 is root inside.
func TestChangedForbidden(t *testing.T) {
	everywhere(t, sandbox.Spec{}, func(t *testing.T, p *place) {
		p.run(t, "", "mkdir -p /w/d/e; chmod 0 /w/d/e /w/d")
		p.baseline(t)
		p.run(t, "", "touch /w/d/e/f; chmod 0 /w/d/e/f")
		if got, _ := p.changed(t); !slices.Equal(got, []string{"+/w/d/e/f"}) {
			t.Errorf("%q", got)
		}
		if missed, err := p.Mark(t.Context(), []string{"/w/d/e/f"}); err != nil || len(missed) > 0 {
			t.Error(missed, err)
		}
		p.run(t, "", "cat /w/d/e/f")
		if used, gap, err := p.Used(t.Context()); err != nil || gap != "" || len(used) != 1 {
			t.Errorf("%q, gap %q, %v", used, gap, err)
		}
	})
}

// More names than a walk keeps in memory are not passed over in silence, and what was there before
// is not said to be gone.
func TestChangedTooManyNames(t *testing.T) {
	everywhere(t, sandbox.Spec{}, func(t *testing.T, p *place) {
		p.run(t, "", "mkdir /w; touch /w/a /w/zzz")
		p.baseline(t)
		p.python(t, `import os
for i in range(75_000):
    if i % 10_000 == 0:
        f = '/tmp/f%d' % i
        open(f, 'w')
    os.link(f, '/w/%06d' % i + 240 * 'n')
`)
		gone := 0
		gap, err := p.Changed(t.Context(), func(c executor.FileChange) error {
			if c.What == executor.Gone {
				gone++
			}
			return nil
		})
		if err != nil || !strings.Contains(gap, "too many names") || gone > 0 {
			t.Errorf("%d gone, gap %q, %v", gone, gap, err)
		}
	})
}

// Without isolation only the sandbox's own directory can be compared, which is said.
func TestChangedUnisolated(t *testing.T) {
	d := local.NewUnisolated()
	defer d.Close()
	sb, err := d.Create(t.Context(), sandbox.Spec{Owner: sandbox.Self()})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	c, _ := executor.Of(sb)
	p := &place{sb, c, d.Name()}
	p.run(t, "", "cd $TMPDIR; touch a b")
	p.baseline(t)
	p.run(t, "", "cd $TMPDIR; rm a; touch c")
	var got []string
	gap, err := p.Changed(t.Context(), func(c executor.FileChange) error {
		got = append(got, string(c.What)+c.Path)
		return nil
	})
	if err != nil || !strings.Contains(gap, "without isolation") || !slices.Equal(got, []string{"g/tmp/a", "a/tmp/c"}) {
		t.Errorf("%q, gap %q, %v", got, gap, err)
	}
	if missed, err := p.Mark(t.Context(), []string{"/tmp/b", "/tmp/c"}); err != nil || len(missed) > 0 {
		t.Error(missed, err)
	}
	p.run(t, "", "cat $TMPDIR/b")
	if used, gap, err := p.Used(t.Context()); err != nil || gap != "" || !slices.Equal(used, []string{"/tmp/b"}) {
		t.Errorf("%q, gap %q, %v", used, gap, err)
	}
}

func TestChangedWithoutBaseline(t *testing.T) {
	everywhere(t, sandbox.Spec{}, func(t *testing.T, p *place) {
		if _, err := p.Changed(t.Context(), nil); err == nil {
			t.Error("no error")
		}
		if _, _, err := p.Used(t.Context()); err == nil {
			t.Error("no error")
		}
		p.baseline(t)
		p.run(t, "", "touch /tmp/a /tmp/b")
		own := errors.New("of the caller")
		n := 0
		if _, err := p.Changed(t.Context(), func(executor.FileChange) error { n++; return own }); err != own || n != 1 {
			t.Errorf("%d changes, %v", n, err)
		}
		if got, _ := p.changed(t); len(got) != 2 {
			t.Errorf("after a walk that was stopped: %q", got)
		}
	})
}

// What counts as a use.
func TestUsed(t *testing.T) {
	everywhere(t, sandbox.Spec{}, func(t *testing.T, p *place) {
		p.run(t, "", "mkdir /w; chmod 755 /w")
		for _, tt := range []struct {
			name       string
			before, do string
			user       string
			mark, want []string
		}{
			{"nothing", "touch a", "true", "", []string{"a"}, nil},
			{"read", "echo x >a; touch b", "cat a", "", []string{"a", "b"}, []string{"a"}},
			{"executed", "cp /bin/true a", "./a", "", []string{"a"}, []string{"a"}},
			{"executed by a link", "cp /bin/true a; ln -s a l", "./l", "", []string{"a", "l"}, []string{"a", "l"}},
			{"script", "printf '#!/bin/sh\\ntrue\\n' >a; chmod +x a", "./a", "", []string{"a"}, []string{"a"}},
			{"interpreter of a script", "cp /bin/sh i; printf '#!/w/i\\ntrue\\n' >a; chmod +x a", "./a", "",
				[]string{"i"}, []string{"i"}},
			{"preloaded", "cp $(ldd /bin/ls | grep -o '/[^ ]*libc.so.6') a.so", "LD_PRELOAD=/w/a.so /bin/ls", "",
				[]string{"a.so"}, []string{"a.so"}},
			{"found by the loader", "cp $(ldd /bin/ls | grep -o '/[^ ]*libc.so.6') libc.so.6",
				"LD_LIBRARY_PATH=/w /bin/ls",
				"", []string{"libc.so.6"}, []string{"libc.so.6"}},
			{"imported", "echo >mod.py", "PYTHONPATH=/w python3 -Bc 'import mod'", "", []string{"mod.py"},
				[]string{"mod.py"}},
			{"mapped", "echo x >a", "python3 -c 'import mmap,os; " +
				"mmap.mmap(os.open(\"a\",os.O_RDONLY),0,prot=mmap.PROT_READ)'",
				"", []string{"a"}, []string{"a"}},
			{"link", "echo x >a; ln -s a l", "cat l", "", []string{"l"}, []string{"l"}},
			{"link whose target is used by its name", "echo x >a; ln -s a l", "cat a", "", []string{"l"},
				[]string{"l"}},
			{"two links", "echo x >a; ln -s a l; ln -s l m", "cat m", "", []string{"l", "m"}, []string{"l", "m"}},
			{"link to a link that is not marked", "echo x >a; ln -s a l; ln -s l m", "cat m", "", []string{"m"},
				[]string{"m"}},
			{"absolute link", "echo x >a; ln -s /w/a l", "cat l", "", []string{"l"}, []string{"l"}},
			{"link to a directory", "mkdir -p d/e; echo x >d/e/a; ln -s d l; ln -s d m", "cat l/e/a", "",
				[]string{"l", "m"}, []string{"l", "m"}},
			{"link to a directory nobody enters", "mkdir -p d/e; echo x >d/e/a; ln -s d l", "ls -l /w", "",
				[]string{"l"}, nil},
			{"link to nothing", "ln -s none l", "cat l || true", "", []string{"l"}, nil},
			{"written through a link to nothing", "ln -s none l", "echo x >l", "", []string{"l"}, []string{"l"}},
			{"working directory of a process", "echo x >a", "cat /proc/self/cwd/a", "", []string{"a"}, []string{"a"}},
			{"another user", "echo x >a; chmod 644 a", "cat /w/a", "1000:1000", []string{"a"}, []string{"a"}},
			{"another user may not", "echo x >a; chmod 600 a", "cat /w/a || true", "1000:1000", []string{"a"}, nil},
			{"another name", "echo x >a; ln a /tmp/h", "cat /tmp/h; rm /tmp/h", "", []string{"a"}, []string{"a"}},
			{"two names", "echo x >a; ln a b; touch c", "cat a", "", []string{"a", "b", "c"}, []string{"a", "b"}},
			{"marked twice", "echo x >a", "cat a a a", "", []string{"a", "a"}, []string{"a", "a"}},
			{"looked at", "echo x >a; ln -s a l; ln -s a m", "stat a; test ! -x a; [ -s a ]; readlink l; ls -l", "",
				[]string{"a", "l", "m"}, nil},
			{"its attributes", "echo x >a; touch b", "chmod 700 a; touch -d @1 b; chown 1 b", "", []string{"a"}, nil},
			{"removed", "echo x >a", "rm a", "", []string{"a"}, nil},
			{"renamed", "echo x >a", "mv a b", "", []string{"a"}, nil},
			{"renamed and read", "echo x >a", "mv a b; cat b", "", []string{"a"}, []string{"a"}},
			{"another renamed over it", "echo x >a; echo y >b", "mv b a; cat a", "", []string{"a"}, nil},
			{"truncated", "echo x >a", ": >a", "", []string{"a"}, []string{"a"}},
			{"appended to", "echo x >a", "echo y >>a", "", []string{"a"}, []string{"a"}},
			{"truncated by its name", "echo x >a", "python3 -c 'import os; os.truncate(\"a\", 0)'", "", []string{"a"},
				nil},
			{"copied by the kernel", "echo x >a",
				"python3 -c 'import os; os.sendfile(os.open(\"o\", os.O_CREAT|os.O_WRONLY), os.open(\"a\", 0), 0, 2)'",
				"",
				[]string{"a"}, []string{"a"}},
			{"through a path descriptor", "cp /bin/true a",
				"python3 -c 'import os; os.execve(os.open(\"a\",os.O_PATH),[\"a\"],{})'", "", []string{"a"},
				[]string{"a"}},
			{"directory", "mkdir d; touch d/a", "ls d; cat d/a", "", []string{"d"}, nil},
			{"fifo", "mkfifo p", "echo x >p & cat p; wait", "", []string{"p"}, []string{"p"}},
			{"socket", "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'",
				"python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect_ex(\"s\")'", "", []string{"s"}, nil},
			{"names of bytes", `echo x >"$(printf 'a\nb\377')"`, `cat a*`, "", []string{"a\nb\xff"},
				[]string{"a\nb\xff"}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				if tt.user != "" && p.driver == "local" && os.Geteuid() != 0 {
					t.Skip("one user only")
				}
				p.run(t, "", "rm -rf /w/*; cd /w; "+tt.before)
				abs := func(names []string) (list []string) {
					for _, n := range names {
						list = append(list, "/w/"+n)
					}
					return list
				}
				if missed, err := p.Mark(t.Context(), abs(tt.mark)); err != nil || len(missed) > 0 {
					t.Fatalf("missed %q, %v", missed, err)
				}
				p.run(t, tt.user, "exec >/dev/null 2>&1; cd /w; "+tt.do)
				got, gap, err := p.Used(t.Context())
				if err != nil || gap != "" {
					t.Fatalf("gap %q, %v", gap, err)
				}
				slices.Sort(got)
				if want := abs(tt.want); !slices.Equal(got, want) {
					t.Errorf("used %q, want %q", got, want)
				}
			})
		}
	})
}

// What is read through a descriptor that was open before the mark.
func TestUsedOpenBefore(t *testing.T) {
	everywhere(t, sandbox.Spec{}, func(t *testing.T, p *place) {
		p.run(t, "", "mkdir /w; echo x >/w/a; echo x >/w/b; mkfifo /w/go")
		done := make(chan error, 1)
		go func() {
			_, err := p.Sandbox.Exec(t.Context(), sandbox.Command{Args: []string{"/bin/sh", "-c",
				"exec 5</w/a 6</w/b; echo >/w/go; cat /w/go; cat <&5"}})
			done <- err
		}()
		p.run(t, "", "cat /w/go")
		if missed, err := p.Mark(t.Context(), []string{"/w/a", "/w/b"}); err != nil || len(missed) > 0 {
			t.Fatal(missed, err)
		}
		p.run(t, "", "echo >/w/go")
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got, gap, err := p.Used(t.Context()); err != nil || gap != "" || !slices.Equal(got, []string{"/w/a"}) {
			t.Errorf("%q, gap %q, %v", got, gap, err)
		}
	})
}

// Files that cannot be watched are named; of a link of /proc it is not known where it leads to.
func TestMarkMissed(t *testing.T) {
	everywhere(t, sandbox.Spec{}, func(t *testing.T, p *place) {
		p.run(t, "", "mkdir -p /w/d; cd /w; touch a; ln -s /proc/self/exe exe; ln -s loop loop; ln -s / root")
		missed, err := p.Mark(t.Context(),
			[]string{"/w/a", "/w/none", "/w/exe", "/w/loop", "/w/root", "/w/d", "/w/a/b"})
		if want := []string{"/w/none", "/w/exe", "/w/loop", "/w/root", "/w/a/b"}; err != nil ||
			!slices.Equal(missed, want) {
			t.Errorf("missed %q, %v", missed, err)
		}
		p.run(t, "", "cat /w/a")
		// Many links to large directories take no more time than one.
		p.python(t, `import os
os.mkdir('/w/d/many')
for i in range(2000): open('/w/d/many/%d' % i, 'w')
for i in range(300): os.symlink('d/many', '/w/l%d' % i)`)
		var links []string
		for i := range 300 {
			links = append(links, fmt.Sprintf("/w/l%d", i))
		}
		missed, err = p.Mark(t.Context(), links)
		if err != nil || len(missed) == 0 || len(missed) > 220 {
			t.Errorf("%d links missed, %v", len(missed), err)
		}
		// More files at any time.
		p.run(t, "", "touch /w/b /w/c")
		if missed, err := p.Mark(t.Context(), []string{"/w/b", "/w/c"}); err != nil || len(missed) > 0 {
			t.Error(missed, err)
		}
		p.run(t, "", "cat /w/c")
		used, gap, err := p.Used(t.Context())
		if slices.Sort(used); err != nil || gap != "" || !slices.Equal(used, []string{"/w/a", "/w/c"}) {
			t.Errorf("%q, gap %q, %v", used, gap, err)
		}
		if missed, err := p.Mark(t.Context(), nil); err != nil || len(missed) > 0 {
			t.Error(missed, err)
		}
		if used, gap, err := p.Used(t.Context()); err != nil || gap != "" || len(used) > 0 {
			t.Errorf("%q, gap %q, %v", used, gap, err)
		}
	})
}

// Many files at once: each that was used is reported, or that something is not known.
func TestUsedMany(t *testing.T) {
	const n = 30_000
	everywhere(t, sandbox.Spec{}, func(t *testing.T, p *place) {
		p.baseline(t)
		p.run(t, "", "mkdir /w")
		p.python(t, fmt.Sprintf("for i in range(%d): open('/w/%%d' %% i, 'w')", n))
		_, all := p.changed(t)
		if len(all) != n+1 {
			t.Fatalf("%d changes", len(all))
		}
		paths := slices.Sorted(maps.Keys(all))
		begun := time.Now()
		missed, err := p.Mark(t.Context(), paths)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("marked in %v, %d missed", time.Since(begun), len(missed))
		p.python(t, fmt.Sprintf("for i in range(0, %d, 2): open('/w/%%d' %% i)", n))
		used, gap, err := p.Used(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d used, gap %q", len(used), gap)
		known := len(missed) == 0 && gap == ""
		if known && len(used) != n/2 || len(used) > n/2 {
			t.Errorf("%d used, %d missed, gap %q", len(used), len(missed), gap)
		}
		for _, u := range used {
			if (u[len(u)-1]-'0')%2 != 0 {
				t.Fatalf("%s was not used", u)
			}
		}
	})
}

// BenchmarkWalk is the walk over as many files as a large image has, and the comparison with it.
func BenchmarkWalk(b *testing.B) {
	const dirs, files = 4000, 50
	for _, driver := range []string{"local", "docker"} {
		p := newPlace(b, driver, sandbox.Spec{})
		p.python(b, fmt.Sprintf(`import os
for i in range(%d):
    d = '/root/package-%%d/module' %% i
    os.makedirs(d)
    for j in range(%d): open(d + '/some-file-%%d.py' %% j, 'w')
`, dirs, files))
		rss := func() (kb int64) {
			fmt.Sscan(p.run(b, "", "awk '/VmRSS/{print $2}' /proc/1/status"), &kb)
			return kb
		}
		before := rss()
		p.baseline(b)
		first := rss()
		b.Run(driver+"/baseline", func(b *testing.B) {
			for b.Loop() {
				p.baseline(b)
			}
			b.ReportMetric(float64(first-before), "KB-first")
			b.ReportMetric(float64(rss()-before), "KB-later")
		})
		b.Run(driver+"/changed", func(b *testing.B) {
			for b.Loop() {
				if gap, err := p.Changed(b.Context(), func(c executor.FileChange) error {
					return fmt.Errorf("%+v", c)
				}); gap != "" || err != nil {
					b.Fatal(gap, err)
				}
			}
			b.ReportMetric(float64(rss()-before), "KB-later")
		})
	}
}
