package verify

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestMain(m *testing.M) { benchtest.Main(m) }

func TestWorkPaths(t *testing.T) {
	for _, c := range []struct{ dir, text, want string }{
		{"/app", "", "/app"},
		{"/app/", "Write `/data/out.csv` and `/app/x`.", "/app /app/x /data/out.csv"},
		{"/", "Do it in /srv/site, then (see /opt/doc.txt) end with /x.", "/opt/doc.txt /srv/site /x"},
		{"/", "/first and\n/second! \"/third\": '/fourth'; /fifth?", "/fifth /first /fourth /second /third"},
		{"/", "Save it as **/data/a.txt**, /b,/c or --out=/d; [/e](/f) |/g|", "/b /c /d /data/a.txt /e /f /g"},
		{"/", "all of `/data/*.csv`, `/in/part-{1,2}.txt` and `/<name>/x`", "/data /in"},
		{"/", "see https://example.org/a/b, either/or, ~/x, $HOME/y, ./z, a/b and //", ""},
		{"/", "`no/path` `/with space` // /./ /.. /a/../b", "/b"},
		{"/root", "Work.", ""}, {"/home/user", "Work.", ""}, {"/home/user/project", "Work.", "/home/user/project"},
		{"/", "`GET /health` says ok, POST /a, DELETE `/b` and **PUT** /c; TARGET /d, get /e", "/d /e"},
		{"/tmp", "Work.", ""}, {"/tmp/x", "Work.", "/tmp/x"}, {"/usr/src/app", "Work.", ""}, {"/tests", "", ""},
		{"/", "Make /bin/tool, /lib/x.so and /var/run/x.pid.",
			"/bin/tool /lib/x.so /run/x.pid /usr/bin/tool /usr/lib/x.so /var/run/x.pid"},
	} {
		if got := joined(WorkPaths(nil, c.dir, c.text)); got != c.want {
			t.Errorf("%s, %q: %s, want %s", c.dir, c.text, got, c.want)
		}
	}
	if got := joined(WorkPaths(nil, "/app", "", "out", "/x/y", "../z")); got != "/app /app/out /x/y /z" {
		t.Errorf("artifacts: %s", got)
	}
}

// joined returns the paths of work in one line.
func joined(list []record.WorkPath) string {
	var names []string
	for _, w := range list {
		names = append(names, w.Path)
	}
	return strings.Join(names, " ")
}

// workAt is work of which nobody asks where it is from.
func workAt(paths ...string) (out []record.WorkPath) {
	for _, p := range paths {
		out = append(out, record.WorkPath{Path: p})
	}
	return out
}

// Each path says where it is from, and the first origin counts.
func TestWorkOrigins(t *testing.T) {
	for _, c := range []struct {
		named []string
		dir   string
		want  []record.WorkPath
	}{
		{nil, "/app", []record.WorkPath{{Path: "/app", From: "working directory"}, {Path: "/app/a", From: "instruction"},
			{Path: "/app/b", From: "artifacts"}}},
		{nil, "", []record.WorkPath{{From: fromImage}, {Path: "/app/a", From: "instruction"},
			{Path: "b", From: "artifacts"}}},
		{nil, "/root", []record.WorkPath{{Path: "/app/a", From: "instruction"}, {Path: "/root/b", From: "artifacts"}}},
		{[]string{"src"}, "/app", []record.WorkPath{{Path: "/app/src", From: "option work"}}},
		{[]string{"/usr/bin"}, "/app", []record.WorkPath{{Path: "/usr/bin",
			From: "option work, if it is a file"}}},
	} {
		artifacts := []string{"/app/a", "b"}
		if d := gocmp.Diff(c.want, WorkPaths(c.named, c.dir, "Write `/app/a`.", artifacts...)); d != "" {
			t.Errorf("%v, %q:\n%s", c.named, c.dir, d)
		}
	}
}

