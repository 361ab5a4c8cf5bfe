package harness_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/blob"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/pool"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// An imaged is a toy benchmark whose tasks each have an image, and a service with its own image.
func imaged(tasks int) *toy {
	names := []string{"good", "broken", "flaky", "slow"}
	return &toy{tasks: tasks, needs: func(i int) benchmarks.Needs {
		main := sandbox.Spec{Image: sandbox.Image{Dockerfile: "FROM " + names[i], Name: names[i]},
			Network: sandbox.Network{Mode: "allow", Allow: []string{"example.org"}}}
		main.Services = map[string]sandbox.Spec{"db": {Image: sandbox.Image{Ref: "db:1"}}}
		return benchmarks.Needs{Agent: []sandbox.Spec{main},
			Grader: []sandbox.Spec{{Image: sandbox.Image{Ref: "grader:1"}}}}
	}}
}

func TestImages(t *testing.T) {
	b := newBed(t, imaged(3), says("right", 1), says("right", 1))
	p := pool.New(pool.Options{}, fake.New(fake.Options{}))
	defer p.Close()
	var mu sync.Mutex
	asked := map[string]int{}
	b.cfg.Workers, b.cfg.Provider, b.cfg.Driver = 1, p, "fake"
	b.cfg.DriverOf = func(s sandbox.Spec) string {
		return map[bool]string{true: "other", false: "fake"}[s.Image.Ref == "grader:1"]
	}
	b.cfg.Retry.Pause = 1
	store, err := blob.Open(t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.cfg.Blobs = store
	b.cfg.Images = &harness.Images{Timeout: time.Hour, Get: func(_ context.Context, img sandbox.Image) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if n := p.Stats().Leases; n != 0 {
			t.Errorf("an image is made ready while %d leases are held", n)
		}
		if img.Timeout != time.Hour {
			t.Errorf("image %s has %v", img.Name, img.Timeout)
		}
		name := img.Ref + img.Name
		asked[name]++
		switch {
		case name == "broken":
			return "", &sandbox.Error{Op: "prepare", Err: errors.New("building broken: exit status 1"),
				Detail: "step 1\n" + strings.Repeat("x\n", 50) + "no rule to make target", Log: "step 0\nstep 1\n",
				Permanent: true}
		case name == "good":
			b.cfg.Images.Built("sha256:good", []byte("step 1 of good\n"))
		case name == "flaky" && asked[name] == 1:
			return "", &sandbox.Error{Op: "prepare", Err: errors.New("connection reset")}
		}
		return "sha256:" + name, nil
	}}
	sum := b.run(t, t.Context())
	// Flaky fails once; a failed build says nothing about an arm.
	if len(sum.Paused) > 0 && sum.Paused[0] != "arm0" {
		t.Errorf("paused: %v", sum.Paused)
	}
	if asked["broken"] != 1 {
		t.Errorf("the broken image was built %d times", asked["broken"])
	}
	vs := b.verdicts(t)
	for _, arm := range []string{"arm0", "arm1"} {
		v := vs[arm+"/t1"]
		if v.Status != record.Infra || v.Error == nil || v.Error.Phase != "image" || v.Error.Class != "image" {
			t.Fatalf("a broken build: %+v", v)
		}
		if !strings.HasPrefix(v.Error.Text, "building broken: ") ||
			!strings.HasSuffix(v.Error.Text, "no rule to make target") || len(v.Error.Text) > 3<<10 {
			t.Errorf("its text: %s", v.Error.Text)
		}
		r, err := store.Open(t.Context(), v.Error.Detail)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r)
		r.Close()
		if string(text) != "step 0\nstep 1\n" {
			t.Errorf("its output: %s", text)
		}
	}
	v := vs["arm1/t0"]
	if v.Status != record.Scored || v.Driver != "fake+other" || v.Network != "allow example.org" || v.Times.Image <= 0 {
		t.Errorf("a good one: %+v", v)
	}
	if len(v.Images) == 0 || v.Images[0].Log == "" {
		t.Fatalf("images: %+v", v.Images)
	}
	if r, err := store.Open(t.Context(), v.Images[0].Log); err != nil {
		t.Error(err)
	} else {
		text, _ := io.ReadAll(r)
		r.Close()
		if string(text) != "step 1 of good\n" {
			t.Errorf("the output of a good build: %s", text)
		}
	}
	want := []record.Image{{Role: "agent", Name: "good", Digest: "sha256:good", Log: v.Images[0].Log},
		{Role: "agent", Name: "db:1", Digest: "sha256:db:1"},
		{Role: "grader", Name: "grader:1", Digest: "sha256:grader:1"}}
	if len(v.Images) != len(want) || v.Images[0] != want[0] || v.Images[1] != want[1] || v.Images[2] != want[2] {
		t.Errorf("images: %+v", v.Images)
	}
	if d := b.cfg.Images.Digests(); d["good"] != "sha256:good" || d["broken"] != "" {
		t.Errorf("digests: %v", d)
	}
}

