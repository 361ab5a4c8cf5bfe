package sandboxtest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// HelperPath is where [Suite.Image] puts the helper, without the leading slash. It is not
// where the suite itself puts it later, when what the image's is doing may just be starting.
const HelperPath = "opt/helper/helper"

const inImage = "/" + HelperPath

func services(c Claims) bool { return c.Services }

// helped is the test's spec with an image that has the helper.
func (b *box) helped() sandbox.Spec {
	spec := b.spec
	spec.Image = b.suite.Image(b.t, map[string][]byte{HelperPath: b.binary})
	return spec
}

func helper(args ...string) []string { return append([]string{inImage}, args...) }

// check is a health check by the helper.
func check(args ...string) *sandbox.Health {
	return &sandbox.Health{Test: append([]string{"CMD"}, helper(args...)...), Interval: 50 * time.Millisecond,
		Timeout: patience, Retries: 1000}
}

// with makes a copy of the spec that runs the helper as its ENTRYPOINT.
func with(spec sandbox.Spec, args ...string) sandbox.Spec {
	spec.Entrypoint, spec.Cmd = helper(), args
	return spec
}

func (b *box) logs(sb sandbox.Sandbox) string {
	b.t.Helper()
	l, ok := sandbox.As[sandbox.Logger](sb)
	if !ok {
		b.t.Fatal("no Logger")
	}
	return string(l.Logs())
}

// service is a sidecar of m, as a machine with the helper.
func (m machine) service(name string) machine {
	m.b.t.Helper()
	g, ok := sandbox.As[sandbox.Group](m.Sandbox)
	if !ok {
		m.b.t.Fatal("no Group")
	}
	sb, ok := g.Service(name)
	if !ok {
		m.b.t.Fatalf("no service %s", name)
	}
	return machine{b: m.b, Sandbox: sb, helper: inImage}
}

