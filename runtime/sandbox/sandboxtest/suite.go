// Package sandboxtest is the contract of package sandbox as a test: what its comments promise, any
// driver must keep.
//
//	func TestLocal(t *testing.T) {
//		sandboxtest.Run(t, sandboxtest.Suite{
//			Driver: func(t *testing.T) sandbox.Driver { … },
//			Claims: sandboxtest.Claims{Pids: true, Disk: true},
//		})
//	}
//
// The suite needs no shell and no program inside: it puts one static helper (package helper, verbs
// in package verb) into each sandbox. A driver whose machines cannot run a Linux program registers
// the verbs itself and says so with Suite.Helper.
//
// Nothing here depends on something being fast: what has to happen gets a minute, and what must not
// happen is looked at once everything that could cause it is over.
package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Suite is one driver to be tested.
type Suite struct {
	// Driver makes the driver; it is called once a test. It skips t, with the reason, where the
	// driver cannot work.
	Driver func(t *testing.T) sandbox.Driver
	// Another makes a driver like one of another process of ours: Find and Reap are asked of it.
	// Nil: the same driver.
	Another func(t *testing.T) sandbox.Driver
	// Spec is what every test starts from: the image, limits that the driver wants, a user.
	Spec sandbox.Spec
	// Helper is the helper's name where it is inside already. "": the suite builds it and puts it
	// in.
	Helper string
	Claims Claims
	// Image returns an image that has these programs, by their paths without the leading slash, and
	// nothing else; for drivers that claim Services or Shells.
	Image func(t *testing.T, programs map[string][]byte) sandbox.Image
	// Bash is the image with bash and the usual programs, for drivers that claim Shells.
	Bash sandbox.Image
	// Secrets are texts of the host that must not be found inside, beside those that the suite
	// plants itself.
	Secrets []string
	// Left lists what the driver has left on the host now (processes, mounts, folders). Nil: nobody
	// looks.
	Left func(t *testing.T) []string
	// Skip names tests that this driver cannot pass yet, with the reason.
	Skip map[string]string
	// Table is a Markdown file whose table of what drivers can do has Column as a column. The suite
	// compares it with what it has shown. "": there is none.
	Table, Column string
}

// Claims are what not every driver can do everywhere. What is not claimed is not tested; what is
// claimed must hold.
type Claims struct {
	Memory  bool // Spec.Memory kills with OOM
	Disk    bool // Spec.Disk ends in "no space left"
	Pids    bool // Spec.Pids ends in "resource temporarily unavailable"
	Users   bool // commands may run as other users, by number
	Find    bool // a sandbox can be taken up again
	NoNet   bool // Network none: nothing but loopback
	Usage   bool // Exit.CPU and Exit.MaxRSS are known
	FileOps bool // it is a Filer
	Shells  bool // the sandboxes are [sandbox.Sheller]s and [sandbox.Terminaler]s
	Copies  bool // it is a [sandbox.Copier]
	// Services, and with them ENTRYPOINT, health checks, logs and volumes.
	Services bool
}

type test struct {
	name string
	run  func(t *testing.T, b *box)
	need func(c Claims) bool // nil: always
	spec func(s *sandbox.Spec)
}

// canary is in the host's environment while the suite runs.
const canary = "EVALRUN_SANDBOXTEST_CANARY"

// Run runs the whole suite, as subtests by name.
func Run(t *testing.T, s Suite) {
	t.Helper()
	run(t, s, tests())
}

func run(t *testing.T, s Suite, list []test) {
	t.Helper()
	secret := fmt.Sprintf("canary-%d-%d", os.Getpid(), time.Now().UnixNano())
	// Like no other, so that suites which run beside this one are left alone.
	name := fmt.Sprintf("suite-%d-%d", os.Getpid(), time.Now().UnixNano())
	t.Setenv(canary, secret)
	s.Secrets = append(slices.Clone(s.Secrets), secret)
	if wd, err := os.Getwd(); err == nil {
		s.Secrets = append(s.Secrets, wd)
	}
	var helper []byte
	if s.Helper == "" {
		helper = program(t, "helper")
	}
	results := map[string]shown{}
	for _, tt := range list {
		t.Run(tt.name, func(t *testing.T) {
			var said shown
			defer func() {
				said.passed = !t.Failed() && !t.Skipped()
				results[tt.name] = said
			}()
			if why, ok := s.Skip[tt.name]; ok {
				said.skipped = why
				t.Skip(why)
			}
			if tt.need != nil && !tt.need(s.Claims) {
				said.skipped = notClaimed
				t.Skip(notClaimed)
			}
			var before []string
			if s.Left != nil {
				before = s.Left(t)
			}
			b := &box{t: t, suite: s, driver: s.Driver(t), binary: helper, spec: s.Spec}
			b.spec.Owner = owner(name)
			if tt.spec != nil {
				tt.spec(&b.spec)
			}
			t.Cleanup(func() { b.nothingLeft(t, before) })
			tt.run(t, b)
		})
	}
	if s.Table != "" {
		t.Run("table", func(t *testing.T) { table(t, s, results) })
	}
}

func tests() []test {
	return slices.Concat(execTests, outputTests, killTests, fileTests, lifeTests, limitTests, abilityTests,
		fileOpTests, shellTests, terminalTests, groupTests)
}

// owner is somebody who is alive: this process.
func owner(run string) sandbox.Owner {
	o := sandbox.Self()
	o.Run, o.Trial, o.Attempt, o.Role = run, "t1", 1, "agent"
	return o
}