func TestIsWork(t *testing.T) {
	paths := []string{"/app", "/etc", "/etc/hosts", "/root", "/root/a.txt", "/data/x", "/usr/local/bin/tool",
		"/home/me", "/logs", "/logs/artifacts", "/logs/verifier"}
	for _, c := range []struct {
		name   string
		folder bool
		want   bool
	}{
		{"/app", true, true}, {"/app/x/y", false, true}, {"/apple", false, false}, {"/", true, false},
		{"/etc", true, false}, {"/etc/passwd", false, false}, {"/etc/hosts", false, true},
		{"/etc/hosts/x", false, false},
		{"/root", true, false}, {"/root/.bashrc", false, false}, {"/root/a.txt", false, true},
		{"/root/a.txt/x", false, true},
		{"/data", true, false}, {"/data/x", false, true}, {"/data/x", true, true}, {"/data/x/y", false, true},
		{"/usr/local/bin/tool", false, true}, {"/usr/local/bin/tool", true, false}, {"/usr/local/bin/sh", false, false},
		{"/home/me/.profile", false, false},
		{"/logs/x", false, false}, {"/logs/artifacts", true, true}, {"/logs/artifacts/x", false, true},
		{"/logs/verifier", true, false}, {"/logs/verifier/reward.txt", false, false},
	} {
		if got := isWork(paths, c.name, c.folder); got != c.want {
			t.Errorf("%s, a folder: %v: %v", c.name, c.folder, got)
		}
	}
}

// machines are those of a driver; each is closed with the test.
func machines(t *testing.T, f func(t *testing.T, create func() sandbox.Sandbox)) {
	for _, c := range []struct {
		name   string
		driver func(t *testing.T) sandbox.Driver
		spec   sandbox.Spec
	}{
		{"local", benchtest.Local, sandbox.Spec{}},
		{"docker", benchtest.Docker,
			sandbox.Spec{Image: sandbox.Image{Ref: benchtest.DockerImage}, Cmd: []string{"sleep", "100000"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := c.driver(t)
			f(t, func() sandbox.Sandbox {
				t.Helper()
				sb, err := d.Create(t.Context(), c.spec)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { sb.Close() })
				sh(t, sb, image)
				return sb
			})
		})
	}
}

// image is what the machines are like before the agent comes.
const image = `mkdir -p /job/old/deep /job/kept /elsewhere; cd /job; echo before > altered; echo before > removed
echo before > file2dir; echo before > file2link; mkdir dir2file dir2link; echo before > dir2file/x; echo before > dir2link/x
echo before > old/deep/x; echo before > kept/same; echo before > kept/mode; ln -s kept link2file; mkdir -p pkg/__pycache__
echo before > pkg/__pycache__/m.pyc; find . -exec touch -hd 2001-01-01 {} +`

func sh(t *testing.T, sb sandbox.Sandbox, script string) string {
	t.Helper()
	var out strings.Builder
	x, err := sb.Exec(t.Context(), sandbox.Command{Args: []string{"bash", "-ec", script}, User: root, Stdout: &out})
	if err != nil || x.Code != 0 {
		t.Fatalf("%s: %d, %v: %s", script, x.Code, err, out.String())
	}
	return out.String()
}

// A left is a machine that an agent left, with the work that was kept of it.
type left struct {
	sb      sandbox.Sandbox
	log     *agenttest.Log
	work    *Work
	files   map[string]event.Blob
	changes []record.FolderChanges
}

// leave lets an agent run a script.
func leave(t *testing.T, create func() sandbox.Sandbox, script string, paths ...string) left {
	t.Helper()
	l := left{sb: create(), log: &agenttest.Log{}}
	g := Watch(t.Context(), l.sb, Setup{Work: workAt(paths...), Mode: Confirm})
	err := g.Ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sh(t, l.sb, script)
	found, err := g.Collect(t.Context(), l.log)
	if err != nil {
		t.Fatal(err)
	}
	l.work, l.files, l.changes = found.Work, found.Files, found.Changes
	return l
}

// restore puts the work into a fresh machine.
func (l left) restore(t *testing.T, create func() sandbox.Sandbox, without func(string) bool) sandbox.Sandbox {
	t.Helper()
	sb := create()
	g := Watch(t.Context(), sb, Setup{Mode: Confirm, Replay: true})
	err := g.Ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if why, err := g.Restore(t.Context(), l.log, l.work, l.files, without); why != "" || err != nil {
		t.Fatalf("%q, %v", why, err)
	}
	return sb
}

