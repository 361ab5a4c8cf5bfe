package fake_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// scripts are what the small shell and a real one must agree on.
var scripts = []struct{ script, out string }{
	{`echo a  b "c  d" 'e  $f'`, "a b c  d e  $f\n"},
	{`x=1 y="$x two"; echo $x "$y" ${x}3 '$x' "\$x" \$x`, "1 1 two 13 $x $x $x\n"},
	{`x="a   b"; echo $x; echo "$x"; echo "$x"c$x`, "a b\na   b\na   bca b\n"},
	{`true && echo yes || echo no; false && echo yes || echo no`, "yes\nno\n"},
	{`false; echo $?; true; echo $?; ! true; echo $?; (exit 7); echo $?`, "1\n0\n1\n7\n"},
	{`echo one > /tmp/f; echo two >> /tmp/f; cat < /tmp/f; cat /tmp/f > /tmp/g; cat /tmp/g /tmp/f`,
		"one\ntwo\none\ntwo\none\ntwo\n"},
	{`echo hidden > /dev/null; echo shown 2>/dev/null`, "shown\n"},
	{`{ echo x; } 2>/dev/null || echo no braces here`, ""},
	{`echo out; echo err >&2`, "out\n"},
	{`(echo out; echo err >&2) 2>&1 | cat`, "out\nerr\n"},
	{`(echo out; echo err >&2) > /tmp/both 2>&1; cat /tmp/both; (echo o2; echo e2 >&2) &> /tmp/b2; cat /tmp/b2`,
		"out\nerr\no2\ne2\n"},
	{"cat <<EOF\na $HOME_NOT b\n\tc \\$d\nEOF\necho after", "a  b\n\tc $d\nafter\n"},
	{"cat <<'EOF' > /tmp/h && cat /tmp/h\n$x `y` \"z\" \\n\nEOF", "$x `y` \"z\" \\n\n"},
	{"cat <<-E\n\ta\n\t\tb\n\tE", "a\nb\n"},
	{"cat <<A; cat <<B\none\nA\ntwo\nB", "one\ntwo\n"},
	{`cat <<< "one $((1)) line" || true`, ""},
	{`x=$(echo inner; echo "second)"); echo "<$x>" <$(echo /dev/null) `, "<inner\nsecond)>\n"},
	{"echo `echo old` $(echo $(echo nested))", "old nested\n"},
	{`x=$(false); echo $?; y=$(exit 3) ; echo $?`, "1\n3\n"},
	{`seq 3 | grep -v 2 | wc -l | cat`, "2\n"},
	{`seq 100000 | head -n 2`, "1\n2\n"},
	{`exit 3 | true; echo $?; true | (exit 4); echo $?`, "0\n4\n"},
	{`cd /tmp && pwd && (cd / && pwd) && pwd`, "/tmp\n/\n/tmp\n"},
	{`export A=1; sh -c 'echo $A $0 $1' zero one; B=2 sh -c 'echo $B'; echo "$B."`, "1 zero one\n2\n.\n"},
	{`f=/tmp/t; echo x > $f; test -f $f && [ -s "$f" ] && [ ! -d $f ] && [ 2 -gt 1 ] && [ a = a ] && echo all`,
		"all\n"},
	{"# comment\necho a # and more\necho 'b # c'#d", "a\nb # c#d\n"},
	{"echo a \\\n  b; echo 'x\ny'", "a b\nx\ny\n"},
	{`nonsense 2>/dev/null; echo $?; /no/such 2>/dev/null; echo $?`, "127\n127\n"},
	{`mkdir -p /tmp/d/e; touch /tmp/d/f; ls /tmp/d; rm -r /tmp/d; ls /tmp/d 2>/dev/null || echo gone`, "e\nf\ngone\n"},
	{`printf '%s-%s\n' a b c d; printf '100%%\n'`, "a-b\nc-d\n100%\n"},
	{`trap 'echo bye $?' EXIT; echo hi; exit 5`, "hi\nbye 5\n"},
	{`exec echo last; echo never`, "last\n"},
	{`eval 'x=5; echo $x'; echo $x`, "5\n5\n"},
	{`echo "$@" $# "$*"`, "0 \n"},
	{`printf '#!/bin/sh\necho script $1\n' > /tmp/s; sh /tmp/s a; sh < /tmp/s`, "script a\nscript\n"},
	{`x= ; echo "[$x]" ""$x"" | cat; echo $x`, "[] \n\n"},
	{`x=$(echo a & echo b > /dev/null; sleep 0.1); echo $x`, "a\n"},
	{`sleep 1000 & echo started`, "started\n"},
	{`cd /nope 2>/dev/null || echo stays; pwd > /dev/null; set -e; :`, "stays\n"},
	{`if true; then echo no; fi`, ""},
}

