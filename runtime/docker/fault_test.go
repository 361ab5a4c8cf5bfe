package docker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// hang starts a command that ignores every signal, and returns how its Exec ends.
func hang(t testing.TB, sb sandbox.Sandbox) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		x, err := sb.Exec(context.Background(),
			sandbox.Command{Args: []string{helperPath, "ignore", ",", "hold", "/tmp/hang"}})
		if err == nil {
			err = fmt.Errorf("ended: %+v", x)
		}
		done <- err
	}()
	for {
		if _, x := run(t, sb, "held", "/tmp/hang"); x.Code == 0 {
			return done
		}
	}
}

func soon(t testing.TB, what string, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("%s: the call hangs", what)
		return nil
	}
}

// What others do to a container: every call ends soon, says that the sandbox is gone and how, and
// Close leaves nothing.
func TestKilledFromOutside(t *testing.T) {
	d := require(t)
	for _, tt := range []struct {
		name string
		do   func(cli *client.Client, id string) error
		want string
	}{
		{"killed", func(cli *client.Client, id string) error {
			_, err := cli.ContainerKill(context.Background(), id, client.ContainerKillOptions{})
			return err
		}, "killed from outside"},
		{"stopped", func(cli *client.Client, id string) error {
			now := 0
			_, err := cli.ContainerStop(context.Background(), id, client.ContainerStopOptions{Timeout: &now})
			return err
		}, "killed from outside"},
		{"removed", func(cli *client.Client, id string) error {
			_, err := cli.ContainerRemove(context.Background(), id, client.ContainerRemoveOptions{Force: true})
			return err
		}, ""},
		{"restarted", func(cli *client.Client, id string) error {
			now := 0
			_, err := cli.ContainerRestart(context.Background(), id, client.ContainerRestartOptions{Timeout: &now})
			return err
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sb := open(t, d, helped(t, d))
			done := hang(t, sb)
			if err := tt.do(api(t, d), sb.ID()); err != nil {
				t.Fatal(err)
			}
			err := soon(t, "Exec", done)
			var e *sandbox.Error
			if !errors.Is(err, sandbox.ErrGone) || !errors.As(err, &e) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Exec: %v", err)
			}
			if _, err := sb.Get(context.Background(), "/tmp"); !errors.Is(err, sandbox.ErrGone) {
				t.Errorf("Get afterwards: %v", err)
			}
			if err := sb.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			if got := mine(t, d); len(got) != 0 {
				t.Errorf("left: %q", got)
			}
		})
	}
}

// A container that its memory limit has ended as a whole, process 1 too, is the end of the command
// and not our fault.
func TestOutOfMemoryAsAWhole(t *testing.T) {
	d := require(t)
	spec := helped(t, d)
	spec.Memory = 64 << 20
	spec.Tmpfs = map[string]int64{"/mem": 1 << 30} // counted, and held by no process
	sb := open(t, d, spec)
	var x sandbox.Exit
	var err error
	for range 3 {
		x, err = sb.Exec(context.Background(),
			sandbox.Command{Args: []string{helperPath, "fill", "/mem/much", "500000000"}, Timeout: time.Minute})
		if err != nil || x.OOM {
			break
		}
	}
	if err != nil || !x.OOM || x.Code == 0 {
		t.Errorf("%+v, %v", x, err)
	}
}

// The other machine's own limits, all at once: a bomb, an ocean of output, and a command that
// nothing but its end stops.
func TestHostileCommands(t *testing.T) {
	d := require(t)
	sb := open(t, d, helped(t, d))
	run(t, sb, "bomb", "1000")
	if err := sb.KillAll(context.Background()); err != nil {
		t.Fatalf("KillAll after a bomb: %v", err)
	}
	x, err := sb.Exec(context.Background(),
		sandbox.Command{Args: []string{helperPath, "spam", "1000000000"}, Limit: 1 << 20, Stdout: counter{}})
	if err != nil || x.Out != 1000000000 || x.Code != 0 {
		t.Errorf("1 GB of output: %+v, %v", x, err)
	}
	x, err = sb.Exec(context.Background(),
		sandbox.Command{Args: []string{helperPath, "ignore", ",", "start", "double", "keep", "/tmp/d", "ignore", ",",
			"sleep", "1000h"}, Timeout: time.Second})
	if err != nil || !x.TimedOut {
		t.Errorf("a deaf command: %+v, %v", x, err)
	}
	if got := first(run(t, sb, "echo", "fine")); got != "fine\n" {
		t.Errorf("got %q", got)
	}
}

type counter struct{}

func (counter) Write(p []byte) (int, error) { return len(p), nil }

// An executor that cannot even begin says why.
func TestExecutorCannotRun(t *testing.T) {
	d := require(t)
	spec := helped(t, d)
	h, _ := helper()
	d.tool.mu.Lock()
	d.tool.byArch, d.tool.copied = map[string]*program{runtime.GOARCH: {data: h}}, true // some other program
	d.tool.mu.Unlock()
	_, err := d.Create(context.Background(), spec)
	var e *sandbox.Error
	if !errors.As(err, &e) || errors.Is(err, sandbox.ErrGone) || !strings.Contains(err.Error(), "ended at once") {
		t.Errorf("error %v", err)
	}
	if got := mine(t, d); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

// Volumes that an image asks for go with the container.
func TestImageVolumes(t *testing.T) {
	d := require(t)
	sb := open(t, d, helped(t, d, "VOLUME /data"))
	cli := api(t, d)
	c, err := inspect(context.Background(), cli, sb.ID())
	if err != nil {
		t.Fatal(err)
	}
	name := ""
	for _, m := range c.Mounts {
		if m.Destination == "/data" {
			name = m.Name
		}
	}
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	if _, err := cli.VolumeInspect(context.Background(), name, client.VolumeInspectOptions{}); name == "" ||
		!missing(err) {
		t.Errorf("volume %q: %v, want it gone", name, err)
	}
}

// An image that is not there, and a program that cannot run, are errors that leave nothing.
func TestCannotCreate(t *testing.T) {
	d := require(t)
	ok := helped(t, d)
	for _, tt := range []struct {
		name   string
		change func(s *sandbox.Spec)
		want   string
	}{
		{"no image", func(s *sandbox.Spec) { s.Image = sandbox.Image{} }, "without an image"},
		{"user", func(s *sandbox.Spec) { s.User = "nobody-knows" }, ""},
		{"volume", func(s *sandbox.Spec) { s.Volumes = []sandbox.Volume{{Name: "v", Path: "relative"}} },
			"no place for it"},
		{"tmpfs", func(s *sandbox.Spec) { s.Tmpfs = map[string]int64{"/": 1} }, "no place for it"},
		{"memory", func(s *sandbox.Spec) { s.Memory = 1000 }, "6 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := ok
			tt.change(&spec)
			sb, err := d.Create(context.Background(), spec)
			if err == nil {
				if tt.want == "" { // told when a command wants it
					_, err = sb.Exec(context.Background(), sandbox.Command{Args: []string{helperPath, "echo"}})
				}
				sb.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
			if got := mine(t, d); len(got) != 0 {
				t.Errorf("left: %q", got)
			}
		})
	}
}
