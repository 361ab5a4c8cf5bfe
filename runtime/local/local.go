package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/isolate"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Defaults of a spec's zero limits.
const (
	DefaultMemory = 2 << 30
	DefaultDisk   = 1 << 30
	DefaultPids   = 512
)

// Hostname inside.
const Hostname = "sandbox"

// A Driver creates local sandboxes. A process may have several.
type Driver struct {
	plain bool // no isolation
	state string
	grace time.Duration // see executor.Options; for tests
	first time.Duration // its Start
	sp    spawners

	mu   sync.Mutex
	live map[string]*box
}

// New returns the driver "local".
func New() *Driver { return &Driver{live: map[string]*box{}, state: stateDir()} }

// Init makes this program its own executor; see [executor.Main].
func Init() { executor.Main() }

func (d *Driver) Name() string {
	if d.plain {
		return "none"
	}
	return "local"
}

// Describe describes how limits are enforced, where that differs from what users expect.
func (d *Driver) Describe() map[string]string {
	if d.plain {
		return map[string]string{"isolation": "none", "memory": "not limited", "pids": "not limited",
			"disk": "not limited", "network": "the host's"}
	}
	m := map[string]string{}
	g := findGroups()
	if !g.has("memory") {
		m["memory"] = "per process" + delegated()
	}
	if !g.has("pids") {
		m["pids"] = "per user"
	}
	if !g.has("cpu") {
		m["cpus"] = "not limited"
	}
	if !manyUsers() {
		m["users"] = "only root: tasks that name another user are skipped"
	}
	if err := noTun(); err != nil {
		m["network"] = "through the proxy only: " + err.Error()
	}
	return m
}

// delegated returns how an ordinary user gets control groups, if systemd can delegate them.
func delegated() string {
	if os.Geteuid() == 0 || !isDir("/run/systemd/system") {
		return ""
	}
	return "; as a whole when evalrun is started by: systemd-run --user --scope -p Delegate=yes evalrun …"
}

// Close ends the spawner at once, and with it every open sandbox. The driver may be used again.
func (d *Driver) Close() error {
	d.mu.Lock()
	var open []*box
	for _, b := range d.live {
		open = append(open, b)
	}
	d.mu.Unlock()
	for _, b := range open {
		b.Close()
	}
	d.sp.mu.Lock()
	if d.sp.idle != nil {
		d.sp.idle.Stop()
	}
	d.sp.mu.Unlock()
	d.sp.closeIdle()
	return nil
}

// Probe starts a sandbox and runs a command in it.
func (d *Driver) Probe(ctx context.Context) error {
	if runtime.GOOS != "linux" {
		return errors.New("it needs Linux")
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	sb, err := d.Create(ctx, sandbox.Spec{})
	if err == nil {
		var x sandbox.Exit
		x, err = sb.Exec(ctx, sandbox.Command{Args: []string{"/bin/true"}})
		if err == nil && x.Code != 0 && x.Code != 127 {
			err = fmt.Errorf("a first command ended with code %d", x.Code)
		}
		sb.Close()
	}
	if err != nil {
		return fmt.Errorf("%w%s", err, hint(err))
	}
	return nil
}

// hint returns what to do about an error, if that is known.
func hint(err error) string {
	read := func(p string) string {
		b, _ := os.ReadFile(p)
		return strings.TrimSpace(string(b))
	}
	if read("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
		return "; allow user namespaces with: sysctl kernel.unprivileged_userns_clone=1"
	}
	if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" && os.Geteuid() != 0 {
		return "; allow user namespaces with: sysctl kernel.apparmor_restrict_unprivileged_userns=0"
	}
	if read("/proc/sys/user/max_user_namespaces") == "0" {
		return "; allow user namespaces with: sysctl user.max_user_namespaces=10000"
	}
	if errors.Is(err, unix.EPERM) || strings.Contains(err.Error(), "not permitted") {
		return "; inside a container, start it with --security-opt seccomp=unconfined --security-opt systempaths=unconfined, or use --sandbox docker; without isolation: --sandbox none"
	}
	return ""
}

// Prepare accepts no image but an unpacked root.
func (d *Driver) Prepare(ctx context.Context, img sandbox.Image) (string, error) {
	_, err := d.image(img)
	return "", err
}