// list is what is in /job, with times of files, and what the folders above and beside it are like.
const list = `cd /job; find . ! -name '*.pyc' -printf '%p %y %m %U:%G %l\n' | LC_ALL=C sort
find . -type f ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 stat -c '%n %Y %s'
find . -type f ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 cat | cksum; stat -c '%n %a %u:%g' / /tmp /root /job /usr`

// What the agent made of its work is in the fresh machine as it left it.
func TestRoundTrip(t *testing.T) {
	machines(t, func(t *testing.T, create func() sandbox.Sandbox) {
		for name, script := range map[string]string{
			"nothing":                   `:`,
			"files":                     `cd /job; echo new > new; echo after > altered; rm removed; touch -d 2001-02-03 new`,
			"an empty file":             `: > /job/empty; : > /job/altered`,
			"modes":                     `cd /job; echo x > run; chmod 755 run; chmod 600 kept/mode; mkdir -m 700 own; chmod 711 old`,
			"owners":                    `cd /job; mkdir -p theirs/x; echo x > theirs/x/y; ln -s y theirs/x/l; chown -hR 123:456 theirs; chown 7 altered`,
			"folders":                   `cd /job; mkdir -p a/b/c/d a/empty; echo x > a/b/c/d/e; rm -r old`,
			"a folder like its sibling": `cd /job; mkdir -p a a-b a.b; for d in a a-b a.b; do echo $d > $d/x; done`,
			"a moved folder":            `cd /job; mv old young`,
			"links":                     `cd /job; ln -s kept/same l; ln -s /job/kept k; ln -s nowhere n; ln -s /usr/bin/env e; ln -sfn old link2file`,
			"names":                     `cd /job; echo 1 > $'a\nb'; mkdir $'\xff\xfe'; echo 2 > $'\xff\xfe/\xfd'; echo 3 > ' x '; echo 4 > -rf; echo 5 > 'ä"\'; rm removed; echo 6 > $'\t$(id)'; chown 5:6 -- $'\xff\xfe/\xfd'`,
			"a removed odd name":        `cd /job; mv removed $'re\n\xff'; rm $'re\n\xff'`,
			"a file became a folder":    `cd /job; rm file2dir; mkdir file2dir; echo x > file2dir/x`,
			"a folder became a file":    `cd /job; rm -r dir2file; echo x > dir2file`,
			"a folder became a link":    `cd /job; rm -r dir2link; ln -s kept dir2link`,
			"a file became a link":      `cd /job; ln -sf altered file2link`,
			"a link became a file":      `cd /job; rm link2file; echo x > link2file`,
			"a link became a folder":    `cd /job; rm link2file; mkdir link2file; echo x > link2file/x`,
			"2,000 files":               `mkdir /job/many; cd /job/many; for i in $(seq 2000); do echo $i > file-$i; done`,
			"a hard link":               `cd /job; echo x > one; ln one two`,
			"elsewhere":                 `echo x > /elsewhere/x; echo x > /tmp/x; chmod 755 /tmp; chmod 777 /root; echo x > /root/x`,
		} {
			t.Run(name, func(t *testing.T) {
				l := leave(t, create, script, "/job")
				if l.work.Grown != "" {
					t.Fatal(l.work.Grown)
				}
				sb := l.restore(t, create, nil)
				want := sh(t, l.sb, list)
				if name == "elsewhere" {
					want = sh(t, create(), list)
				}
				if got := sh(t, sb, list); got != want {
					t.Error(gocmp.Diff(want, got))
				}
				if got := sh(t, sb, "ls -A /elsewhere; cat /job/pkg/__pycache__/m.pyc"); got != "before\n" {
					t.Errorf("what is no work: %q", got)
				}
			})
		}
	})
}

