package docker

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// benchImage has /bin/true and /bin/cat.
const benchImage = "evalrun-test/bookworm:1"

func benchDriver(b *testing.B) *Driver {
	d := require(b)
	if _, err := api(b, d).ImageInspect(context.Background(), benchImage); err != nil {
		b.Skip(err)
	}
	return d
}

func benchSpec() sandbox.Spec {
	return sandbox.Spec{Owner: sandbox.Self(), Image: sandbox.Image{Ref: benchImage}, Memory: 512 << 20, Pids: 256}
}

// atOnce runs f b.N times, n at once, and reports our own processor time for each.
func atOnce(b *testing.B, n int, f func() error) {
	var before, after syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	work := make(chan struct{})
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for range work {
				if err := f(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	b.ResetTimer()
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	wg.Wait()
	b.StopTimer()
	syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	used := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	b.ReportMetric(float64(used.Microseconds())/1000/float64(b.N), "ms-cpu/op")
}

var levels = []int{1, 4, 8}

// BenchmarkTrial is a sandbox with one command, and its end.
func BenchmarkTrial(b *testing.B) {
	d := benchDriver(b)
	for _, n := range levels {
		b.Run(fmt.Sprintf("at-once=%d", n), func(b *testing.B) {
			atOnce(b, n, func() error {
				sb, err := d.Create(context.Background(), benchSpec())
				if err != nil {
					return err
				}
				if x, err := sb.Exec(context.Background(), sandbox.Command{Args: []string{"/bin/true"}}); err != nil ||
					x.Code != 0 {
					return fmt.Errorf("%+v %w", x, err)
				}
				return sb.Close()
			})
		})
	}
}

// BenchmarkFloor is the same by bare calls of the engine's API.
func BenchmarkFloor(b *testing.B) {
	d := benchDriver(b)
	cli := api(b, d)
	for _, n := range levels {
		b.Run(fmt.Sprintf("at-once=%d", n), func(b *testing.B) {
			atOnce(b, n, func() error {
				id, err := bareCreate(cli)
				if err != nil {
					return err
				}
				if err := bareExec(cli, id, "/bin/true"); err != nil {
					return err
				}
				_, err = cli.ContainerRemove(context.Background(), id,
					client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
				return err
			})
		})
	}
}

// bareCreate makes and starts a container that sleeps.
func bareCreate(cli *client.Client) (string, error) {
	ctx := context.Background()
	pids := int64(256)
	c, err := cli.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config: &container.Config{Image: benchImage, Entrypoint: []string{"/bin/sleep", "1000"}},
		HostConfig: &container.HostConfig{
			NetworkMode: "none", LogConfig: container.LogConfig{Type: "none"},
			Resources: container.Resources{Memory: 512 << 20, PidsLimit: &pids},
		},
	})
	if err != nil {
		return "", err
	}
	_, err = cli.ContainerStart(ctx, c.ID, client.ContainerStartOptions{})
	return c.ID, err
}

// bareExec runs a command to its end.
func bareExec(cli *client.Client, id string, args ...string) error {
	ctx := context.Background()
	e, err := cli.ExecCreate(ctx, id, client.ExecCreateOptions{Cmd: args, AttachStdout: true})
	if err != nil {
		return err
	}
	h, err := cli.ExecAttach(ctx, e.ID, client.ExecAttachOptions{})
	if err != nil {
		return err
	}
	io.Copy(io.Discard, h.Reader)
	h.Close()
	x, err := cli.ExecInspect(ctx, e.ID, client.ExecInspectOptions{})
	if err == nil && x.ExitCode != 0 {
		err = fmt.Errorf("exit code %d", x.ExitCode)
	}
	return err
}

// BenchmarkExec is a command in a container that runs.
func BenchmarkExec(b *testing.B) {
	d := benchDriver(b)
	b.Run("ours", func(b *testing.B) {
		sb := open(b, d, benchSpec())
		for b.Loop() {
			if x, err := sb.Exec(context.Background(), sandbox.Command{Args: []string{"/bin/true"}}); err != nil ||
				x.Code != 0 {
				b.Fatalf("%+v %v", x, err)
			}
		}
	})
	b.Run("twenty", func(b *testing.B) {
		sb := open(b, d, benchSpec())
		for b.Loop() {
			for range 20 {
				if x, err := sb.Exec(context.Background(), sandbox.Command{Args: []string{"/bin/true"}}); err != nil ||
					x.Code != 0 {
					b.Fatalf("%+v %v", x, err)
				}
			}
		}
	})
	b.Run("bare", func(b *testing.B) {
		cli := api(b, d)
		id, err := bareCreate(cli)
		if err != nil {
			b.Fatal(err)
		}
		defer cli.ContainerRemove(context.Background(), id, client.ContainerRemoveOptions{Force: true})
		for b.Loop() {
			if err := bareExec(cli, id, "/bin/true"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkShell is a command of a persistent shell.
func BenchmarkShell(b *testing.B) {
	d := benchDriver(b)
	sb := open(b, d, benchSpec())
	sh, ok := sandbox.As[sandbox.Sheller](sb)
	if !ok {
		b.Fatal("no shells")
	}
	for b.Loop() {
		x, err := sh.Shell(context.Background(), sandbox.ShellCall{Text: "true", Limit: 30_000, Timeout: time.Minute})
		if err != nil || x.End != sandbox.ShellCompleted || x.Code != 0 {
			b.Fatalf("%+v %v", x, err)
		}
	}
}

// BenchmarkFile is 1 MB in, and out again.
func BenchmarkFile(b *testing.B) {
	d := benchDriver(b)
	text := strings.Repeat("0123456789abcdef", 1<<16)
	src := fstest.MapFS{"file": {Data: []byte(text), Mode: 0o644}}
	sb := open(b, d, benchSpec())
	b.Run("in", func(b *testing.B) {
		for b.Loop() {
			if err := sb.Put(context.Background(), "/data", src); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("out", func(b *testing.B) {
		for b.Loop() {
			if got, err := sandbox.ReadFile(context.Background(), sb, "/data/file", 2<<20); err != nil ||
				len(got) != len(text) {
				b.Fatal(len(got), err)
			}
		}
	})
}

// BenchmarkMemory holds many sandboxes at once and reports what each takes of our memory.
func BenchmarkMemory(b *testing.B) {
	d := benchDriver(b)
	const many = 40
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var wg sync.WaitGroup
		boxes := make([]sandbox.Sandbox, many)
		for i := range boxes {
			wg.Go(func() { boxes[i] = open(b, d, benchSpec()) })
		}
		wg.Wait()
		runtime.GC()
		runtime.ReadMemStats(&after)
		ours := float64(after.HeapInuse+after.StackInuse) - float64(before.HeapInuse+before.StackInuse)
		b.ReportMetric(ours/(1<<20)/many, "MB-ours/box")
		for _, sb := range boxes {
			wg.Go(func() { sb.Close() })
		}
		wg.Wait()
	}
}

// open makes a sandbox that ends with the test.
func open(t testing.TB, d *Driver, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	if spec.Owner.PID == 0 {
		spec.Owner = sandbox.Self()
	}
	sb, err := d.Create(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	})
	return sb
}