// A build that copies a missing file is its task's fault.
func TestImageOfATaskAtFault(t *testing.T) {
	b := newBed(t, imaged(1), says("right", 1))
	p := pool.New(pool.Options{}, fake.New(fake.Options{}))
	defer p.Close()
	b.cfg.Provider = p
	b.cfg.Images = &harness.Images{Get: func(context.Context, sandbox.Image) (string, error) {
		return "", &sandbox.Error{Op: "prepare", Err: errors.New("building good: COPY failed"), Permanent: true,
			BadRequest: true}
	}}
	b.run(t, t.Context())
	for k, v := range b.verdicts(t) {
		if v.Status != record.Infra || v.Error == nil || v.Error.Phase != "image" || v.Error.Class != "task" {
			t.Errorf("%s: %+v", k, v.Error)
		}
	}
}

// A permanent failure is forgotten after a while. A failure caused by an ended context is not
// remembered.
func TestImagesForget(t *testing.T) {
	n := 0
	m := &harness.Images{Remember: time.Nanosecond, Get: func(ctx context.Context, _ sandbox.Image) (string, error) {
		n++
		return "", &sandbox.Error{Err: context.Cause(ctx), Permanent: true}
	}}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, ctx := range []context.Context{gone, t.Context(), t.Context()} {
		m.Ready(ctx, "t", sandbox.Image{Ref: "a"})
		time.Sleep(time.Microsecond)
	}
	if n != 3 {
		t.Errorf("asked %d times", n)
	}
}

// A warded is a sandbox whose network policy has refused more at each query.
type warded struct {
	sandbox.Sandbox
	n int64
}

func (w *warded) Unwrap() sandbox.Sandbox { return w.Sandbox }
func (w *warded) Refused() []sandbox.Refusal {
	w.n++
	return []sandbox.Refusal{{Host: "evil.example", Port: 443, Why: "not on the list", Count: w.n},
		{Host: "10.0.0.1", Why: "a private address", Count: 1}}
}
func (w *warded) Rewire(context.Context, sandbox.Network) error { return nil }
func (w *warded) Transparent() (bool, string)                   { return false, "no such device" }

// A browsing is an episode whose pages are denied access to a host.
type browsing struct{ benchmarks.Episode }

func (browsing) Refused() []sandbox.Refusal {
	return []sandbox.Refusal{{Host: "ads.example", Port: 443, Why: "not on the list", Count: 2}}
}

func TestRefusedToABrowser(t *testing.T) {
	b := newBed(t, &toy{tasks: 1}, says("right", 1))
	b.toy.wrap = func(ep benchmarks.Episode) benchmarks.Episode { return browsing{ep} }
	b.run(t, t.Context())
	if v := b.verdicts(t)["arm0/t0"]; v.Refused != 2 {
		t.Errorf("%d refused", v.Refused)
	}
	for _, e := range b.j.Entries() {
		if e.Kind != record.KindEvent {
			continue
		}
		ev, err := event.Default.Decode(e.Data)
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := ev.Body.(event.NetworkRefused); ok &&
			(n.Role != "browser" || n.Host != "ads.example" || n.Count != 2) {
			t.Errorf("%+v", n)
		}
	}
}

