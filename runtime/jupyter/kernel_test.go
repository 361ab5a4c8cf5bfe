package jupyter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/png"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/runtime/docker"
	"github.com/evalrun/evalrun/runtime/local"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestMain(m *testing.M) {
	local.Init()
	os.Exit(m.Run())
}

const image = "evalrun-test/jupyter:1" // scripts/test-images builds it

// machines runs a test in a sandbox of each driver that has ipykernel: the one of this machine, and
// one of another version.
func machines(t *testing.T, f func(t *testing.T, sb sandbox.Sandbox)) {
	t.Run("local", func(t *testing.T) {
		d := local.New()
		t.Cleanup(func() { d.Close() })
		must := os.Getenv("EVALRUN_TEST_LOCAL") != ""
		if err := d.Probe(t.Context()); err != nil && !must {
			t.Skip("needs the sandbox driver: ", err)
		}
		sb := create(t, d, sandbox.Spec{Dir: "/w"})
		x, err := sb.Exec(t.Context(), sandbox.Command{Args: []string{"python3", "-c", "import ipykernel"}})
		if !must && err == nil && x.Code != 0 {
			t.Skip("needs ipykernel for /usr/bin/python3; scripts/setup-test installs it")
		}
		f(t, sb)
	})
	t.Run("docker", func(t *testing.T) {
		if os.Getenv("EVALRUN_TEST_DOCKER") == "" {
			t.Skip("set EVALRUN_TEST_DOCKER=1 to run cells on the engine; it needs the image " + image)
		}
		d := docker.New(docker.Options{})
		t.Cleanup(func() { d.Close() })
		if err := d.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		img := sandbox.Image{Ref: image}
		if _, err := d.Prepare(t.Context(), img); err != nil {
			t.Fatal(err)
		}
		f(t, create(t, d, sandbox.Spec{Dir: "/w", Image: img}))
	})
}

func create(t *testing.T, d sandbox.Driver, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	sb, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close() })
	return sb
}

// A notebook is a kernel of a test.
type notebook struct {
	*testing.T
	k *Kernel
}

func open(t *testing.T, sb sandbox.Sandbox, o Options) notebook {
	k := New(func(context.Context) (sandbox.Sandbox, error) { return sb, nil }, o, false)
	t.Cleanup(func() { k.Leave(context.Background()) })
	return notebook{t, k}
}

func (n notebook) run(c Cell) Result {
	n.Helper()
	if c.Timeout == 0 {
		c.Timeout = time.Minute
	}
	r, err := n.k.Run(n.Context(), c)
	if err != nil {
		n.Fatalf("%s: %v", c.Code, err)
	}
	return r
}

func (n notebook) cell(code string) Result { n.Helper(); return n.run(Cell{Code: code}) }

// says checks the whole text of a cell that ends well.
func (n notebook) says(code, want string) {
	n.Helper()
	if r := n.cell(code); words(r) != want || r.Error || r.Ended != "" || r.Bytes != int64(len(want)) {
		n.Errorf("%s: %.2000q %+v", code, words(r), facts(r))
	}
}

// fails checks that a cell has raised an exception.
func (n notebook) fails(code, want string) {
	n.Helper()
	if r := n.cell(code); !strings.Contains(words(r), want) || !r.Error || r.TimedOut || r.Ended != "" ||
		strings.Contains(words(r), "\x1b") {
		n.Errorf("%s: %q %+v", code, words(r), facts(r))
	}
}

// words is the text of a result, with a mark for each picture.
func words(r Result) string {
	var b strings.Builder
	for _, p := range r.Parts {
		b.WriteString(p.Text)
		if p.Image != nil {
			fmt.Fprintf(&b, "<%s>", p.Type)
		}
	}
	return b.String()
}

func facts(r Result) Result { r.Parts = nil; return r }

