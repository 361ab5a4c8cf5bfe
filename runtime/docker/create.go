package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/moby/client"

	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

const (
	// lateLimit is how long Create waits for the engine after ctx has ended. What is created later
	// is removed in the background.
	lateLimit = 5 * time.Second
)

// Create starts a sandbox.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	b, err := d.create(ctx, spec, nil)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// create starts a sandbox. If config is not nil, it is that of the image.
func (d *Driver) create(ctx context.Context, spec sandbox.Spec, config *image.Config) (*box, error) {
	if ctx.Err() != nil {
		return nil, &sandbox.Error{Op: "create", Err: context.Cause(ctx)}
	}
	if spec.Image.IsZero() && d.o.Image != "" {
		spec.Image.Ref = d.o.Image
	}
	if err := d.check(&spec); err != nil {
		return nil, d.failed(err, "")
	}
	Defaults(&spec)
	spec.Owner = spec.Owner.OrSelf()
	b := d.newBox(spec)
	b.config = config
	// The engine completes what it has begun, also if the caller has left. So the start runs in a
	// goroutine of its own, which checks ctx between calls and leaves nothing behind, and Create
	// need not wait for a slow engine.
	started := make(chan error, 1)
	d.late.Add(1)
	go func() {
		defer d.late.Done()
		err := b.start(ctx)
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			err = d.failed(err, b.process1Output())
			b.Close()
		} else if !b.handed.CompareAndSwap(false, true) {
			b.Close()
		}
		started <- err
	}()
	var err error
	select {
	case err = <-started:
	case <-ctx.Done():
		select {
		case err = <-started:
		case <-time.After(lateLimit):
			if b.handed.CompareAndSwap(false, true) {
				return nil, &sandbox.Error{Op: "create", Err: context.Cause(ctx)}
			}
			err = <-started
		}
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// failed converts an error of a start to the form that sandbox.Driver specifies.
func (d *Driver) failed(err error, detail string) error {
	if u := (*sandbox.Unsupported)(nil); errors.As(err, &u) {
		return err
	}
	out := &sandbox.Error{Op: "create"}
	var e *sandbox.Error
	if errors.As(err, &e) {
		out.Log, out.Permanent, out.BadRequest = e.Log, e.Permanent, e.BadRequest
		if e.Detail != "" {
			detail = e.Detail
		}
		if err == error(e) {
			err = e.Err
		}
	}
	if errors.Is(err, syscall.ENOMEM) || strings.Contains(err.Error(), "cannot allocate memory") {
		err = fmt.Errorf("%w: %w", sandbox.ErrHostMemory, err)
	}
	out.Err, out.Detail = err, detail
	return out
}

// prepare prepares an image.
func (b *box) prepare(ctx context.Context, spec *sandbox.Spec) (image.Info, error) {
	img := spec.Image
	if img.Platform == "" {
		img.Platform = spec.Platform
	}
	return b.d.images.Prepare(ctx, img)
}

// start creates everything of a sandbox. If it fails, the caller removes what was created.
func (b *box) start(ctx context.Context) error {
	cli, err := b.d.engine.api(ctx)
	if err != nil {
		return err
	}
	infos := map[string]image.Info{}
	info, err := b.prepare(ctx, &b.spec)
	if err != nil {
		return err
	}
	if b.config != nil {
		info.Config = *b.config
	}
	for name, s := range b.spec.Services {
		if infos[name], err = b.prepare(ctx, &s); err != nil {
			return fmt.Errorf("service %s: %w", name, err)
		}
	}
	if err := b.makeVolumes(ctx, cli); err != nil {
		return err
	}
	if err := b.makeBridge(ctx, cli, info, infos); err != nil {
		return err
	}
	p := &plan{spec: &b.spec, info: info, labels: labels(b.id, b.spec.Owner), hosts: b.hosts(""), volumes: b.volumes,
		bridge: b.bridge, tun: b.gated(), env: b.gateEnv()}
	if err := b.main.start(ctx, cli, p); err != nil {
		return err
	}
	if err := b.openGate(ctx); err != nil {
		return err
	}
	if err := b.startServices(ctx, cli, infos); err != nil {
		return err
	}
	if err := b.main.enter(ctx, p, false); err != nil {
		return err
	}
	b.watchDisk()
	return b.saveState(b.spec.Network)
}

// start creates the container and connects to its executor. If the image was removed after it was
// prepared, it is prepared once more.
func (m *machine) start(ctx context.Context, cli *client.Client, p *plan) error {
	err := m.startOnce(ctx, cli, p)
	if err == nil || ctx.Err() != nil || !missing(err) ||
		!strings.Contains(strings.ToLower(err.Error()), "no such image") {
		return err
	}
	m.b.d.images.Forget(p.info.ID)
	if p.info, err = m.b.prepare(ctx, p.spec); err != nil {
		return err
	}
	return m.startOnce(ctx, cli, p)
}

func (m *machine) startOnce(ctx context.Context, cli *client.Client, p *plan) error {
	d := m.b.d
	select {
	case d.starts <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-d.starts }()
	if err := m.launch(ctx, cli, p); err != nil {
		return err
	}
	m.key = executor.NewKey()
	s := p.spec
	cfg := executor.Config{
		Env: p.environ(), Dir: s.Dir, User: s.User, Orphan: s.Orphan, Drop: true, Setuid: s.Setuid, Trace: s.Trace,
		Tun: p.tun && !p.here, Key: m.key, Limits: map[string]uint64{"core": 0},
	}
	if cfg.Dir == "" {
		cfg.Dir = p.info.Config.Dir
	}
	if cfg.User == "" {
		cfg.User = p.info.Config.User
	}
	var err error
	m.c, err = executor.New(ctx, m.ch, executor.Options{
		Driver: d.Name(), ID: m.name, Config: cfg, Disk: p.quota && s.Disk > 0, Gone: m.gone, Hung: m.hung,
		Grace: d.grace, Start: d.first,
	})
	if errors.Is(err, io.EOF) && ctx.Err() == nil {
		// It does not wrap ErrGone: there never was a sandbox.
		return fmt.Errorf("its executor has ended at once: %v", m.gone())
	}
	return err
}

// launch creates, attaches and starts, in this order, so that no output of process 1 is lost.
func (m *machine) launch(ctx context.Context, cli *client.Client, p *plan) error {
	tool, err := m.b.d.tool.get(p.info.Arch)
	if err != nil {
		return err
	}
	for {
		p.mount, p.quota, p.here = "", m.b.d.about.quota(), p.tun && m.b.d.here()
		if m.b.d.tool.mounts() {
			p.mount = tool.path
		}
		err := m.run(ctx, cli, p, tool)
		if err == nil && p.here {
			if err = m.openTun(ctx, cli); err != nil && ctx.Err() == nil {
				m.ch.Close()
				m.b.d.tuns.far.Store(true)
				err = errNoTunFromHost
			}
		}
		switch {
		case err == nil:
			if p.mount != "" {
				m.b.d.tool.worked()
			}
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case p.quota && p.spec.Disk > 0 && strings.Contains(err.Error(), "storage-opt"):
			m.b.d.about.noQuota()
		case p.mount != "" && badMount(err) && m.b.d.tool.failed():
		case err == errNoTunFromHost: // process 1 will open it
		case p.tun && strings.Contains(err.Error(), "/dev/net/tun"): // the proxy still works
			p.tun = false
			m.b.d.tuns.none.Store(true)
		case strings.Contains(err.Error(), "exec format error"):
			return m.b.d.no("platform linux/%s: the engine cannot emulate it", p.info.Arch)
		default:
			return err
		}
		// Try once more in the other way: the engine supports less than expected.
		if err := m.b.d.removeContainer(context.WithoutCancel(ctx), cli, m.name); err != nil {
			return err
		}
	}
}

var errNoTunFromHost = errors.New("its network interface cannot be opened from here")

// badMount reports whether the engine cannot see or use the file to be mounted.
func badMount(err error) bool {
	s := err.Error()
	return strings.Contains(s, "bind source path does not exist") || strings.Contains(s, toolPath) ||
		strings.Contains(s, "invalid mount config") ||
		strings.Contains(s, "mounts denied") || strings.Contains(s, "not shared from the host")
}

func (m *machine) run(ctx context.Context, cli *client.Client, p *plan, tool *program) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	call, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), callLimit,
		errors.New("the docker engine does not answer"))
	defer cancel()
	m.b.begin(func(l *resources) {
		if !slices.Contains(l.containers, m.name) {
			l.containers = append(l.containers, m.name)
		}
	})
	about, err := m.b.d.info(call)
	if err != nil {
		return m.engineError(call, "asking the engine for its processors", err)
	}
	p.cpus = about.NCPU
	o := client.ContainerCreateOptions{Config: p.config(), HostConfig: p.hostConfig(),
		NetworkingConfig: p.networking(m.b, m.name), Name: m.name}
	if all := platforms(p.spec.Platform); len(all) > 0 {
		o.Platform = &all[0]
	}
	if _, err := cli.ContainerCreate(call, o); err != nil {
		return m.engineError(call, "creating the container", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := m.accounts(call, cli, p.info.ID); err != nil {
		return err
	}
	if p.mount == "" {
		if _, err := cli.CopyToContainer(call, m.name,
			client.CopyToContainerOptions{DestinationPath: "/", Content: tool.archive()}); err != nil {
			return m.engineError(call, "copying the executor into the container", err)
		}
	}
	if m.ch, err = attach(ctx, cli, m.name); err != nil {
		return m.engineError(call, "attaching to the container", err)
	}
	if _, err := cli.ContainerStart(call, m.name, client.ContainerStartOptions{}); err != nil {
		m.ch.Close()
		return m.engineError(call, "starting the container", err)
	}
	return nil
}

// engineError returns an error of a call of the engine.
func (m *machine) engineError(call context.Context, what string, err error) error {
	if call.Err() != nil {
		err = context.Cause(call)
	} else if unreachable(err) {
		err = m.b.d.engine.explain(err)
	}
	return fmt.Errorf("%s: %w", what, plainError{err})
}

// A plainError is an engine's error without the client's prefix.
type plainError struct{ error }

func (e plainError) Error() string { return message(e.error) }
func (e plainError) Unwrap() error { return e.error }