var groupTests = []test{
	{name: "entrypoint/runs", need: services, run: func(t *testing.T, b *box) {
		spec := with(b.helped(), "echo", "begun", ",", "env", ",", "id", ",", "cwd", ",", "lock", "/tmp/entry", ",",
			"listen", "4330")
		spec.Env = map[string]string{"FROM_SPEC": "spec"}
		spec.User, spec.Dir = "1234:2345", "/tmp"
		spec.Health = check("dial", "4330", "hello")
		m := b.openSpec(spec)
		if got := m.ok("dial", "4330", "hello"); got != "HELLO\n" { // healthy when Create returns
			t.Errorf("got %q", got)
		}
		for _, want := range []string{"begun\n", "FROM_SPEC=spec\n", "1234:2345\n", "/tmp\n", "listening\n"} {
			if got := b.logs(m.Sandbox); !strings.Contains(got, want) {
				t.Errorf("logs lack %q: %q", want, got)
			}
		}
		if n := running(b, m); n != 0 {
			t.Errorf("Stats counts %d processes, want none: Exec has started nothing", n)
		}
		m.start("double", "drop", "/tmp/service")
		if err := m.KillAll(b.ctx()); err != nil {
			t.Fatalf("KillAll: %v", err)
		}
		if m.alive("/tmp/service") {
			t.Error("what Exec started outlived KillAll")
		}
		if !m.alive("/tmp/entry") {
			t.Error("ENTRYPOINT did not outlive KillAll")
		}
		if got := m.ok("dial", "4330", "again"); got != "AGAIN\n" {
			t.Errorf("after KillAll: got %q", got)
		}
	}},
	{name: "entrypoint/ends", need: services, run: func(t *testing.T, b *box) {
		// Its end is not the machine's.
		m := b.openSpec(with(b.helped(), "echo", "short", ",", "exit", "3"))
		for deadline := time.Now().Add(patience); b.logs(m.Sandbox) != "short\n"; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("logs are %q", b.logs(m.Sandbox))
			}
		}
		if got := m.ok("echo", "fine"); got != "fine\n" {
			t.Errorf("got %q", got)
		}
		m = b.openSpec(func() sandbox.Spec { s := b.helped(); s.Entrypoint = []string{"/no/such/program"}; return s }())
		if got := m.ok("echo", "fine"); got != "fine\n" {
			t.Errorf("with an ENTRYPOINT that cannot be started: got %q", got)
		}
	}},
	{name: "entrypoint/logs", need: services, run: func(t *testing.T, b *box) {
		// Much output is neither lost at its ends nor kept whole.
		spec := with(b.helped(), "echo", "the beginning", ",", "spam", "8000000", ",", "echo", "the end", ",", "listen",
			"4330")
		spec.Health = check("dial", "4330", "x")
		m := b.openSpec(spec)
		var got string
		for deadline := time.Now().Add(patience); !strings.HasSuffix(got, "the end\nlistening\n") &&
			time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			got = b.logs(m.Sandbox)
		}
		if !strings.HasPrefix(got, "the beginning\n") || !strings.HasSuffix(got, "the end\nlistening\n") ||
			len(got) > 4<<20 {
			t.Errorf("got %s", short(got))
		}
	}},
	{name: "entrypoint/unhealthy", need: services, run: func(t *testing.T, b *box) {
		spec := with(b.helped(), "echo", "I shall not listen", ",", "sleep", "1000h")
		spec.Health = check("echo", "nobody is there", ",", "exit", "9")
		spec.Health.Retries = 3
		// The error names the check, and says that it is the spec's fault.
		if e := b.fails(spec, "code 9", "nobody is there", "echo nobody is there , exit 9)"); !e.BadRequest ||
			!e.Permanent {
			t.Errorf("a check that never succeeds: %+v", e)
		}
	}},
	{name: "services/names", need: services, run: func(t *testing.T, b *box) {
		spec := b.helped()
		spec.Services = map[string]sandbox.Spec{
			"db":  b.side("listen", "4331"),
			"web": b.side("listen", "4332"),
		}
		db, web := spec.Services["db"], spec.Services["web"]
		db.Aliases, db.Health = []string{"database"}, check("dial", "4331", "x")
		web.After, web.Health = []string{"db"}, check("dial", "4332", "x")
		spec.Services = map[string]sandbox.Spec{"db": db, "web": web}
		spec.Aliases = []string{"chief"}
		m := b.openSpec(spec)
		for _, port := range []string{"4331", "4332"} { // healthy before main starts
			if got := m.ok("dial", port, "hello"); got != "HELLO\n" {
				t.Errorf("port %s: got %q", port, got)
			}
		}
		for who, m := range map[string]machine{"main": m, "db": m.service("db")} {
			hosts := m.ok("cat", "/etc/hosts")
			for _, name := range []string{"db", "database", "web", "chief", "localhost"} {
				if !strings.Contains(strings.ReplaceAll(hosts, "\t", " ")+" ", " "+name) {
					t.Errorf("%s: /etc/hosts does not know %s: %q", who, name, hosts)
				}
			}
		}
		if _, ok := sandbox.As[sandbox.Group](m.Sandbox); !ok {
			t.Fatal("no Group")
		}
		g, _ := sandbox.As[sandbox.Group](m.Sandbox)
		if _, ok := g.Service("no-such"); ok {
			t.Error("a service that nobody asked for")
		}
		// Files, commands and logs of its own; the network is shared.
		s := m.service("db")
		s.ok("write", "/tmp/mine", "db")
		if r := m.run("stat", "/tmp/mine"); r.Code == 0 {
			t.Error("main sees a file of its service")
		}
		if got := s.ok("dial", "4332", "from db"); got != "FROM DB\n" {
			t.Errorf("from service to service: got %q", got)
		}
		if got := b.logs(s.Sandbox); got != "listening\n" {
			t.Errorf("the service's logs: %q", got)
		}
		if got, err := sandbox.ReadFile(b.ctx(), s, "/tmp/mine", 100); err != nil || string(got) != "db" {
			t.Errorf("Get from a service: %q, %v", got, err)
		}
		if err := s.Put(b.ctx(), "/tmp/put", fstest.MapFS{"f": {Data: []byte("x"), Mode: 0o644}}); err != nil {
			t.Errorf("Put into a service: %v", err)
		}
		// They outlive main's commands, and end with the machine.
		if err := m.KillAll(b.ctx()); err != nil {
			t.Error(err)
		}
		if got := m.ok("dial", "4331", "still"); got != "STILL\n" {
			t.Errorf("after KillAll: got %q", got)
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close of a service: %v", err)
		}
		if got := m.ok("dial", "4331", "still"); got != "STILL\n" {
			t.Errorf("a service was closed apart: got %q", got)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		_, err := s.try(b.ctx(), s.command("echo"))
		wantIs(t, "Exec in a service of a closed machine", err, sandbox.ErrGone)
	}},
	{name: "services/order", need: services, run: func(t *testing.T, b *box) {
		// Each begins when those before it are healthy, and main's ENTRYPOINT when all are: each
		// writes into the same file.
		spec := with(b.helped(), "append", "/shared/order", "main ", ",", "listen", "4333")
		spec.Volumes = []sandbox.Volume{{Name: "v", Path: "/shared"}}
		spec.Health = check("dial", "4333", "x")
		one := b.side("sleep", "300ms", ",", "append", "/shared/order", "one ", ",", "lock", "/tmp/ready", ",", "sleep",
			"1000h")
		two := b.side("append", "/shared/order", "two ", ",", "lock", "/tmp/ready", ",", "sleep", "1000h")
		one.Volumes, two.Volumes = spec.Volumes, spec.Volumes
		one.Health, two.Health = check("held", "/tmp/ready"), check("held", "/tmp/ready")
		two.After = []string{"one"}
		spec.Services = map[string]sandbox.Spec{"one": one, "two": two}
		m := b.openSpec(spec)
		if got := m.ok("cat", "/shared/order"); got != "one two main " {
			t.Errorf("order: %q", got)
		}
	}},
	{name: "services/fail", need: services, run: func(t *testing.T, b *box) {
		// One that ends before it is healthy is an error that shows its last words, and nothing is
		// left.
		spec := b.helped()
		bad := b.side("echo", "cannot find my data", ",", "exit", "7")
		bad.Health = check("dial", "4334", "x")
		good := b.side("listen", "4335")
		spec.Services = map[string]sandbox.Spec{"bad": bad, "good": good}
		if e := b.fails(spec, "bad", "cannot find my data", "7"); !e.BadRequest || !e.Permanent {
			t.Errorf("a service that ends: %+v", e)
		}
		// So is what can never start.
		for what, change := range map[string]func(s *sandbox.Spec){
			"cycle":   func(s *sandbox.Spec) { s.After = []string{"one"} },
			"unknown": func(s *sandbox.Spec) { s.After = []string{"unknown"} },
			"a b":     func(s *sandbox.Spec) { s.Aliases = []string{"a b"} },
			"taken":   func(s *sandbox.Spec) { s.Aliases = []string{"chief"} },
		} {
			one := b.side("listen", "4336")
			change(&one)
			spec.Services, spec.Aliases = map[string]sandbox.Spec{"one": one}, []string{"chief"}
			b.fails(spec, what)
		}
	}},
	{name: "services/find", need: func(c Claims) bool { return c.Services && c.Find }, run: func(t *testing.T, b *box) {
		spec := with(b.helped(), "echo", "main", ",", "listen", "4338")
		side := b.side("listen", "4337")
		side.Health = check("dial", "4337", "x")
		spec.Services = map[string]sandbox.Spec{"db": side}
		spec.Health = check("dial", "4338", "x")
		m := b.openSpec(spec)
		m.service("db").ok("write", "/tmp/mine", "db")
		sb, err := b.another().Find(b.ctx(), m.ID())
		if err != nil {
			t.Fatalf("Find: %v", err)
		}
		again := machine{b: b, Sandbox: sb, helper: m.helper}
		if got := again.service("db").ok("cat", "/tmp/mine"); got != "db" {
			t.Errorf("the service's file: %q", got)
		}
		for _, port := range []string{"4337", "4338"} {
			if got := again.ok("dial", port, "still"); got != "STILL\n" {
				t.Errorf("port %s: got %q", port, got)
			}
		}
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	}},
	{name: "volumes/shared", need: services, run: func(t *testing.T, b *box) {
		spec := b.helped()
		spec.Volumes = []sandbox.Volume{{Name: "data", Path: "/data"}, {Name: "mine", Path: "/mine"}}
		side := b.side("sleep", "1000h")
		side.Volumes = []sandbox.Volume{{Name: "data", Path: "/srv/data", ReadOnly: true}}
		spec.Services = map[string]sandbox.Spec{"db": side}
		m := b.openSpec(spec)
		m.ok("write", "/data/f", "shared", ",", "write", "/mine/f", "mine")
		s := m.service("db")
		if got := s.ok("cat", "/srv/data/f"); got != "shared" {
			t.Errorf("the service reads %q", got)
		}
		if r := s.run("write", "/srv/data/g", "x"); r.Code == 0 {
			t.Error("the service wrote to a volume that it may only read")
		}
		if r := s.run("stat", "/mine"); r.Code == 0 {
			t.Error("the service sees a volume that is not its own")
		}
		if got := b.get(m, "/data/f")["f"].Data; got != "shared" {
			t.Errorf("Get of a volume's file: %q", got)
		}
		// A volume of the same name in another session is another volume.
		if r := b.openSpec(spec).run("stat", "/data/f"); r.Code == 0 {
			t.Error("a volume is shared by two sessions")
		}
		spec.Volumes = []sandbox.Volume{{Name: "/etc", Path: "/data"}}
		b.fails(spec, "/etc")
	}},
}

// side is a service that runs the helper.
func (b *box) side(args ...string) sandbox.Spec {
	return with(sandbox.Spec{Image: b.helped().Image, Memory: b.spec.Memory, Pids: b.spec.Pids}, args...)
}

// fails wants Create to fail, with all of the words in its message or its detail.
func (b *box) fails(spec sandbox.Spec, words ...string) *sandbox.Error {
	b.t.Helper()
	sb, err := b.driver.Create(b.ctx(), spec)
	if err == nil {
		b.made = append(b.made, sb)
		sb.Close()
		b.t.Errorf("Create: no error, want one with %q", words)
		return &sandbox.Error{}
	}
	var text bytes.Buffer
	fmt.Fprintln(&text, err)
	e := &sandbox.Error{}
	if errors.As(err, &e) {
		fmt.Fprintln(&text, e.Detail)
	}
	for _, w := range words {
		if !strings.Contains(text.String(), w) {
			b.t.Errorf("Create: %s; want %q in it", &text, w)
		}
	}
	return e
}