func TestCells(t *testing.T) {
	machines(t, func(t *testing.T, sb sandbox.Sandbox) {
		n := open(t, sb, Options{Dir: "/w"})
		n.says("x = 20\nprint('a\u00e9')", "a\u00e9\n")
		n.says("x + 22", "42\n")
		n.says("x = 1", "")
		n.says("", "")
		n.says("import sys\nprint('out'); sys.stdout.flush(); print('err', file=sys.stderr)", "out\nerr\n")
		n.says("import os\n_ = os.system('echo from a shell')", "from a shell\n")
		n.says("%%bash\necho $((6 * 7))", "42\n")
		n.fails("1/0", "ZeroDivisionError: division by zero")
		if a, b := words(n.cell("1/0")), words(n.cell("1/0")); a != b {
			t.Errorf("one mistake has two texts: %q, %q", a, b)
		}
		n.fails("def f(:", "SyntaxError")
		n.fails("input('name? ')", "does not support input requests")
		n.fails("import getpass\ngetpass.getpass()", "does not support input requests")
		if r := n.cell("len?"); !strings.Contains(words(r), "number of items") {
			t.Errorf("help: %q", words(r))
		}
		// Matplotlib is in the image only: Debian's brings fonts, and pages would look different with them.
		plot := "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.title('Mäuse')\nplt.show()\n"
		if n.cell("import matplotlib").Error {
			plot = "display(Image(b.getvalue()))\n"
		}
		n.cell(picture)
		r := n.cell("print('before')\n" + plot + "print('after')")
		if words(r) != "before\n<image/png>after\n" {
			t.Fatalf("a plot: %q %+v", words(r), facts(r))
		}
		if img, err := png.Decode(bytes.NewReader(r.Parts[1].Image)); err != nil || img.Bounds().Dx() < 300 {
			t.Errorf("the picture: %v", err)
		}
		r = n.cell("for _ in range(20): display(Image(b.getvalue()))")
		if words(r) != strings.Repeat("<image/png>", 8)+"\n[12 more pictures are left out]\n" {
			t.Errorf("20 pictures: %q", words(r))
		}
		for _, size := range []int{5<<20 + 1, 40 << 20} { // in one message, and in one that is too large
			r = n.cell(fmt.Sprintf("display(Image(b.getvalue() + bytes(%d)))\nprint('done')", size))
			if words(r) != "done\n\n[1 pictures are left out: each may have 5 MiB]\n" {
				t.Errorf("a picture of %d bytes: %q", size, words(r))
			}
		}
		if r := n.cell("print('\\x1b[31mred\\x1b[0m \\x1b]0;title\\x07')"); words(r) != "red \n" {
			t.Errorf("escape codes: %q", words(r))
		}
	})
}

// picture defines b, a picture of 400 × 10 points.
const picture = "import io, struct, zlib\nfrom IPython.display import Image, display\n" +
	"def chunk(kind, data):\n" +
	"    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))\n" +
	"b = io.BytesIO(b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 400, 10, 8, 0, 0, 0, 0)) +\n" +
	"    chunk(b'IDAT', zlib.compress(bytes(401) * 10)) + chunk(b'IEND', b''))\n"

// A notebook's directory is the shell's, as soon as that has changed.
func TestDirectory(t *testing.T) {
	machines(t, func(t *testing.T, sb sandbox.Sandbox) {
		n := open(t, sb, Options{Dir: "/w", User: "nobody", Env: map[string]string{"GREETING": "hi"}})
		at := func(r Result, dir string) {
			t.Helper()
			if r.Dir != dir || !strings.Contains(r.Python, "python") || r.Error {
				t.Errorf("%+v, not in %s", r, dir)
			}
		}
		at(n.cell("import os"), "/w")
		at(n.run(Cell{Dir: "/tmp", Code: "os.mkdir(\"it's \u00e9\")"}), "/tmp")
		at(n.run(Cell{Dir: "/tmp/it's \u00e9", Code: "1"}), "/tmp/it's \u00e9")
		at(n.run(Cell{Dir: "/tmp/it's \u00e9", Code: "os.chdir('/')"}), "/")
		at(n.run(Cell{Dir: "/tmp/it's \u00e9", Code: "1"}), "/") // the shell has not moved
		at(n.run(Cell{Dir: "/tmp", Code: "1"}), "/tmp")
		if r := n.run(Cell{Dir: "/gone", Code: "1"}); !r.NoDir || r.Dir != "/tmp" {
			t.Errorf("a directory that is gone: %+v", r)
		}
		n.says("os.getuid(), os.environ['GREETING']", "(65534, 'hi')\n")
		n.says("[x for x in os.listdir('/tmp') if 'kernel' in x]", "[]\n") // its connection file is gone
	})
}

