package docker

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
)

// An about caches what is known of the engine.
type about struct {
	mu          sync.Mutex
	info        *system.Info
	noDiskQuota atomic.Bool // the engine has refused a disk limit
}

// quota reports whether to ask the engine for a disk limit of a container.
func (a *about) quota() bool { return !a.noDiskQuota.Load() }
func (a *about) noQuota()    { a.noDiskQuota.Store(true) }

func (d *Driver) info(ctx context.Context) (*system.Info, error) {
	d.about.mu.Lock()
	defer d.about.mu.Unlock()
	if d.about.info != nil {
		return d.about.info, nil
	}
	cli, err := d.engine.api(ctx)
	if err != nil {
		return nil, err
	}
	sys, err := cli.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, d.engine.explain(err)
	}
	i := sys.Info
	if !canQuota(&i) {
		d.about.noQuota()
	}
	d.about.info = &i
	return &i, nil
}

// canQuota reports whether a storage driver may support disk limits. Overlays support them on XFS
// with project quotas only, and whether it has those shows when a container asks for one.
func canQuota(i *system.Info) bool {
	switch i.Driver {
	case "btrfs", "zfs", "devicemapper", "windowsfilter":
		return true
	case "overlay2":
		for _, kv := range i.DriverStatus {
			if kv[0] == "Backing Filesystem" && kv[1] == "xfs" {
				return true
			}
		}
	}
	return false
}

// Probe returns why no suitable engine is available, and what to do about it.
func (d *Driver) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errNoAnswer)
	defer cancel()
	i, err := d.info(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	}
	if !i.MemoryLimit || !i.PidsLimit {
		return fmt.Errorf("the engine at %s cannot limit memory and processes: "+
			"give it the control groups memory and pids (cgroup_enable=memory on the kernel's command line)",
			d.engine.name())
	}
	return nil
}

// Describe describes how limits are enforced and what the engine supports, for people. If no engine
// responds, it has its error only.
func (d *Driver) Describe() map[string]string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	i, err := d.info(ctx)
	if err != nil {
		return map[string]string{"engine": err.Error()}
	}
	m := map[string]string{
		"engine": fmt.Sprintf("docker %s at %s, %s on %s", i.ServerVersion, d.engine.name(), i.OperatingSystem,
			i.Architecture),
		"storage": storage(i),
		"cgroups": "version " + i.CgroupVersion,
		"disk":    "watched: commands are killed when more was written (looked at every " + diskPause.String() + ")",
		"builder": "the classic builder: this engine has no BuildKit",
	}
	if d.about.quota() {
		m["disk"] = "limited by the engine's storage"
	}
	if !i.SwapLimit {
		m["memory"] = "limited, but not the swap space: this kernel does not count it (swapaccount=1 on its command line)"
	}
	if !i.CPUCfsQuota {
		m["cpus"] = "not limited: this kernel cannot"
	}
	if a, err := d.engine.About(ctx); err == nil {
		if a.BuildKit {
			m["builder"] = fmt.Sprintf("BuildKit, with version %d.%d of the Dockerfile language built in",
				a.Frontend[0], a.Frontend[1])
		}
		if a.Dir != "" {
			m["folder"] = a.Dir
		}
	}
	if why := d.proxyOnly(); why != "" {
		m["network"] = "through the proxy only: " + why
	}
	m["addresses"] = d.o.Subnets + ", of bridges for sessions whose services want the same port"
	for _, o := range i.SecurityOptions {
		switch {
		case strings.Contains(o, "name=rootless"):
			m["rootless"] = "yes"
		case strings.Contains(o, "name=userns"):
			m["users"] = "remapped"
		}
	}
	d.tool.mu.Lock()
	switch {
	case d.tool.copied:
		m["executor"] = "copied into each container: the engine does not see this machine's files"
	case d.tool.sure:
		m["executor"] = "mounted read-only"
	}
	d.tool.mu.Unlock()
	return m
}

func storage(i *system.Info) string {
	for _, kv := range i.DriverStatus {
		if kv[0] == "Backing Filesystem" {
			return i.Driver + " on " + kv[1]
		}
	}
	return i.Driver
}

// diskPause is the time between two checks of what sandboxes have written, if the engine enforces
// no limit.
const diskPause = 15 * time.Second

// A diskWatch enforces the disk limits of all sandboxes of a driver, as long as there are any.
type diskWatch struct {
	d  *Driver
	mu sync.Mutex
	on bool
}

// watchDisk starts to enforce a box's disk limit, if it has one that the engine does not enforce.
func (b *box) watchDisk() {
	limited := false
	for _, s := range b.specs() {
		limited = limited || s.Disk > 0
	}
	if !limited || b.d.about.quota() {
		return
	}
	w := &b.d.disk
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.on {
		w.on = true
		go w.run()
	}
}

func (w *diskWatch) run() {
	for {
		time.Sleep(diskPause)
		w.mu.Lock() // a box that comes later starts another watch
		w.d.mu.Lock()
		boxes := maps.Clone(w.d.live)
		w.d.mu.Unlock()
		if len(boxes) == 0 {
			w.on = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		w.look(boxes)
	}
}

// look asks the engine once for the sizes of all containers of this process, and kills the commands
// of those over their limit.
func (w *diskWatch) look(boxes map[string]*box) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	cli, err := w.d.engine.api(ctx)
	if err != nil {
		return
	}
	sizes, err := w.d.sizes(ctx, cli)
	if err != nil {
		return
	}
	for _, b := range boxes {
		for name, m := range b.allMachines() {
			limit := b.spec.Disk
			if name != "" {
				limit = b.spec.Services[name].Disk
			}
			size, ok := sizes[m.name]
			if !ok {
				continue
			}
			m.written.Store(size)
			if limit > 0 && size > limit && b.handed.Load() && m.c != nil {
				m.c.KillAll(ctx)
			}
		}
	}
}

// sizes returns what the containers of this process have written to their roots.
func (d *Driver) sizes(ctx context.Context, cli *client.Client) (map[string]int64, error) {
	cs, err := cli.ContainerList(ctx, client.ContainerListOptions{Size: true,
		Filters: byLabel(labelProcess + "=" + process())})
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for _, c := range cs.Items {
		for _, n := range c.Names {
			out[strings.TrimPrefix(n, "/")] = c.SizeRw
		}
	}
	return out, nil
}