// A box is the fixture of one test: its driver, and the sandboxes that it made.
type box struct {
	t      *testing.T
	suite  Suite
	driver sandbox.Driver
	binary []byte
	spec   sandbox.Spec
	made   []sandbox.Sandbox
}

// patience is how long something may take that has to happen.
const patience = 5 * time.Minute

func (b *box) ctx() context.Context {
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	b.t.Cleanup(cancel)
	return ctx
}

const helperDir = "/opt/sandboxtest"

// open makes a sandbox with the helper in it; it is closed at the test's end.
func (b *box) open() machine {
	b.t.Helper()
	return b.openSpec(b.spec)
}

func (b *box) openSpec(spec sandbox.Spec) machine {
	b.t.Helper()
	sb, err := b.driver.Create(b.ctx(), spec)
	if err != nil {
		b.t.Fatalf("Create: %v", err)
	}
	b.made = append(b.made, sb)
	b.t.Cleanup(func() {
		if err := sb.Close(); err != nil {
			b.t.Errorf("Close: %v", err)
		}
	})
	m := machine{b: b, Sandbox: sb, helper: b.suite.Helper}
	if b.binary != nil {
		m.helper = helperDir + "/helper"
		fsys := fstest.MapFS{"helper": {Data: b.binary, Mode: 0o755}}
		if err := sb.Put(b.ctx(), helperDir, fsys); err != nil {
			b.t.Fatalf("Put of the helper: %v", err)
		}
	}
	return m
}

func (b *box) another() sandbox.Driver {
	if b.suite.Another != nil {
		return b.suite.Another(b.t)
	}
	return b.driver
}

// nothingLeft runs after every sandbox of the test was closed.
func (b *box) nothingLeft(t *testing.T, before []string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, sb := range b.made {
		if err := sb.Close(); err != nil {
			t.Errorf("Close once more: %v", err)
		}
	}
	others := func(o sandbox.Owner) bool { return !strings.HasPrefix(o.Run, b.spec.Owner.Run) }
	if n, err := b.driver.Reap(ctx, others); n != 0 || err != nil {
		t.Errorf("after the test Reap removed %d sandboxes, error %v; want none, all of them were closed", n, err)
	}
	if b.suite.Left == nil {
		return
	}
	// What is torn down in the background gets its time.
	var left []string
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		left = slices.DeleteFunc(b.suite.Left(t), func(s string) bool { return slices.Contains(before, s) })
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	if len(left) > 0 {
		t.Errorf("left on the host: %q", left)
	}
}

// A machine is a sandbox with the helper in it.
type machine struct {
	b *box
	sandbox.Sandbox
	helper string
}

// result of a command, with all that it printed.
type result struct {
	sandbox.Exit
	Out, Err string
}

// command is the helper with args.
func (m machine) command(args ...string) sandbox.Command {
	return sandbox.Command{Args: append([]string{m.helper}, args...)}
}

// run runs the helper and wants no error of ours.
func (m machine) run(args ...string) result {
	m.b.t.Helper()
	return m.exec(m.command(args...))
}

func (m machine) exec(c sandbox.Command) result {
	m.b.t.Helper()
	r, err := m.try(m.b.ctx(), c)
	if err != nil {
		m.b.t.Fatalf("Exec %.200q: %v", c.Args[1:], err)
	}
	return r
}

func (m machine) try(ctx context.Context, c sandbox.Command) (result, error) {
	var out, errs bytes.Buffer
	if c.Stdout == nil {
		c.Stdout = &out
	}
	if c.Stderr == nil {
		c.Stderr = &errs
	}
	exit, err := m.Exec(ctx, c)
	return result{exit, out.String(), errs.String()}, err
}

// ok runs the helper, wants code 0, and returns what it printed on stdout.
func (m machine) ok(args ...string) string {
	m.b.t.Helper()
	r := m.run(args...)
	if r.Code != 0 {
		m.b.t.Fatalf("helper %.200q: code %d, signal %q, stderr %q", args, r.Code, r.Signal, r.Err)
	}
	return r.Out
}

// start starts a process that stays behind and holds file.
func (m machine) start(how, keep, file string, verbs ...string) {
	m.b.t.Helper()
	m.ok(append([]string{"start", how, keep, file}, verbs...)...)
}

// alive reports whether the process that holds file still runs. Locks end with their process, so
// this is definite.
func (m machine) alive(file string) bool {
	m.b.t.Helper()
	r := m.run("held", file)
	if r.Code != 0 && r.Code != 1 {
		m.b.t.Fatalf("helper held %s: code %d, stderr %q", file, r.Code, r.Err)
	}
	return r.Code == 0
}

// waitHeld waits until a process holds file.
func (m machine) waitHeld(file string) {
	m.b.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if m.run("held", file).Code == 0 {
			return
		}
	}
	m.b.t.Fatalf("no process came to hold %s", file)
}

// pattern is what the verb "spam" prints.
func pattern(n int64) string {
	b, _ := io.ReadAll(patternReader(n))
	return string(b)
}

func wantIs(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: error %v, want one that is %q", what, err, target)
	}
}

// short makes texts fit for a message.
func short(s string) string {
	if len(s) > 200 {
		return fmt.Sprintf("%q … %q (%d bytes)", s[:90], s[len(s)-90:], len(s))
	}
	return fmt.Sprintf("%q", s)
}