func TestTimeout(t *testing.T) {
	machines(t, func(t *testing.T, sb sandbox.Sandbox) {
		n := open(t, sb, Options{})
		n.cell("x = 1\nimport time")
		r := n.run(Cell{Code: "print('begin')\nwhile True: time.sleep(1)", Timeout: time.Second})
		if !r.TimedOut || !r.Error || r.Ended != "" || !strings.Contains(words(r), "KeyboardInterrupt") ||
			!strings.HasPrefix(words(r), "begin\n") {
			t.Errorf("a cell without end: %q %+v", words(r), facts(r))
		}
		n.says("x", "1\n")
		r = n.run(Cell{Code: "print('begin')\nwhile True: print('x' * 1000)", Timeout: time.Second})
		if !r.TimedOut || r.Ended != "" || len(words(r)) > maxText+1000 {
			t.Errorf("output without end: %d bytes, %+v", len(words(r)), facts(r))
		}
		n.says("x", "1\n")
		usual := interruptTime
		interruptTime = time.Second
		defer func() { interruptTime = usual }()
		r = n.run(Cell{Code: "print('deaf')\nwhile True:\n try: time.sleep(9)\n except KeyboardInterrupt: pass",
			Timeout: time.Second})
		if !r.TimedOut || !r.Error || r.Ended != NotInterrupted || words(r) != "deaf\n" {
			t.Errorf("a cell that is deaf: %q %+v", words(r), facts(r))
		}
		if r := n.cell("x"); !r.Began || !strings.Contains(words(r), "NameError") || r.TimedOut {
			t.Errorf("after it: %q %+v", words(r), facts(r))
		}
		if r := n.cell("1"); r.Began {
			t.Error("the kernel is new twice")
		}
	})
}

func TestDeath(t *testing.T) {
	machines(t, func(t *testing.T, sb sandbox.Sandbox) {
		n := open(t, sb, Options{})
		n.cell("import os, sys\nx = 1")
		r := n.cell("print('last words', flush=True)\nimport time; time.sleep(.5)\nos.kill(os.getpid(), 9)")
		if !r.Error || r.Ended != "was ended by SIGKILL" || words(r) != "last words\n" || r.TimedOut {
			t.Errorf("a kernel that dies: %q %+v", words(r), facts(r))
		}
		if r = n.cell("x"); !r.Began || !strings.Contains(words(r), "NameError") {
			t.Errorf("the next cell: %q %+v", words(r), facts(r))
		}
		if r = n.cell("import os\nos._exit(7)"); r.Ended != "left with status 7" || !r.Error {
			t.Errorf("a kernel that ends: %+v", facts(r))
		}
		if r = n.cell("print('bye')\nexit()"); r.Ended != ByCell || r.Error || words(r) != "bye\n" || !r.Began {
			t.Errorf("exit(): %q %+v", words(r), facts(r))
		}
		// Between two cells: either the next one notices it first, or the one after that.
		pid := strings.TrimSpace(words(n.cell("import os\nos.getpid()")))
		if x, err := sb.Exec(t.Context(), sandbox.Command{Args: []string{"python3", "-c", "import os; os.kill(" + pid +
			", 9)"}}); err != nil || x.Code != 0 {
			t.Fatalf("%+v %v", x, err)
		}
		if r = n.cell("1"); r.Ended != "" {
			r = n.cell("1")
		}
		if !r.Began || words(r) != "1\n" {
			t.Errorf("killed between cells: %q %+v", words(r), facts(r))
		}
		// The end of the trial's time kills it with what it has started.
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("stopped")
		go func() {
			for !exists(t, sb, "/tmp/going") {
				time.Sleep(20 * time.Millisecond)
			}
			cancel(stopped)
		}()
		_, err := n.k.Run(ctx, Cell{Timeout: time.Minute, Code: "import os, subprocess, time\n" +
			"subprocess.Popen(['sleep', '1000'])\n" +
			"os.mkdir('/tmp/going')\ntime.sleep(1000)"})
		if err != stopped {
			t.Errorf("a stop: %v", err)
		}
		if r = n.cell("%%bash\ngrep -l '^sleep' /proc/[0-9]*/cmdline | wc -l"); words(r) != "0\n" || !r.Began {
			t.Errorf("after a stop: %q %+v", words(r), facts(r))
		}
	})
}

