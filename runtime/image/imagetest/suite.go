package imagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Suite tests a store over an engine: that the engine does what [image.Engine] promises, seen
// from where it matters.
type Suite struct {
	Engine image.Engine
	Base   string // an image that is there
	// Options of the stores; each gets a folder of its own.
	Options image.Options
}

// Run runs the suite. Images that it makes are removed again.
func Run(t *testing.T, s Suite) {
	t.Run("inspect", s.inspect)
	t.Run("build", s.build)
	t.Run("once", s.once)
	t.Run("fails", s.fails)
	t.Run("hangs", s.hangs)
	t.Run("left", s.left)
	t.Run("base", s.base)
	t.Run("missing", s.missing)
	t.Run("context", s.context)
	t.Run("prune", s.prune)
}

// store opens a store, and checks at the end that nothing of it is left.
func (s Suite) store(t *testing.T) *image.Store {
	o := s.Options
	o.Dir = t.TempDir()
	st := image.New(s.Engine, o)
	t.Cleanup(func() {
		ctx := context.Background()
		for _, k := range must(st.List(ctx))(t) {
			if strings.HasSuffix(k.Name, t.Name()) {
				if err := s.Engine.Remove(ctx, k.Ref); err != nil && !errors.Is(err, image.ErrMissing) {
					t.Error(err)
				}
			}
		}
	})
	return st
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// image is one that no other test makes.
func (s Suite) image(t *testing.T, steps string, files fstest.MapFS) sandbox.Image {
	if files == nil {
		files = fstest.MapFS{}
	}
	files["unique"] = &fstest.MapFile{Data: fmt.Appendf(nil, "%s %d", t.Name(), time.Now().UnixNano()), Mode: 0o644}
	return sandbox.Image{Name: t.Name(), Dockerfile: "FROM " + s.Base + "\nCOPY unique /unique\n" + steps,
		Context: files}
}

func (s Suite) inspect(t *testing.T) {
	info := must(s.Engine.Inspect(t.Context(), s.Base))(t)
	if info.ID == "" || info.Digest == "" || info.OS != "linux" || info.Arch == "" || info.Ref != s.Base {
		t.Errorf("%+v", info)
	}
	if _, err := s.Engine.Inspect(t.Context(), "evalrun-test/nothing:0"); !errors.Is(err, image.ErrMissing) {
		t.Errorf("a missing image: %v", err)
	}
	about := must(s.Engine.About(t.Context()))(t)
	if about.ID == "" || about.Version == "" || about.OS != "linux" || about.Arch != info.Arch {
		t.Errorf("%+v", about)
	}
}

func (s Suite) build(t *testing.T) {
	st := s.store(t)
	img := s.image(t, "ENV A=b\n", nil)
	info := must(st.Prepare(t.Context(), img))(t)
	if !strings.HasPrefix(info.Ref, "evalrun/image:") || info.ID == "" || info.Labels["evalrun.image"] == "" {
		t.Errorf("%+v", info)
	}
	again := must(st.Prepare(t.Context(), img))(t)
	if again.ID != info.ID {
		t.Errorf("the same recipe made %s, then %s", info.ID, again.ID)
	}
	other := img
	other.Args = map[string]string{"X": "1"}
	if i := must(st.Prepare(t.Context(), other))(t); i.Ref == info.Ref {
		t.Error("another argument made no other image")
	}
	list := must(st.List(t.Context()))(t)
	i := slices.IndexFunc(list, func(k image.Kept) bool { return k.Ref == info.Ref })
	if i < 0 || list[i].Name != img.Name || list[i].Kind != "built" || list[i].InUse ||
		time.Since(list[i].Used) > time.Minute {
		t.Errorf("listed as %+v", list)
	}
}

func (s Suite) once(t *testing.T) {
	var mu sync.Mutex
	builds := 0
	s.Options.Done = func(o image.Outcome) {
		mu.Lock()
		defer mu.Unlock()
		builds++
	}
	a := s.store(t)
	o := s.Options
	o.Dir = t.TempDir() // of another user: no lock in common, but the engine's name
	img := s.image(t, "RUN sleep 1\n", nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := a.Prepare(t.Context(), img); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if builds != 1 {
		t.Errorf("8 who asked at once made %d builds", builds)
	}
	if _, err := image.New(s.Engine, o).Prepare(t.Context(), img); err != nil || builds != 1 {
		t.Errorf("another evalrun, later: %v, %d builds", err, builds)
	}
}

func (s Suite) fails(t *testing.T) {
	var out image.Outcome
	s.Options.Done = func(o image.Outcome) { out = o }
	st := s.store(t)
	_, err := st.Prepare(t.Context(), s.image(t, "RUN echo what went wrong; exit 7\nRUN exit 7\n", nil))
	var e *sandbox.Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), t.Name()) || !strings.Contains(err.Error(), "7") {
		t.Fatalf("%v", err)
	}
	if !strings.Contains(e.Detail, "what went wrong") || !strings.Contains(string(out.Log), "what went wrong") {
		t.Errorf("output is missing: %q, %q", e.Detail, out.Log)
	}
}

