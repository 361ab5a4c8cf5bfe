package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	browsers "github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/harness/attach"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/registry"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// States of a finding.
const (
	Good = "ok"
	Fair = "--" // missing, but not always needed
	Bad  = "BAD"
)

// A Finding is the result of one check by doctor.
type Finding struct {
	State string    `json:"state"`
	What  string    `json:"what"`
	Text  string    `json:"text"`
	Hint  string    `json:"hint,omitempty"`
	Facts []Finding `json:"facts,omitempty"` // details
}

// Examine checks what works on this machine.
func Examine(ctx context.Context, kinds *registry.Registry, env func(string) (string, bool),
	envFile string) ([]Finding, error) {
	e, err := config.NewEnv(env, envFile)
	if err != nil {
		return nil, err
	}
	var out []Finding
	add := func(state, what, hint, format string, args ...any) {
		out = append(out, Finding{State: state, What: what, Text: fmt.Sprintf(format, args...), Hint: hint})
	}

	isolated := false
	for _, d := range Drivers(ctx, kinds) {
		switch {
		case d.Kind.Test: // test drivers are not for users
		case d.Err == nil:
			isolated = isolated || !d.Kind.Unisolated && !d.Kind.Test
			f := Finding{State: Good, What: "driver " + d.Kind.Name, Text: d.Kind.Doc}
			for _, k := range slices.Sorted(maps.Keys(d.Limits)) {
				fact := Finding{State: Good, What: k, Text: d.Limits[k]}
				if d.Kind.Images {
					fact = dockerFact(fact)
				}
				f.Facts = append(f.Facts, fact)
			}
			out = append(out, f)
		case d.Kind.Hint != "":
			add(Fair, "driver "+d.Kind.Name, d.Kind.Hint+" ("+d.Kind.Doc+")", "%s", d.OneLine())
		default:
			add(Fair, "driver "+d.Kind.Name, namespaceHint(), "%s", d.OneLine())
		}
	}
	out = append(out, transparent())
	if !isolated {
		add(Bad, "isolation", "fix one of the drivers above; if you trust what the tasks run, use --sandbox none",
			"no driver with isolation works here")
	}
	out = append(out, cgroups())
	out = append(out, python(ctx))
	out = append(out, browser(ctx))

	total, _ := MemoryTotal()
	free, ok := MemoryFree()
	switch {
	case !ok:
		add(Fair, "memory", "set pools.memory", "not known")
	case free < 1<<30:
		add(Fair, "memory", "machines wait for room; lower sandbox.memory or -n", "%s of %s free", size(free),
			size(total))
	default:
		add(Good, "memory", "", "%s of %s free", size(free), size(total))
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(".", &st); err == nil {
		n := int64(st.Bavail) * st.Bsize
		state, hint := Good, ""
		if n < 1<<30 {
			state, hint = Fair, "below a low-water mark no work is handed out; free some space, or name a folder on another disk by -o"
		}
		add(state, "disk", hint, "%s free here", size(n))
	}
	add(Good, "cpus", "", "%d (GOMAXPROCS %d)", runtime.NumCPU(), runtime.GOMAXPROCS(0))
	for _, v := range kinds.Models {
		if to, ok := e.Lookup(v.URLVar); ok {
			add(Good, "requests "+v.Name, "", "go to %s (%s), where a model has no base_url", withoutUser(to), v.URLVar)
		} else {
			add(Good, "requests "+v.Name, "", "go to %s, where a model has no base_url (%s is not set)", v.URL,
				v.URLVar)
		}
		if v.Headers != nil {
			if _, err := v.Headers(e.Lookup); err != nil {
				add(Bad, "headers "+v.Name, "a line for each header, such as X-Team: evals", "%v", err)
			}
		}
		if _, ok := e.Lookup(v.KeyVar); ok {
			add(Good, "key "+v.KeyVar, "", "set")
		} else {
			add(Fair, "key "+v.KeyVar, "export it, or put it into a file that env_file names",
				"not set: models of %s at its own address cannot be called", v.Name)
		}
	}
	return out, nil
}

// withoutUser returns an address without user name and password.
func withoutUser(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an address that cannot be read"
	}
	return u.Redacted()
}

func size(n int64) string { return config.Size(n).Human() }