func exists(t *testing.T, sb sandbox.Sandbox, name string) bool {
	x, err := sb.Exec(t.Context(), sandbox.Command{Args: []string{"test", "-e", name}})
	return err != nil || x.Code == 0
}

func TestFlood(t *testing.T) {
	machines(t, func(t *testing.T, sb sandbox.Sandbox) {
		n := open(t, sb, Options{})
		n.cell("1")
		for _, code := range []string{
			"print('b' + 'x' * 100_000_000 + 'e')", // one message
			"print('b', end='')\nfor _ in range(1_000_000): print('x' * 99)\nprint('e')",
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r := n.cell(code)
			runtime.ReadMemStats(&after)
			s := words(r)
			if len(s) > maxText+100 || len(s) < maxText*9/10 || s[0] != 'b' || !strings.HasSuffix(s, "e\n") ||
				!strings.Contains(s, " bytes left out ...]") || r.Bytes < 100_000_000 || r.Error {
				t.Errorf("%s: %d bytes, %.20q … %.20q, %+v", code, len(s), s, s[max(len(s)-20, 0):], facts(r))
			}
			if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 64<<20 {
				t.Errorf("%s: the heap has grown by %d bytes", code, grown)
			}
		}
		if r := n.cell("'y' * 50_000_000"); !strings.HasPrefix(words(r), "'yyy") || len(words(r)) > maxText+100 || r.Error {
			t.Errorf("a large value: %d bytes, %+v", len(words(r)), facts(r))
		}
		if r := n.cell("raise Exception('z' * 30_000_000)"); !r.Error || len(words(r)) > maxText+100 {
			t.Errorf("a large exception: %d bytes, %+v", len(words(r)), facts(r))
		}
		n.says("1", "1\n")
	})
}

