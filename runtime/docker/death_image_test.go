package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/moby/moby/client"
)

// died checks what an image's preparation says whose engine has died: it is nobody's fault that
// lasts.
func died(t *testing.T, what string, done <-chan error) {
	t.Helper()
	away(t, what, soon(t, what, done))
}

// away checks an error that says that the engine is away.
func away(t *testing.T, what string, err error) {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Permanent || !errors.Is(err, image.ErrAway) ||
		!strings.Contains(err.Error(), "the docker engine at unix://") {
		t.Errorf("%s: %v (permanent %v)", what, err, e != nil && e.Permanent)
	}
	if strings.Contains(err.Error(), "registry cannot be reached") {
		t.Errorf("%s: %v, which speaks of a registry", what, err)
	}
}

// clean waits until reaping has left nothing of builds and pulls.
func (m *daemon) clean(t *testing.T, d *Driver, mark string) {
	t.Helper()
	left := ""
	defer func() {
		if t.Failed() {
			t.Log("left: ", left)
		}
	}()
	until(t, "nothing of "+mark+" is left", func() bool {
		if _, err := d.Reap(t.Context(), func(sandbox.Owner) bool { return true }); err != nil {
			t.Fatal(err)
		}
		left = fmt.Sprint(processes(mark), " processes, ", scraps(t, d.engine, mark))
		return left == "0 processes, []"
	})
	if cs, err := d.engine.Containers(t.Context()); err != nil || len(cs) != 0 {
		t.Errorf("left are containers %+v, %v", cs, err)
	}
}

// An engine that dies during a build, at once or in order, is told as what it is; back again, it
// has nothing left of it and builds.
func TestEngineDiesInBuild(t *testing.T) {
	m := startDaemon(t)
	for _, c := range []struct {
		name    string
		classic bool
		end     func()
	}{{"buildkit, killed", false, m.kill}, {"buildkit, stopped", false, m.end}, {"classic, killed", true, m.kill},
		{"classic, stopped", true, m.end}} {
		t.Run(c.name, func(t *testing.T) {
			state := t.TempDir()
			os.Chmod(state, 0o700)
			d := New(Options{Host: m.host(), State: state, Images: image.Options{Dir: t.TempDir(), Classic: c.classic}})
			defer d.Close()
			base := helped(t, d).Image.Ref
			seconds := strconv.FormatInt(100_000+time.Now().UnixNano()%1_000_000, 10)
			text := "FROM " + base + "\nENV mark=" + seconds + "\n"
			hang := sandbox.Image{Name: "hangs", Network: "none",
				Dockerfile: text + `RUN ["` + helperPath + `", "sleep", "` + seconds + `s"]` + "\n"}
			done := make(chan error, 1)
			go func() {
				_, err := d.Prepare(context.Background(), hang)
				done <- err
			}()
			until(t, "the build runs", func() bool {
				select {
				case err := <-done:
					t.Fatalf("the build: %v", err)
				default:
				}
				return processes("sleep "+seconds) > 0
			})
			// an engine that dies before it has written down that a container runs leaves its
			// processes to themselves
			if c.classic {
				until(t, "the engine has noted that it runs", func() bool {
					cs, err := api(t, d).ContainerList(t.Context(), client.ContainerListOptions{})
					return err == nil && len(cs.Items) > 0
				})
			}
			c.end()
			if err := soon(t, "the build", done); c.name == "classic, stopped" && strings.Contains(err.Error(),
				"returned a non-zero code") {
				// An engine that stops ends its containers first, and may still tell how they ended.
				var e *sandbox.Error
				if !errors.As(err, &e) || e.Permanent {
					t.Errorf("the build: %v is permanent", err)
				}
			} else {
				away(t, "the build", err)
			}
			m.start(t)
			if !c.classic {
				// What a step of BuildKit runs outlives the engine, and no word of its API reaches
				// it.
				endProcesses(t, "sleep "+seconds+"s")
			}
			m.clean(t, d, seconds)
			quick := sandbox.Image{Name: "quick", Network: "none",
				Dockerfile: text + `RUN ["` + helperPath + `", "echo", "hello"]` + "\n"}
			if _, err := d.Prepare(t.Context(), quick); err != nil {
				t.Errorf("with the engine back: %v", err)
			}
		})
	}
}

// endProcesses kills what the test has started inside an engine's build.
func endProcesses(t *testing.T, text string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		if !strings.HasSuffix(strings.TrimRight(strings.ReplaceAll(string(b), "\x00", " "), " "), text) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			t.Logf("process %d outlives the engine", pid)
			unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// listen opens a listener on an address of the network that the daemon lives in.
func (m *daemon) listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	type result struct {
		l   net.Listener
		err error
	}
	out := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		l, err := func() (net.Listener, error) {
			f, err := os.Open("/proc/" + strconv.Itoa(m.cmd.Process.Pid) + "/ns/net")
			if err != nil {
				return nil, err
			}
			defer f.Close()
			if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
				return nil, err
			}
			s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return nil, err
			}
			defer unix.Close(s)
			lo, err := unix.NewIfreq("lo")
			if err != nil {
				return nil, err
			}
			lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
			if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo); err != nil {
				return nil, err
			}
			return net.Listen("tcp", addr)
		}()
		out <- result{l, err}
	}()
	r := <-out
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { r.l.Close() })
	return r.l
}

// An engine that dies during a pull likewise.
func TestEngineDiesInPull(t *testing.T) {
	e := imageEngine(t)
	r := startRegistry(t)
	ref := r.push(t, e, "dies")
	m := startDaemon(t)
	for _, c := range []struct {
		name string
		end  func()
	}{{"killed", m.kill}, {"stopped", m.end}} {
		t.Run(c.name, func(t *testing.T) {
			state := t.TempDir()
			os.Chmod(state, 0o700)
			d := New(Options{Host: m.host(), State: state,
				Images: image.Options{Dir: t.TempDir(), Config: t.TempDir()}})
			defer d.Close()
			r.mode.Store("slow")
			go http.Serve(m.listen(t, r.host), r.srv.Config.Handler)
			done := make(chan error, 1)
			go func() {
				_, err := d.Prepare(context.Background(), sandbox.Image{Ref: ref})
				done <- err
			}()
			sent := r.slow.Load()
			until(t, "layers are under way", func() bool {
				select {
				case err := <-done:
					t.Fatalf("the pull: %v", err)
				default:
				}
				return r.slow.Load() > sent+5
			})
			c.end()
			died(t, "the pull", done)
			m.start(t)
			m.clean(t, d, ref)
			if _, err := d.engine.Inspect(t.Context(), ref); !errors.Is(err, image.ErrMissing) {
				t.Errorf("half an image: %v", err)
			}
			r.mode.Store("")
			go http.Serve(m.listen(t, r.host), r.srv.Config.Handler)
			if _, err := d.Prepare(t.Context(), sandbox.Image{Ref: ref}); err != nil {
				t.Errorf("with the engine back: %v", err)
			}
			if err := d.engine.Remove(t.Context(), ref); err != nil {
				t.Error(err)
			}
		})
	}
}
