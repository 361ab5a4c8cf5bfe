package auto_test

import (
	"context"
	"errors"
	"testing"

	"github.com/evalrun/evalrun/runtime/auto"
	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// named is a driver with another's name, so that two of a kind can be told apart.
type named struct {
	sandbox.Driver
	name   string
	closed *int
}

func (n named) Name() string { return n.name }
func (n named) Close() error { *n.closed++; return nil }

// kinds are one that takes machines without an image, one that takes those with one, and one that
// has to be asked for by name.
func kinds() []sandbox.Kind {
	return []sandbox.Kind{
		{Name: "asked"},
		{Name: "plain", Takes: func(s sandbox.Spec) bool { return !s.Image.NeedsEngine() }},
		{Name: "images", Takes: func(s sandbox.Spec) bool { return s.Image.Ref != "nobody's" }},
	}
}

func TestChoose(t *testing.T) {
	for ref, want := range map[string]string{"": "plain", "dir:/root": "plain", "debian:bookworm": "images",
		"nobody's": ""} {
		got := ""
		if k := auto.Choose(kinds(), sandbox.Spec{Image: sandbox.Image{Ref: ref}}); k != nil {
			got = k.Name
		}
		if got != want {
			t.Errorf("image %q: driver %q, want %q", ref, got, want)
		}
	}
}

func TestDriver(t *testing.T) {
	ctx := t.Context()
	opened, closed := map[string]int{}, 0
	away := errors.New("no engine answers")
	engine := false
	d := auto.New(kinds(), func(_ context.Context, k *sandbox.Kind) (sandbox.Driver, error) {
		if opened[k.Name]++; k.Name == "images" && !engine {
			return nil, away
		}
		return named{fake.New(fake.Options{}), k.Name, &closed}, nil
	})
	plain, err := d.Create(ctx, sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if opened["images"] != 0 {
		t.Error("a driver was opened that no machine wants")
	}

	// While a driver does not work, no machine is known to be gone.
	if sb, err := d.Find(ctx, plain.ID()); err != nil || sb.ID() != plain.ID() {
		t.Errorf("Find: %v, %v", sb, err)
	}
	if _, err := d.Find(ctx, "none"); !errors.Is(err, away) || errors.Is(err, sandbox.ErrGone) {
		t.Errorf("Find: %v", err)
	}
	with := sandbox.Spec{Image: sandbox.Image{Ref: "debian:bookworm"}}
	if _, err := d.Create(ctx, with); !errors.Is(err, away) {
		t.Errorf("Create: %v", err)
	}

	engine = true // asked again
	sb, err := d.Create(ctx, with)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	if _, err := d.Find(ctx, "none"); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("Find: %v", err)
	}
	unsupported := new(sandbox.Unsupported)
	if _, err := d.Create(ctx, sandbox.Spec{Image: sandbox.Image{Ref: "nobody's"}}); !errors.As(err, &unsupported) {
		t.Errorf("Create: %v", err)
	}
	if opened["asked"] != 0 || opened["plain"] != 1 {
		t.Errorf("opened: %v", opened)
	}
	if err := d.Close(); err != nil || closed != 2 {
		t.Errorf("Close: %v, %d drivers closed", err, closed)
	}
}