// What is left out, and links that lead to what the verifier brings, are not in the fresh machine.
func TestRestoreLeavesOut(t *testing.T) {
	machines(t, func(t *testing.T, create func() sandbox.Sandbox) {
		l := leave(t, create, `cd /job; mkdir -p slipped/x; echo x > slipped/x/y; echo x > slipped2; echo x > also
ln -s /tests/expected t; ln -s /proc/self/fd p; ln -s /logs/verifier v; ln -s ../../tests u; ln -s /root/x r; ln -s /job/also w
ln -s old/../../tests o; ln -s /usr/bin/env e; ln -sf /tests/x altered
echo evil > pkg/__pycache__/m.pyc; mkdir -p new/__pycache__; echo evil > new/__pycache__/m.pyc; echo evil > pkg/__pycache__/n.pyc`, "/job")
		if l.work.Grown != "" {
			t.Fatal(l.work.Grown)
		}
		sb := l.restore(t, create, func(name string) bool {
			return name == "/job/slipped" || strings.HasPrefix(name, "/job/slipped/")
		})
		if got := sh(t, sb, "cd /job; ls -d slipped* also t p v u r w o e "+
			"2>&1 || true"); got != "also\ne\nslipped2\nw\n" &&
			!slices.Equal(existing(got), []string{"also", "e", "slipped2", "w"}) {
			t.Errorf("restored: %q", got)
		}
		if got := sh(t, sb, "cd /job; [ ! -L altered ]; cat pkg/__pycache__/m.pyc; find . "+
			"-name '*.pyc'"); got != "before\n./pkg/__pycache__/m.pyc\n" {
			t.Errorf("compiled Python: %q", got)
		}
	})
}

// existing are the names that ls found.
func existing(out string) (names []string) {
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "ls: ") {
			names = append(names, line)
		}
	}
	slices.SortFunc(names, cmp.Compare[string])
	return names
}

// Single files are work where their folder is none.
func TestSingleFiles(t *testing.T) {
	machines(t, func(t *testing.T, create func() sandbox.Sandbox) {
		l := leave(t, create, `echo a > /root/answer; echo b > /root/other; mkdir -p /srv/site/x; echo c > /srv/site/x/y; echo d > /srv/d
chmod 777 /root /srv; chmod 700 /tmp`, "/root/answer", "/srv/site")
		fresh := create()
		modes := "stat -c '%n %a %u:%g' / /tmp /root /srv"
		want := sh(t, fresh, modes)
		sb := l.restore(t, create, nil)
		if got := sh(t, sb, modes); got != want {
			t.Errorf("folders became\n%s, were\n%s", got, want)
		}
		if got := sh(t, sb, "cat /root/answer /srv/site/x/y; [ ! -e /root/other ]; [ ! -e /srv/d ]"); got != "a\nc\n" {
			t.Errorf("%q", got)
		}
	})
}

// Changes are counted by folder, those of the work apart.
func TestFolderChanges(t *testing.T) {
	machines(t, func(t *testing.T, create func() sandbox.Sandbox) {
		l := leave(t, create, `cd /job; echo after > altered; rm removed; echo x > new; mkdir old/more; echo x > old/more/x
echo x > /elsewhere/named; echo x > /elsewhere/other`, "/job", "/elsewhere/named")
		want := []record.FolderChanges{{Folder: "/job", Work: true, Created: 1, Changed: 1, Removed: 1},
			{Folder: "/elsewhere", Work: true, Created: 1}, {Folder: "/elsewhere", Created: 1},
			{Folder: "/job/old", Work: true, Created: 1}, {Folder: "/job/old/more", Work: true, Created: 1}}
		if d := gocmp.Diff(want, l.changes); d != "" {
			t.Error(d)
		}
	})
}

