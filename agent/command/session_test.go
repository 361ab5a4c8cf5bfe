package command

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// box is a sandbox without any isolation: absolute paths are below its folder, which commands know
// as $ROOT. It ends a process group, not a tree; the real drivers' suite is about that.
type box struct {
	root string
	pids chan int
}

func newBox(t *testing.T) *box { return &box{root: t.TempDir(), pids: make(chan int, 100)} }

func (b *box) ID() string                    { return "box" }
func (b *box) KillAll(context.Context) error { return nil }

func (b *box) Close() error {
	for {
		select {
		case pid := <-b.pids:
			syscall.Kill(-pid, syscall.SIGKILL)
		default:
			return nil
		}
	}
}

func (b *box) Exec(ctx context.Context, c sandbox.Command) (sandbox.Exit, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.Timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, errTimedOut)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir = filepath.Join(b.root, c.Dir)
	if err := os.MkdirAll(cmd.Dir, 0o755); err != nil {
		return sandbox.Exit{}, err
	}
	cmd.Env = []string{"ROOT=" + b.root}
	for k, v := range c.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	cmd.Stdout, cmd.Stderr = c.Stdout, c.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return sandbox.Exit{}, err
	}
	if err := cmd.Start(); err != nil {
		return sandbox.Exit{Code: 127}, nil
	}
	b.pids <- cmd.Process.Pid
	go func() {
		if c.Stdin != nil {
			io.Copy(in, c.Stdin)
		}
		in.Close()
	}()
	err = cmd.Wait()
	switch {
	case context.Cause(ctx) == errTimedOut:
		return sandbox.Exit{Code: -1, Signal: "SIGKILL", TimedOut: true}, nil
	case ctx.Err() != nil:
		return sandbox.Exit{}, context.Cause(ctx)
	}
	var e *exec.ExitError
	if err != nil && !errors.As(err, &e) && !errors.Is(err, exec.ErrWaitDelay) {
		return sandbox.Exit{}, &sandbox.Error{Op: "exec", Err: err}
	}
	exit := sandbox.Exit{Code: cmd.ProcessState.ExitCode()}
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		exit.Signal = map[syscall.Signal]string{syscall.SIGKILL: "SIGKILL", syscall.SIGSEGV: "SIGSEGV"}[ws.Signal()]
	}
	return exit, nil
}

var errTimedOut = errors.New("timed out")

func (b *box) Put(ctx context.Context, dir string, src fs.FS) error {
	return fs.WalkDir(src, ".", func(name string, d fs.DirEntry, err error) error {
		to := filepath.Join(b.root, dir, name)
		if err != nil || d.IsDir() {
			return errors.Join(err, os.MkdirAll(to, 0o755))
		}
		data, err := fs.ReadFile(src, name)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o755)
	})
}

func (b *box) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	fi, err := os.Lstat(filepath.Join(b.root, name))
	if err != nil {
		return nil, err
	}
	h, err := tar.FileInfoHeader(fi, "")
	if err != nil {
		return nil, err
	}
	if err := w.WriteHeader(h); err != nil {
		return nil, err
	}
	if fi.Mode().IsRegular() {
		data, err := os.ReadFile(filepath.Join(b.root, name))
		if err != nil {
			return nil, err
		}
		w.Write(data)
	}
	w.Close()
	return io.NopCloser(&buf), nil
}