func (d *Driver) image(img sandbox.Image) (dir string, err error) {
	if img.IsZero() {
		return "", nil
	}
	dir, ok := img.Folder()
	if d.plain || !ok || img.Dockerfile != "" || img.Context != nil {
		what := "the image " + img.Ref
		if img.Ref == "" {
			what = "build an image"
		}
		return "", &sandbox.Unsupported{Driver: d.Name(),
			What: what + " (images need the driver docker; an unpacked root is dir:/path)"}
	}
	dir, err = filepath.EvalSymlinks(dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err == nil && !isDir(dir) {
		err = errors.New("not a folder")
	}
	if err != nil {
		return "", fmt.Errorf("image %s: %w", img.Ref, err)
	}
	return dir, nil
}

// check refuses what this driver does not support.
func (d *Driver) check(spec *sandbox.Spec) error {
	no := func(format string, args ...any) error {
		return &sandbox.Unsupported{Driver: d.Name(), What: fmt.Sprintf(format, args...)}
	}
	switch {
	case len(spec.Services) > 0:
		return no("services")
	case len(spec.Volumes) > 0:
		return no("volumes")
	case spec.Setuid:
		return no("setuid programs")
	case spec.Platform != "" && spec.Platform != "linux/"+runtime.GOARCH:
		return no("platform %s on linux/%s", spec.Platform, runtime.GOARCH)
	case d.plain && spec.Trace:
		return no("tracing of commands")
	case d.plain && (len(spec.Tmpfs) > 0 || spec.Shm > 0):
		return no("file systems of its own")
	}
	if oneUser := d.plain || !manyUsers(); oneUser {
		switch spec.User {
		case "", "root", "0", "0:0":
		default:
			return no("user %s: only one user can be mapped into the sandbox by an ordinary user", spec.User)
		}
	}
	return d.checkNetwork(spec)
}

// Defaults fills in a spec's zero limits. Memory has no default if it would be a limit of each
// process.
func Defaults(spec *sandbox.Spec) {
	if spec.Disk == 0 {
		spec.Disk = DefaultDisk
	}
	if spec.Pids == 0 {
		spec.Pids = DefaultPids
	}
	if spec.Memory == 0 && findGroups().has("memory") {
		spec.Memory = DefaultMemory
	}
}

// newID returns a sandbox ID. Its prefix is random and the same for all sandboxes of this process.
func newID() string { return ownPrefix() + random() }

var ownPrefix = sync.OnceValue(random)

func random() string {
	var b [6]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Create starts a sandbox.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := d.check(&spec); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, &sandbox.Error{Op: "create", Err: context.Cause(ctx)}
	}
	dir, err := d.image(spec.Image)
	if err != nil {
		return nil, err
	}
	b := &box{d: d, id: newID(), owner: spec.Owner.OrSelf(), closed: make(chan struct{})}
	b.state = entry{Owner: b.owner, ID: b.id}
	if d.plain {
		err = b.startPlain(ctx, spec)
	} else {
		Defaults(&spec)
		err = b.start(ctx, spec, dir)
	}
	if err == nil {
		err = b.enter(ctx, spec)
	}
	if err != nil {
		b.Close()
		if u := (*sandbox.Unsupported)(nil); errors.As(err, &u) {
			return nil, err
		}
		if e := (*sandbox.Error)(nil); errors.As(err, &e) {
			e.Op, e.ID = "create", ""
			return nil, e
		}
		if errors.Is(err, unix.ENOMEM) {
			err = fmt.Errorf("%w: %w", sandbox.ErrHostMemory, err)
		}
		return nil, &sandbox.Error{Op: "create", Err: err}
	}
	d.mu.Lock()
	d.live[b.id] = b
	d.mu.Unlock()
	return b, nil
}

// layoutOf returns how to set up the root of a sandbox.
func layoutOf(spec *sandbox.Spec, image string) *isolate.Layout {
	l := &isolate.Layout{Hostname: Hostname, Disk: spec.Disk, Image: image}
	if image == "" {
		l.Entries = defaultSkeleton()
	} else {
		l.Entries = common(Hostname)
	}
	if spec.Shm > 0 {
		l.Entries = append(l.Entries[:len(l.Entries):len(l.Entries)],
			isolate.Entry{Kind: isolate.Tmpfs, Path: "/dev/shm", Mode: 0o1777, Size: spec.Shm})
	}
	for p, n := range spec.Tmpfs {
		l.Entries = append(l.Entries[:len(l.Entries):len(l.Entries)],
			isolate.Entry{Kind: isolate.Tmpfs, Path: filepath.Clean("/" + p), Mode: 0o1777, Size: n})
	}
	return l
}

var defaultSkeleton = sync.OnceValue(func() []isolate.Entry { return skeleton(Hostname) })