// The record stays small and readable, whatever the agent's folders are called and however many
// there are; no change is lost from the sums.
func TestFolderCountBounds(t *testing.T) {
	var f folderCounts
	total := 0
	add := func(what byte, name string, n int) {
		for i := range n {
			f.add(executor.FileChange{What: what, Path: fmt.Sprintf("%s/%d", name, i)}, false)
		}
		total += n
	}
	for i := range maxCounted + 100 {
		add(executor.Added, fmt.Sprintf("/many/%d", i), 1)
	}
	if len(f.by) != maxCounted {
		t.Errorf("%d folders are counted", len(f.by))
	}
	if n := len(f.list()); n != record.MaxFolders+1 {
		t.Errorf("%d folders are listed", n)
	}
	sum, last := int64(0), f.list()[record.MaxFolders]
	for _, n := range f.list() {
		sum += n.Created + n.Changed + n.Removed
	}
	if sum != int64(total) || last.Folder != "" || last.Created != int64(total-record.MaxFolders) {
		t.Errorf("%d of %d changes, %+v at the end", sum, total, last)
	}
	f, total = folderCounts{}, 0
	add(executor.Altered, "/a\xff\x00\x1b", 2)
	add(executor.Gone, "/"+strings.Repeat("ü", 4000), 1)
	list := f.list()
	if len(list) != 2 || list[0].Folder != "/a\uFFFD\uFFFD\x1b" || list[0].Changed != 2 ||
		len(list[1].Folder) > 1<<10+3 || !utf8.ValidString(list[1].Folder) || list[1].Removed != 1 {
		t.Errorf("%+v", list)
	}
	uses := addUses(nil, record.Opened, slices.Repeat([]string{"/a\xff"}, record.MaxUses+5),
		func(string) bool { return false })
	if uses = addUses(uses, record.Odd, []string{"/b"}, nil); len(uses) != record.MaxUses ||
		uses[0] != (record.PathUse{Path: "/a\uFFFD", Use: record.Opened}) {
		t.Errorf("%d uses, %+v", len(uses), uses[0])
	}
}

// Work that cannot be kept is said to be so, and is no failure.
func TestGrown(t *testing.T) {
	machines(t, func(t *testing.T, create func() sandbox.Sandbox) {
		for name, script := range map[string]string{
			"a file of 2 GiB without content": "truncate -s 2G /job/huge",
			"files of 2 GiB in all":           "cd /job; mkdir m; for i in $(seq 8); do truncate -s 256M m/$i; done",
			"a pipe":                          "mkfifo /job/pipe",
		} {
			if l := leave(t, create, script, "/job"); l.work.Grown == "" && l.files[workKey].Size == 0 {
				t.Errorf("%s: %+v %v", name, l.work, l.files)
			} else {
				t.Logf("%s: %s", name, l.work.Grown)
			}
		}
	})
}

// The evidence stays small, however long the names are that it has to list.
func TestGrownNames(t *testing.T) {
	machines(t, func(t *testing.T, create func() sandbox.Sandbox) {
		l := leave(t, create, `d=/job; for i in $(seq 14); do d=$d/$(head -c 250 /dev/zero | tr '\0' '\1'); done; mkdir -p $d; cd $d
seq 2000 | xargs touch; chown -R 5:5 .`, "/job")
		raw, err := json.Marshal(l.work)
		if err != nil || len(raw) > maxWorkNames {
			t.Errorf("%d bytes of evidence, %v", len(raw), err)
		}
		if !strings.Contains(l.work.Grown, "names of the files") {
			t.Errorf("%q", l.work.Grown)
		}
	})
}

// What a process changes while the work is read makes no failure.
func TestCollectMeanwhile(t *testing.T) {
	machines(t, func(t *testing.T, create func() sandbox.Sandbox) {
		l := leave(t, create, `mkdir /job/busy; echo x > /job/done
setsid bash -c 'cd /job; while :; do for i in 1 2 3 4 5 6 7 8; do head -c $RANDOM /dev/zero > busy/$i; rm -rf busy/d$i f$i; mkdir busy/d$i; echo x > f$i; done; done' >/dev/null 2>&1 </dev/null &
for i in 1 2 3 4 5 6 7 8; do until [ -e /job/f$i ]; do :; done; done`, "/job")
		if l.work.Grown != "" {
			t.Skip(l.work.Grown) // a file that shrank while it was read
		}
		if got := sh(t, l.restore(t, create, nil), "cat /job/done"); got != "x\n" {
			t.Errorf("%q", got)
		}
	})
}

func TestNamedWork(t *testing.T) {
	got := joined(WorkPaths([]string{"out/", "/x/../y", "a.txt", "out"}, "/app", "see `/app/b.txt`", "c.txt"))
	if got != "/app/a.txt /app/out /y" {
		t.Errorf("named work: %s", got)
	}
	for name, ok := range map[string]bool{"out": true, "/app": true, "/etc/motd": true, "": false, "/": false, "..": false,
		"../x": false, "/etc": false, "/usr/": false, "/tmp": false} {
		if err := CheckWork([]string{name}); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