// python looks for python3 where the local sandbox finds it, too. That sandbox sees only the
// system's own folders.
func python(ctx context.Context) Finding {
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
		path := filepath.Join(dir, "python3")
		if v, err := exec.CommandContext(ctx, path, "--version").Output(); err == nil {
			return Finding{State: Good, What: "python3",
				Text: fmt.Sprintf("%s at %s", strings.TrimSpace(string(v)), path)}
		}
	}
	f := Finding{State: Fair, What: "python3",
		Text: "not found: what is written in Python (humaneval, quickstart) cannot be graded in the local sandbox",
		Hint: "apt-get install python3"}
	if path, err := exec.LookPath("python3"); err == nil {
		f.Text = fmt.Sprintf("only at %s, which the local sandbox does not show", path)
	}
	return f
}

// namespaceHint returns which setting of this machine forbids user namespaces.
func namespaceHint() string {
	read := func(name string) string {
		b, _ := os.ReadFile(name)
		return strings.TrimSpace(string(b))
	}
	switch {
	case read("/proc/sys/user/max_user_namespaces") == "0":
		return "user namespaces are off: sysctl -w user.max_user_namespaces=15000"
	case read("/proc/sys/kernel/unprivileged_userns_clone") == "0":
		return "user namespaces are for root only: sysctl -w kernel.unprivileged_userns_clone=1"
	case read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" && os.Geteuid() != 0:
		return "AppArmor restricts user namespaces: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
	}
	return ""
}

func cgroups() Finding {
	f := Finding{State: Fair, What: "cgroups"}
	b, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	switch {
	case err == nil:
		f.Text = "v2 with " + strings.TrimSpace(string(b))
		f.State = Good
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
			f.Text, f.State = "v1", Good
		} else {
			f.Text, f.Hint = "none", "limits are kept a process, not a machine"
		}
	default:
		f.Text = err.Error()
	}
	if f.State == Good && os.Geteuid() != 0 {
		f.Text += "; as an ordinary user only those that were delegated to you can be used"
	}
	return f
}

// A Swept lists what was removed in one place.
type Swept struct {
	Where, What string
	Removed     int
}

// Sweep removes sandboxes and browsers of dead processes, and temporary files of run folders that
// no process uses.
func Sweep(ctx context.Context, kinds *registry.Registry, runs []string) ([]Swept, error) {
	var out []Swept
	var errs []error
	for _, k := range kinds.Sandboxes {
		d, err := open(&k, sandbox.Setup{})
		if err != nil {
			continue
		}
		// A container engine's sandboxes outlive us; if it is not running, they cannot be removed
		// now.
		if k.Images {
			if err := d.Probe(ctx); err != nil {
				out = append(out, Swept{"driver " + k.Name, "machines: no engine answers", 0})
				continue
			}
		}
		n, err := d.Reap(ctx, Alive)
		if err != nil {
			errs = append(errs, fmt.Errorf("driver %s: %w", k.Name, err))
		}
		out = append(out, Swept{"driver " + k.Name, "machines", n})
		if x, ok := d.(interface{ Images() *image.Store }); ok { // Reap has already removed its leftovers
			out = append(out, Swept{"driver " + k.Name, "build leftovers", x.Images().Swept()})
		}
		if c, ok := d.(interface{ Close() error }); ok {
			c.Close()
		}
	}
	n, err := browsers.Sweep(ctx, "", Alive)
	if err != nil {
		errs = append(errs, err)
	}
	out = append(out, Swept{"browsers", "profiles", n})
	for _, path := range runs {
		d, err := Open(path)
		if errors.Is(err, rundir.ErrInUse) {
			out = append(out, Swept{path, "temporary files: a process works in it", 0})
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		n := 0
		for _, dir := range []string{d.Scratch(), filepath.Join(d.Blobs(), "tmp")} {
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
					errs = append(errs, err)
					continue
				}
				n++
			}
		}
		// of a process that was killed
		if fi, err := os.Lstat(filepath.Join(path, attach.SocketName)); err == nil && fi.Mode()&os.ModeSocket != 0 {
			errs = append(errs, os.Remove(filepath.Join(path, attach.SocketName)))
			n++
		}
		out = append(out, Swept{path, "temporary files", n})
		errs = append(errs, d.Close())
	}
	return out, errors.Join(errs...)
}