type warder struct{ *fake.Driver }

func (d warder) Create(ctx context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	sb, err := d.Driver.Create(ctx, s)
	return &warded{Sandbox: sb}, err
}

func TestRefused(t *testing.T) {
	b := newBed(t, &toy{tasks: 1, needs: func(int) benchmarks.Needs {
		return benchmarks.Needs{Agent: []sandbox.Spec{{Rewire: true}}}
	}}, says("right", 1))
	p := pool.New(pool.Options{}, warder{fake.New(fake.Options{})})
	defer p.Close()
	b.cfg.Provider, b.cfg.Driver = p, "fake"
	b.toy.opens = func(h benchmarks.Host) error {
		sb, err := h.Sandbox(t.Context(), sandbox.Spec{Rewire: true})
		if err != nil {
			return err
		}
		r, ok := sandbox.As[sandbox.Rewirer](sb)
		if !ok {
			t.Fatal("a machine that can be rewired cannot")
		}
		return r.Rewire(t.Context(), sandbox.Network{Mode: "public"})
	}
	b.run(t, t.Context())
	v := b.verdicts(t)["arm0/t0"]
	if v.Refused < 3 || v.Network != "none, then public (through the proxy only)" {
		t.Errorf("%d refused, network %q", v.Refused, v.Network)
	}
	var sum int64
	hosts := map[string]int{}
	for _, e := range b.j.Entries() {
		if e.Kind != record.KindEvent {
			continue
		}
		ev, err := event.Default.Decode(e.Data)
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := ev.Body.(event.NetworkRefused); ok {
			sum += n.Count
			hosts[n.Host]++
			if n.Role != "agent" {
				t.Errorf("%+v", n)
			}
		}
	}
	if sum != v.Refused || hosts["10.0.0.1"] != 1 || hosts["evil.example"] < 2 {
		t.Errorf("notes of %d, verdict says %d: %v", sum, v.Refused, hosts)
	}
	b.checkLog(t)
}

// A slow takes some time to create a sandbox.
type slow struct{ *fake.Driver }

func (d slow) Create(ctx context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	time.Sleep(200 * time.Millisecond)
	return d.Driver.Create(ctx, s)
}

func TestMachinesAreTimedOnce(t *testing.T) {
	b := newBed(t, &toy{tasks: 1, needs: func(int) benchmarks.Needs {
		return benchmarks.Needs{Agent: []sandbox.Spec{{}}}
	}}, says("right", 1))
	p := pool.New(pool.Options{}, slow{fake.New(fake.Options{})})
	defer p.Close()
	b.cfg.Provider, b.cfg.Driver = p, "fake"
	b.toy.opens = func(h benchmarks.Host) error {
		_, err := h.Sandbox(t.Context(), sandbox.Spec{})
		return err
	}
	b.run(t, t.Context())
	if v := b.verdicts(t)["arm0/t0"]; v.Times.Start < 200*time.Millisecond || v.Times.Start > v.Times.Wall {
		t.Errorf("starting took %s of %s", v.Times.Start, v.Times.Wall)
	}
}

// Grader sandboxes that are opened one after the other need capacity for the largest only.
func TestGraderRoom(t *testing.T) {
	for _, inTurn := range []bool{true, false} {
		b := newBed(t, &toy{tasks: 1, needs: func(int) benchmarks.Needs {
			return benchmarks.Needs{Agent: []sandbox.Spec{{Memory: 1 << 20}},
				Grader: []sandbox.Spec{{Memory: 2 << 20}, {Memory: 3 << 20}}, GradeLive: true, InTurn: inTurn}
		}}, says("right", 1))
		p := pool.New(pool.Options{Memory: 4 << 20}, fake.New(fake.Options{}))
		b.cfg.Provider, b.cfg.Driver = p, "fake"
		b.run(t, t.Context())
		want := record.Scored
		if !inTurn { // they could never fit together
			want = record.Skipped
		}
		if v := b.verdicts(t)["arm0/t0"]; v.Status != want {
			t.Errorf("in turn %v: %+v", inTurn, v)
		}
		p.Close()
	}
}
