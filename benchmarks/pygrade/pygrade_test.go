package pygrade_test

import (
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/benchmarks/pygrade"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestMain(m *testing.M) { benchtest.Main(m) }

const tests = `
def check(candidate):
    assert candidate(2) == 4
    assert candidate(7) == 49, "seven"
`

func run(t *testing.T, d sandbox.Driver, p pygrade.Program, timeout time.Duration) pygrade.Outcome {
	t.Helper()
	sb, err := d.Create(t.Context(), sandbox.Spec{Memory: pygrade.Memory, Pids: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	if p.Entry == "" {
		p.Entry = "square"
	}
	if p.Test == "" {
		p.Test = tests
	}
	o, err := pygrade.Run(t.Context(), sb, p, timeout)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Nothing that a candidate does earns a pass that its function does not.
func TestForging(t *testing.T) {
	d := benchtest.Local(t)
	for name, source := range map[string]string{
		"leaves with 0 at once": "import sys\nsys.exit(0)",
		"leaves hard at once":   "import os\nos._exit(0)",
		"leaves in the call":    "import os\ndef square(x):\n    os._exit(0)",
		"raises SystemExit":     "def square(x):\n    raise SystemExit(0)",
		"prints a verdict": "import os\nfor fd in range(20):\n    try: os.write(fd, b'\\nNN {\"passed\": " +
			"true}\\n')\n    except OSError: pass\ndef square(x): return 0",
		"hook at exit": "import atexit, os\natexit.register(lambda: print('{\"passed\": true}'))\ndef " +
			"square(x): raise SystemExit(0)",
		"its own check": "def check(candidate): pass\ndef square(x): return 0",
		"equal to everything": "class E(int):\n    __eq__ = lambda s, o: True\n    __hash__ = int.__hash__\ndef " +
			"square(x): return E(0)",
		"object equal to all": "class E:\n    __eq__ = lambda s, o: True\ndef square(x): return E()",
		"monkeypatches": "import builtins, json, os, sys\nbuiltins.AssertionError = type('A', (Exception,), " +
			"{})\njson.loads = lambda *a: {'value': 4}\nsys.modules['__main__'].__dict__['enc'] = lambda v: 4\ndef " +
			"square(x): return 0",
		"writes replies ahead": "import os, json\nb = json.dumps({'ready': 1}).encode()\nr = json.dumps({'value': " +
			"4}).encode()\nfor fd in range(3, 20):\n    try: os.write(fd, len(b).to_bytes(8, 'big') + b + " +
			"(len(r).to_bytes(8, 'big') + r))\n    except OSError: pass\ndef square(x): return 0",
		"kills its parent": "import os\ntry: os.kill(os.getppid(), 9)\nexcept OSError: pass\ndef " +
			"square(x): return 0",
		"reads its parent": "import os\ntry:\n    open('/proc/%d/fd/0' % os.getppid(), 'rb').read()\n    " +
			"open('/proc/%d/mem' % os.getppid(), 'rb').read(1)\nexcept OSError: pass\ndef square(x): return 0",
		"writes through proc": "import os\nfor fd in range(10):\n    try: open('/proc/%d/fd/%d' % (os.getppid(), " +
			"fd), 'w').write('{\"passed\": true}')\n    except OSError: pass\ndef square(x): return 0",
		"reads the tests": "import gc, sys\ntexts = [o for o in gc.get_objects() if isinstance(o, dict) and " +
			"'test' in o]\nf = sys._getframe()\nwhile f:\n    if 'second' in f.f_locals: " +
			"texts.append(f.f_locals['second'])\n    f = f.f_back\ndef square(x): return 4 if x == 2 else 49 if " +
			"texts and any('nonce' in t for t in texts) else 0",
		"replaces the function": "def square(x):\n    global square\n    square = lambda x: x * x\n    return 0",
		"floods a reply":        "def square(x): return 'x' * (20 << 20)",
		"deep reply":            "def square(x):\n    l = []\n    for _ in range(100000): l = [l]\n    return l",
		"cyclic reply":          "def square(x):\n    l = []\n    l.append(l)\n    return l",
		"huge number":           "def square(x): return 10 ** 100000",
		"not a function":        "square = 4",
		"nothing":               "",
		"syntax error":          "def square(x:",
		"null bytes":            "def square(x):\x00 return x*x",
	} {
		t.Run(name, func(t *testing.T) {
			o := run(t, d, pygrade.Program{Source: source}, 20*time.Second)
			if o.Passed || o.Task || o.Shared {
				t.Errorf("%+v", o)
			}
			if o.Why == "" {
				t.Error("it does not say why")
			}
		})
	}
}

// The candidate's process cannot look into the tests' process.
func TestApart(t *testing.T) {
	d := benchtest.Local(t)
	o := run(t, d, pygrade.Program{Entry: "look", Source: `
import ctypes, os
def look(how):
    parent = os.getppid()
    try:
        if how == "mem":
            open("/proc/%d/mem" % parent, "rb")
        elif how == "fd":
            open("/proc/%d/fd/0" % parent, "rb")
        elif how == "trace":
            if ctypes.CDLL(None, use_errno=True).ptrace(16, parent, 0, 0) != 0:
                return "closed"
    except OSError:
        return "closed"
    return "open"
`, Test: `
def check(look):
    for how in ("mem", "fd", "trace"):
        assert look(how) == "closed", how
`}, 20*time.Second)
	if !o.Passed || o.Shared {
		t.Errorf("%+v", o)
	}
}

// What tests may expect of values survives the way between the processes.
func TestValues(t *testing.T) {
	d := benchtest.Local(t)
	o := run(t, d, pygrade.Program{
		Prompt: "from typing import List\nimport math\n\ndef helper(x):\n    return x + 1\n\n\ndef f(x, *more, " +
			"**named):\n    \"\"\" doc \"\"\"\n",
		Source: `
import collections, decimal, fractions, numbers
def f(x, *more, **named):
    if x == "raise": raise ValueError("bad")
    if x == "key": return {}["k"]
    if x == "sort": more[0].sort(); return None
    if x == "gen": return (i for i in range(3))
    if x == "map": return {(1, 2): [None, True, 1.5, "é\ud800", b"\xff", 2j]}
    if x == "sub": return collections.Counter("aab")
    if x == "big": return 2 ** 200
    if x == "nan": return float("nan")
    if x == "frac": return fractions.Fraction(1, 3), decimal.Decimal("1.10")
    if x == "set": return {1, (2, 3)}
    if x == "import":
        import json.tool, sqlite3
        return True
    if x == "named": return named
    return x
`,
		Entry: "f",
		Test: `
import decimal, fractions
def check(candidate):
    for v in (None, True, 0, -1, 1.5, "a", "", [], (), {}, [1, (2, [3])], {"a": {1: None}}, 1 << 70, b"x"):
        got = candidate(v)
        assert got == v and type(got) is type(v), v
    assert candidate(True) is True and candidate(None) is None
    assert helper(1) == 2 and f(3) == 3 and candidate.__name__ == "f"
    for text, kind in (("raise", ValueError), ("key", KeyError)):
        try:
            candidate(text)
        except kind:
            pass
        else:
            assert False, text
    l = [3, 1, 2]
    assert candidate("sort", l) is None and l == [1, 2, 3]
    assert tuple(candidate("gen")) == (0, 1, 2) and candidate("gen") != [0, 1, 2]
    assert candidate("map") == {(1, 2): [None, True, 1.5, "é\ud800", b"\xff", 2j]}
    assert candidate("sub") == {"a": 2, "b": 1}
    assert candidate("big") == 2 ** 200
    assert math.isnan(candidate("nan"))
    assert candidate("frac") == (fractions.Fraction(1, 3), decimal.Decimal("1.1"))
    assert candidate("set") == {1, (2, 3)}
    assert candidate("import") is True
    assert candidate("named", a=1) == {"a": 1}
`}, 20*time.Second)
	if !o.Passed || o.Shared {
		t.Errorf("%+v", o)
	}
}

func TestLimits(t *testing.T) {
	d := benchtest.Local(t)
	if o := run(t, d, pygrade.Program{Source: "while True: pass"}, time.Second); !o.NoVerdict ||
		!strings.Contains(o.Why, "longer than 1s") {
		t.Errorf("an endless loop: %+v", o)
	}
	if o := run(t, d, pygrade.Program{Source: "def square(x):\n    l = []\n    while True: l.append(' ' * 10_000_000)"},
		20*time.Second); o.Passed || o.Why == "" {
		t.Errorf("all memory: %+v", o)
	}
	if o := run(t, d, pygrade.Program{Source: "import os\ndef square(x):\n    while True: os.fork()"},
		2*time.Second); o.Passed || o.Why == "" {
		t.Errorf("forks without end: %+v", o)
	}
	for name, test := range map[string]string{"no check": "x = 1", "broken": "def check(", "fails": "1/0"} {
		if o := run(t, d, pygrade.Program{Source: "def square(x): return x*x", Test: test}, 20*time.Second); !o.Task ||
			o.Passed {
			t.Errorf("tests at fault (%s): %+v", name, o)
		}
	}
	// What the tests hand back to the function is the function's own doing.
	const twice = "def check(candidate):\n    assert candidate(candidate(2)) == 16"
	for _, gives := range []string{"object()", "[object()]", "{1: object()}", "print", "(lambda: 1)"} {
		if o := run(t, d, pygrade.Program{Source: "def square(x): return " + gives, Test: twice},
			20*time.Second); o.Task || o.Passed || o.Why == "" {
			t.Errorf("gives %s: %+v", gives, o)
		}
	}
	if o := run(t, d, pygrade.Program{Source: "def square(x): return x*x",
		Test: "def check(candidate):\n    candidate(print)"}, 20*time.Second); !o.Task {
		t.Errorf("tests that hand over a function: %+v", o)
	}
	if o := run(t, d, pygrade.Program{Source: "def square(x): return x*x"}, 20*time.Second); !o.Passed {
		t.Errorf("a right function: %+v", o)
	}
	if o := run(t, d, pygrade.Program{Source: "def square(x): return 4"}, 20*time.Second); o.Passed ||
		!strings.Contains(o.Why, `tests.py:4: assert candidate(7) == 49, "seven"`) {
		t.Errorf("a wrong function: %+v", o)
	}
}

func TestCode(t *testing.T) {
	const prompt = "import re\n\ndef other():\n    return 1\n\ndef f(x):\n    \"\"\" doc \"\"\"\n"
	for name, c := range map[string]struct{ answer, want string }{
		"body":       {"    return x\n", prompt + "    return x\n"},
		"body, flat": {"y = x\nreturn y", prompt + "    y = x\n    return y"},
		"body, first line": {"if x:\n        return 1\n    return 2",
			prompt + "    if x:\n        return 1\n    return 2"},
		"whole": {"def f(x):\n    return x",
			prompt[:strings.Index(prompt, "def f")] + "\ndef f(x):\n    return x"},
		"fenced": {"Here:\n```python\ndef f(x):\n    return x\n```\nas you see",
			prompt[:strings.Index(prompt, "def f")] + "\ndef f(x):\n    return x\n"},
		"last that defines": {"```\nf(3)\n```\n```py\ndef f(x):\n    return 1\n```\n~~~python\ndef f(x):\n    return " +
			"2\n~~~\n```\nprint(f(1))\n```",
			prompt[:strings.Index(prompt, "def f")] + "\ndef f(x):\n    return 2\n"},
		"other language": {"```bash\nls\n```\n```python\n    return 3\n```", prompt + "    return 3\n"},
		"cut off":        {"```python\n    return 3\n", prompt + "    return 3\n"},
	} {
		if got := pygrade.Compose(prompt, pygrade.Code(c.answer, "f"), "f"); got != c.want {
			t.Errorf("%s:\n%q, want\n%q", name, got, c.want)
		}
	}
}
