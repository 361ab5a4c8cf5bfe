package docker

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// smallEngine is an engine of the test's own whose disk has so many bytes.
func smallEngine(t *testing.T, bytes string) *engine {
	t.Helper()
	imageEngine(t)
	if os.Getuid() != 0 {
		t.Skip("needs root, for an engine of its own")
	}
	dir, err := os.MkdirTemp("/tmp", "evalrun-d-") // a socket's name is short
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	os.Mkdir(data, 0o700)
	if err := unix.Mount("tmpfs", data, "tmpfs", 0, "size="+bytes); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	cmd := exec.Command("dockerd", "--data-root", data, "--exec-root", filepath.Join(dir, "exec"), "-H",
		"unix://"+socket, "--pidfile", filepath.Join(dir, "pid"),
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--storage-driver=vfs",
		"--log-level=error")
	// Without a bridge of its own an engine removes docker0, so it must not see the one of this
	// machine's engine.
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		t.Skip("dockerd is not installed: ", err)
	}
	e := newEngine("unix://" + socket)
	t.Cleanup(func() {
		e.close()
		cmd.Process.Signal(os.Interrupt)
		end := make(chan struct{})
		go func() { cmd.Wait(); close(end) }()
		select {
		case <-end:
		case <-time.After(30 * time.Second):
			cmd.Process.Kill()
			<-end
		}
		unix.Unmount(data, unix.MNT_DETACH)
		os.RemoveAll(dir)
	})
	until(t, "the small engine answers", func() bool {
		_, err := e.About(t.Context())
		return err == nil
	})
	return e
}

func taken(t *testing.T, e *engine) int64 {
	about, err := e.About(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(about.Dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize
}

func large(n int, mark string) sandbox.Image {
	data := make([]byte, n)
	copy(data, mark)
	return sandbox.Image{Name: mark, Dockerfile: "FROM scratch\nCOPY f /f\n", Context: fstest.MapFS{"f": {Data: data}}}
}

// A build that finds the disk full says so and leaves nothing; what had been made before still
// works, and pruning makes room.
func TestImageDiskFull(t *testing.T) {
	e := smallEngine(t, "64m")
	for _, classic := range []bool{true, false} {
		s := image.New(e, image.Options{Dir: t.TempDir(), Classic: classic, Budget: -1})
		if _, err := s.Prepare(t.Context(), large(1<<20, "small")); err != nil {
			t.Fatal(err)
		}
		before := taken(t, e)
		_, err := s.Prepare(t.Context(), large(100<<20, "large"))
		if !errors.Is(err, image.ErrDiskFull) || !strings.Contains(err.Error(), "evalrun images prune") ||
			!strings.Contains(err.Error(), "the image of large") {
			t.Errorf("classic %v: %v", classic, err)
		}
		until(t, "the disk is as it was", func() bool { return taken(t, e) < before+2<<20 })
		list, err := e.List(t.Context())
		if err != nil || len(list) != 1 {
			t.Errorf("classic %v: left are %+v, %v", classic, list, err)
		}
		if cs, err := e.Containers(t.Context()); err != nil || len(cs) > 0 {
			t.Errorf("classic %v: left are containers %+v, %v", classic, cs, err)
		}
		out, err := s.Prune(t.Context(), image.Pruning{All: true, Cache: true})
		if err != nil || len(out.Removed) != 1 || out.Freed < 1<<20 {
			t.Errorf("classic %v: %+v, %v", classic, out, err)
		}
		if list, _ := e.List(t.Context()); len(list) != 0 {
			t.Errorf("after pruning: %+v", list)
		}
	}
}

// Images stay within the budget, the least recently used go, and what a container uses stays.
func TestImageBudget(t *testing.T) {
	e := smallEngine(t, "128m")
	s := image.New(e, image.Options{Dir: t.TempDir(), Classic: true, Budget: 25 << 20, Grace: time.Millisecond})
	var first image.Info
	for i, name := range []string{"one", "two", "three", "four"} {
		info, err := s.Prepare(t.Context(), large(8<<20, name))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = info
			cli, err := e.api(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := cli.ContainerCreate(t.Context(),
				client.ContainerCreateOptions{
					Config: &container.Config{Image: info.ID, Cmd: []string{"/f"}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	list, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, k := range list {
		names = append(names, k.Name)
	}
	if got := strings.Join(names, " "); got != "one three four" && got != "one two three four" ||
		!strings.HasSuffix(got, "three four") {
		t.Errorf("left are %s", got)
	}
	if _, err := e.Inspect(t.Context(), first.ID); err != nil {
		t.Errorf("the image of a container: %v", err)
	}
	out, err := s.Prune(t.Context(), image.Pruning{Budget: 1})
	if err != nil || len(out.Left) != 1 || out.Left[0].Ref != first.Ref || out.Left[0].Reason == "" {
		t.Errorf("%+v, %v", out, err)
	}
	t.Logf("taken: %d", taken(t, e))
}