func (s Suite) hangs(t *testing.T) {
	st := s.store(t)
	img := s.image(t, "RUN sleep 300\n", nil)
	img.Timeout = 2 * time.Second
	began := time.Now()
	_, err := st.Prepare(t.Context(), img)
	if err == nil || !strings.Contains(err.Error(), "longer than its time limit, 2s") {
		t.Errorf("%v", err)
	}
	if d := time.Since(began); d > 60*time.Second {
		t.Errorf("it took %s", d)
	}
}

// left: who waits may leave, the others get their image; when all have left the build ends.
func (s Suite) left(t *testing.T) {
	st := s.store(t)
	img := s.image(t, "RUN sleep 3\n", nil)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := st.Prepare(ctx, img)
		got <- err
	}()
	stays := make(chan error, 1)
	go func() {
		_, err := st.Prepare(t.Context(), img)
		stays <- err
	}()
	time.Sleep(500 * time.Millisecond)
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
	}
	if err := <-stays; err != nil {
		t.Errorf("who stayed got %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	img = s.image(t, "RUN sleep 300\n", nil)
	go func() {
		_, err := st.Prepare(ctx, img)
		got <- err
	}()
	time.Sleep(500 * time.Millisecond)
	cancel()
	select {
	case err := <-got:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the last who left got %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the last left, and the build goes on")
	}
}

func (s Suite) base(t *testing.T) {
	st := s.store(t)
	img := s.image(t, "", nil)
	img.Dockerfile = strings.Replace(img.Dockerfile, s.Base, "localhost:1/evalrun-test/nothing:0", 1)
	_, err := st.Prepare(t.Context(), img)
	if err == nil || !strings.Contains(err.Error(), "its base localhost:1/evalrun-test/nothing:0 (Dockerfile line 1)") {
		t.Errorf("%v", err)
	}
}

func (s Suite) missing(t *testing.T) {
	st := s.store(t)
	for _, ref := range []string{"localhost:1/evalrun-test/nothing:0", "sha256:" + strings.Repeat("0", 64),
		"UPPER case", ""} {
		_, err := st.Prepare(t.Context(), sandbox.Image{Ref: ref})
		if !errors.As(err, new(*sandbox.Error)) || !strings.Contains(err.Error(), ref) {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

func (s Suite) context(t *testing.T) {
	st := s.store(t)
	_, err := st.Prepare(t.Context(), s.image(t, "COPY missing /x\n", nil))
	if err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("%v", err)
	}
}

func (s Suite) prune(t *testing.T) {
	st := s.store(t)
	// Another program that needs room on this engine may remove an image that nobody uses, so what a
	// dry run removes is told by its doing so each time.
	var gone error
	for range 5 {
		a := must(st.Prepare(t.Context(), s.image(t, "ENV A=1\n", nil)))(t)
		b := must(st.Prepare(t.Context(), s.image(t, "ENV A=2\n", nil)))(t)
		dry := must(st.Prune(t.Context(), image.Pruning{Older: time.Nanosecond, Dry: true}))(t)
		gone = nil
		for _, x := range []image.Info{a, b} {
			if _, err := s.Engine.Inspect(t.Context(), x.Ref); err != nil {
				gone = err
			} else if !slices.ContainsFunc(dry.Removed, func(k image.Kept) bool { return k.Ref == x.Ref }) {
				t.Errorf("would not remove %s: %+v", x.Ref, dry)
			}
		}
		if gone == nil {
			gone = s.Engine.Remove(t.Context(), a.Ref)
		}
		if err := s.Engine.Remove(t.Context(), a.Ref); !errors.Is(err, image.ErrMissing) {
			t.Errorf("removing what is not there: %v", err)
		}
		if !errors.Is(gone, image.ErrMissing) {
			break
		}
	}
	if gone != nil {
		t.Errorf("after a dry run: %v", gone)
	}
}
