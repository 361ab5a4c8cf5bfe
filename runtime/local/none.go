package local

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/isolate"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// NewUnisolated returns the driver "none": plain processes of this machine in a temporary
// directory. It isolates nothing: commands can read and write whatever we can, and use any network.
// It must be asked for by name, and is for trusted tasks.
//
// Absolute paths of Put, Get, Command.Dir and of a command's own program are below the directory;
// other arguments are not changed. Limits are not enforced. The environment is as minimal as in a
// real sandbox, and process trees are killed as thoroughly.
func NewUnisolated() *Driver {
	return &Driver{plain: true, live: map[string]*box{}, state: stateDir()}
}

const tmpPrefix = "evalrun-none-"

func (b *box) startPlain(ctx context.Context, spec sandbox.Spec) (err error) {
	tmp, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return err
	}
	b.tmp = filepath.Join(tmp, tmpPrefix+b.id)
	b.state.Dir = b.tmp
	_ = b.saveState() // only Reap needs it
	if err := os.Mkdir(b.tmp, 0o700); err != nil {
		return err
	}
	for _, d := range []string{"tmp", "root"} {
		if err := os.Mkdir(filepath.Join(b.tmp, d), 0o755); err != nil {
			return err
		}
	}
	if b.sp, err = b.d.sp.get(); err != nil {
		return err
	}
	env := environ(nil)
	for i, kv := range env {
		if kv == "HOME=/root" {
			env[i] = "HOME=" + filepath.Join(b.tmp, "root")
		}
	}
	env = append(env, "TMPDIR="+filepath.Join(b.tmp, "tmp"))
	env = append(env, environ(spec.Env)[len(environ(nil)):]...)
	cfg := executor.Config{
		Root: b.tmp, Env: env, Dir: spec.Dir, User: spec.User, OnlyUID: true, Orphan: spec.Orphan,
		Limits: map[string]uint64{"core": 0},
	}
	return b.connect(ctx, isolate.Start{Name: b.id, Plain: true, Remove: append([]string{b.tmp + "/"}, b.d.stateFiles(b.id)...)}, nil,
		cfg)
}

// removeAll removes a directory, also files that a command has made unwritable.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			unix.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
