package docker

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"

	"github.com/evalrun/evalrun/runtime/executor"
	"golang.org/x/sys/unix"
)

// toolDir and toolPath are where the executor is in a container.
const (
	toolDir  = "/.evalrun"
	toolPath = toolDir + "/evalrun-init"
)

// useSelf makes tests use the test binary even if there is a slim build.
var useSelf = os.Getenv("EVALRUN_EXECUTOR") == "self"

// A tool installs the executor's program in containers. If the engine sees our files, it is mounted
// from a directory of ours; otherwise (an engine on another machine or in another container) it is
// copied. The first container shows which of the two works.
type tool struct {
	mu     sync.Mutex
	copied bool // a mount does not work
	sure   bool // a mount has worked
	byArch map[string]*program
}

// A program is the executor for one architecture.
type program struct {
	data []byte
	path string // where it was installed; "": not installed, so it is copied
}

// get returns the program for an architecture, installed for mounting if that may work.
func (t *tool) get(arch string) (*program, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.byArch[arch]
	if p == nil {
		get := executor.Program
		if useSelf && arch == runtime.GOARCH {
			get = func(string) ([]byte, error) { return executor.Self() }
		}
		b, err := get(arch)
		if err != nil {
			return nil, err
		}
		p = &program{data: b}
		if t.byArch == nil {
			t.byArch = map[string]*program{}
		}
		t.byArch[arch] = p
	}
	if !t.copied && !isFile(p.path) { // not installed yet, or removed since
		var err error
		if p.path, err = install(p.data); err != nil {
			t.copied = true
		}
	}
	return p, nil
}

// mounts reports whether containers mount the program.
func (t *tool) mounts() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.copied
}

// worked and failed record the result of a container with a mount. failed reports whether to try
// again with a copy.
func (t *tool) worked() {
	t.mu.Lock()
	t.sure = true
	t.mu.Unlock()
}

func (t *tool) failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sure {
		return false
	}
	t.copied = true
	return true
}

// install writes the program where an engine on this machine can mount it from, under a name that
// depends on its content, and returns the path. The directory's name is visible inside a sandbox,
// so it identifies nobody. It is not below /run, which is mounted noexec.
func install(data []byte) (string, error) {
	dirs := []string{"/var/lib/evalrun/bin"}
	if uid := os.Geteuid(); uid != 0 {
		dirs = nil
		dirs = append(dirs, "/var/tmp/evalrun-"+strconv.Itoa(uid)+"/bin")
	}
	dirs = append(dirs, filepath.Join(os.TempDir(), "evalrun-"+strconv.Itoa(os.Geteuid()), "bin"))
	var err error
	for _, dir := range dirs {
		var p string
		if p, err = installIn(dir, data); err == nil {
			return p, nil
		}
	}
	return "", err
}

func installIn(dir string, data []byte) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if err := private(dir); err != nil {
		return "", err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "", err
	}
	if fs.Flags&unix.ST_NOEXEC != 0 {
		return "", errors.New(dir + ": nothing can be executed there")
	}
	sum := sha256.Sum256(data)
	name := filepath.Join(dir, "evalrun-init-"+hex.EncodeToString(sum[:8]))
	if b, err := os.ReadFile(name); err == nil && bytes.Equal(b, data) {
		return name, nil
	}
	f, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o555), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	return name, err
}

// private checks that no other user could have written to a directory, which may be in a shared
// place.
func private(dir string) error {
	for _, d := range []string{dir, filepath.Dir(dir)} {
		var st unix.Stat_t
		if err := unix.Lstat(d, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
			return fmt.Errorf("%s may have been written by others: remove it", d)
		}
	}
	return nil
}

// archive returns the program as an archive for a container's root.
func (p *program) archive() io.Reader {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: toolDir[1:] + "/", Mode: 0o755})
	w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: toolPath[1:], Mode: 0o555, Size: int64(len(p.data))})
	w.Write(p.data)
	w.Close()
	return &b
}