func script(t *testing.T, d sandbox.Driver, s string) (string, sandbox.Exit) {
	t.Helper()
	sb, err := d.Create(t.Context(), sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	var out, errs bytes.Buffer
	e, err := sb.Exec(t.Context(), sandbox.Command{Args: []string{"bash", "-c", s}, Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return out.String(), e
}

func TestShell(t *testing.T) {
	d := fake.New(fake.Options{})
	for _, tt := range scripts {
		if got, e := script(t, d, tt.script); got != tt.out {
			t.Errorf("%s\ngot  %q, code %d\nwant %q", tt.script, got, e.Code, tt.out)
		}
	}
	d.CheckAllClosed(t)
}

// What the table says is true of bash as well, but where the small shell says that it has no such
// thing.
func TestShellAgainstBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash")
	}
	for _, tt := range scripts {
		if tt.out == "" || strings.Contains(tt.script, "&>") {
			continue
		}
		cmd := exec.CommandContext(t.Context(), bash, "-c",
			strings.ReplaceAll(strings.ReplaceAll(tt.script, "/tmp", t.TempDir()), "sleep 1000 &", "sleep 0 &"))
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/"}
		got, _ := cmd.Output()
		want := strings.ReplaceAll(tt.out, "/tmp", "…")
		if strings.Contains(want, "…") {
			continue // shows the folder's name
		}
		if string(got) != want {
			t.Errorf("%s\nbash  %q\ntable %q", tt.script, got, want)
		}
	}
}

func TestShellSyntax(t *testing.T) {
	d := fake.New(fake.Options{})
	for _, s := range []string{"echo 'a", `echo "a`, "(echo", "echo )", "&& x", "x &&", "| x", "x >",
		"if true; then :; fi", "echo $(", "echo ${x:-y}", "x ;; y", "for i in 1; do :; done", "f() { :; }"} {
		if out, e := script(t, d, s); e.Code != 2 || out != "" {
			t.Errorf("%s: code %d, %q", s, e.Code, out)
		}
	}
}

func TestShellTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fake.New(fake.Options{})
		sb, _ := d.Create(t.Context(), sandbox.Spec{})
		for _, tt := range []struct {
			script string
			limit  time.Duration
			want   time.Duration
			code   int
		}{
			{"sleep 2; sleep 0.5s; exit 3", 0, 2500 * time.Millisecond, 3},
			{"sleep 100 & exit 4", 0, 0, 4},
			{"sleep 100; echo never > /tmp/never", time.Second, time.Second, -1},
			{"sleep infinity | cat | cat", time.Second, time.Second, -1},
			{"(sleep 1000 &) ; x=$(sleep 1000)", time.Second, time.Second, -1},
		} {
			begin := time.Now()
			e, err := sb.Exec(t.Context(), sandbox.Command{Args: []string{"sh", "-c", tt.script}, Timeout: tt.limit})
			if err != nil || e.Code != tt.code || e.TimedOut != (tt.code < 0) {
				t.Errorf("%s: %+v, %v", tt.script, e, err)
			}
			if took := time.Since(begin); took != tt.want || e.Wall != tt.want {
				t.Errorf("%s: took %v, Wall %v, want %v", tt.script, took, e.Wall, tt.want)
			}
		}
		sb.Close()
		d.CheckAllClosed(t)
	})
}

func FuzzShell(f *testing.F) {
	for _, tt := range scripts {
		f.Add(tt.script)
	}
	d := fake.New(fake.Options{Commands: map[string]fake.Func{"seq": nil, "sleep": nil}}) // nothing that takes long
	f.Fuzz(func(t *testing.T, s string) {
		sb, err := d.Create(t.Context(), sandbox.Spec{Disk: 1 << 20, Pids: 100})
		if err != nil {
			t.Fatal(err)
		}
		defer sb.Close()
		e, err := sb.Exec(t.Context(), sandbox.Command{Args: []string{"bash", "-c", s}, Limit: 1 << 16,
			Timeout: 20 * time.Second})
		if err != nil || e.TimedOut {
			t.Errorf("%q: %+v, %v", s, e, err)
		}
	})
}