func TestSkills(t *testing.T) {
	machines(t, func(t *testing.T, sb sandbox.Sandbox) {
		var long strings.Builder
		for i := 1; i <= 250; i++ {
			fmt.Fprintf(&long, "line %d\n", i)
		}
		if err := sb.Put(t.Context(), "/w", fstest.MapFS{"a/long.txt": {Data: []byte(long.String()), Mode: 0o644},
			"a/b/bin": {Data: []byte("line 7\x00"), Mode: 0o644}, ".hidden": {Data: []byte("line 7"), Mode: 0o644},
			"short": {Data: []byte("line 77 \xff\n"), Mode: 0o644}}); err != nil {
			t.Fatal(err)
		}
		n := open(t, sb, Options{Dir: "/w"})
		n.says("find_file('o')", "./short\n./a/long.txt\n[2 hits for 'o' in ./]\n")
		n.says("search_dir('line 77')", "./short:1|line 77 \ufffd\n./a/long.txt:77|line 77\n[2 hits for 'line 77' in ./]\n")
		n.says("search_file('line 24', 'a/long.txt')", "24|line 24\n240|line 240\n241|line 241\n242|line 242\n"+
			"243|line 243\n244|line 244\n245|line 245\n246|line 246\n247|line 247\n248|line 248\n249|line 249\n"+
			"[11 hits for 'line 24' in a/long.txt]\n")
		n.says("open_file('a/long.txt', 100, context_lines=3)",
			"[File: /w/a/long.txt (250 lines)]\n(98 lines above)\n99|line 99\n100|line 100\n101|line 101\n(149 lines below)\n")
		n.says("scroll_down()",
			"[File: /w/a/long.txt (250 lines)]\n(101 lines above)\n102|line 102\n103|line 103\n104|line 104\n(146 lines below)\n")
		n.says("scroll_up(); goto_line(250)",
			"[File: /w/a/long.txt (250 lines)]\n(98 lines above)\n99|line 99\n100|line 100\n101|line 101\n(149 lines below)\n"+
				"[File: /w/a/long.txt (250 lines)]\n(247 lines above)\n248|line 248\n249|line 249\n250|line 250\n")
		n.fails("goto_line(251)", "line_number must be from 1 to 250")
		n.fails("open_file('none')", "none is not a file")
		n.says("from agentskills import *\nimport agentskills\nagentskills.search_file('nothing', 'short')",
			"[0 hits for 'nothing' in short]\n")
		n.says("%%bash\nls -A /w /w/a; find / -name '*agentskills*' 2>/dev/null || true", "/w:\n.hidden\na\nshort\n\n/w/a:\nb\nlong.txt\n")
	})
}

// What a kernel has started goes on when it is left.
func TestLeave(t *testing.T) {
	machines(t, func(t *testing.T, sb sandbox.Sandbox) {
		n := open(t, sb, Options{})
		pids := strings.Fields(words(n.cell("import os, subprocess\nprint(os.getpid(), " +
			"subprocess.Popen(['sleep', '1000'], start_new_session=True, stdout=subprocess.DEVNULL).pid)")))
		n.k.Leave(t.Context())
		if len(pids) != 2 || exists(t, sb, "/proc/"+pids[0]) || !exists(t, sb, "/proc/"+pids[1]) {
			t.Errorf("after the kernel was left: %q", pids)
		}
		if r := n.cell("1"); words(r) != "1\n" || !r.Began {
			t.Errorf("after that: %+v", r)
		}
	})
}

func TestRefused(t *testing.T) {
	machines(t, func(t *testing.T, sb sandbox.Sandbox) {
		refuse := func(o Options, want string) {
			t.Helper()
			n := open(t, sb, o)
			_, err := n.k.Run(t.Context(), Cell{Code: "1", Timeout: time.Minute})
			if no := new(Refused); !errors.As(err, &no) || !strings.Contains(no.Why, want) {
				t.Errorf("%+v: %v", o, err)
			}
		}
		refuse(Options{Env: map[string]string{"PATH": "/nowhere"}}, "no Python")
		refuse(Options{User: "nosuchuser"}, "nosuchuser")
		if err := sb.Put(t.Context(), "/no", fstest.MapFS{"ipykernel.py": {Data: []byte("raise ImportError('not here')"),
			Mode: 0o644}}); err != nil {
			t.Fatal(err)
		}
		refuse(Options{Env: map[string]string{"PYTHONPATH": "/no"}}, "ImportError: not here")
		refuse(Options{Env: map[string]string{"PYTHONHOME": "/no"}}, "the kernel did not start")
		n := open(t, sb, Options{Dir: "/none"}) // it was removed, perhaps
		if r := n.cell("1"); words(r) != "1\n" || r.Dir != "/" {
			t.Errorf("without its directory: %+v", r)
		}
	})
}
