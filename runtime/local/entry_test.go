package local

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// What runs by itself is there when Create returns, healthy where that is asked, and outlives
// KillAll; no sandbox leaves it behind.
func TestEntry(t *testing.T) {
	for _, d := range []*Driver{require(t), NewUnisolated()} {
		t.Run(d.Name(), func(t *testing.T) {
			before := left(t)
			spec := sandbox.Spec{
				Owner: sandbox.Self(), Dir: "/work", Env: map[string]string{"WHO": "me"},
				Entrypoint: []string{"/bin/sh", "-c",
					`echo "$WHO in $(pwd): $0"; sleep 0.2; touch ready; exec sleep 1000`}, Cmd: []string{"well"},
				Health: &sandbox.Health{Test: []string{"CMD-SHELL", "test -e ready"}, Interval: 20 * time.Millisecond,
					Retries: 1000},
			}
			sb, err := d.Create(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			defer sb.Close()
			if _, x := sh(t, sb, "test -e ready"); x.Code != 0 {
				t.Error("not healthy yet")
			}
			l, _ := sandbox.As[sandbox.Logger](sb)
			if got := string(l.Logs()); !strings.HasPrefix(got, "me in ") || !strings.HasSuffix(got, "/work: well\n") {
				t.Errorf("logs: %q", got)
			}
			sh(t, sb, "setsid sleep 1001 >/dev/null 2>&1 &")
			if err := sb.KillAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			if st, err := sb.(sandbox.Stater).Stats(t.Context()); err != nil || *st.Pids != 0 {
				t.Errorf("%+v, %v", st, err)
			}
			c, _ := executor.Of(sb)
			if x, known, err := c.Exit(t.Context(), "no such"); known || err != nil {
				t.Error(x, known, err)
			}
			select {
			case <-sb.(*box).own.Done():
				t.Error("KillAll killed the entry")
			default:
			}
			if err := sb.Close(); err != nil {
				t.Error(err)
			}
			eventually(t, "nothing is left", func() bool { return len(more(t, before)) == 0 })
		})
	}
}

func TestUnhealthy(t *testing.T) {
	d := require(t)
	before := left(t)
	for _, spec := range []sandbox.Spec{
		{Health: &sandbox.Health{Test: []string{"CMD-SHELL", "echo no port; exit 1"}, Interval: time.Millisecond,
			Retries: 2}},
		{Cmd: []string{"/bin/false"}, Health: &sandbox.Health{Test: []string{"CMD-SHELL", "echo no port; exit 1"},
			Interval: time.Hour}},
	} {
		spec.Owner = sandbox.Self()
		_, err := d.Create(context.Background(), spec)
		var u *executor.Unhealthy
		var e *sandbox.Error
		if !errors.As(err, &u) || u.Output != "no port\n" || !errors.As(err, &e) || e.Op != "create" ||
			e.Detail != "no port\n" {
			t.Errorf("%v", err)
		}
	}
	eventually(t, "nothing is left", func() bool { return len(more(t, before)) == 0 })
}
