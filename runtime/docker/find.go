package docker

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Find reattaches to a sandbox that another process of ours has created, with the key that it has
// stored. If the engine says that there is no such container, or that it has ended, that is
// definite. The file of the sandbox then names this process as the owner; the labels of a container
// cannot be changed.
func (d *Driver) Find(ctx context.Context, id string) (sandbox.Sandbox, error) {
	d.mu.Lock()
	b := d.live[id]
	d.mu.Unlock()
	if b != nil && b.handed.Load() && b.alive() {
		return b, nil
	}
	b, err := d.find(ctx, id)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		var e *sandbox.Error
		if errors.As(err, &e) {
			err = e.Err
		}
		return nil, &sandbox.Error{Op: "find", ID: id, Err: err}
	}
	return b, nil
}

// alive reports whether all its executors respond.
func (b *box) alive() bool {
	for _, m := range b.machines() {
		if m.c == nil {
			return false
		}
		select {
		case <-m.c.Done():
			return false
		default:
		}
	}
	return true
}

// Adopt implements [sandbox.Adopter]. The labels of a container cannot be changed, so the file of
// the sandbox names the owner.
func (b *box) Adopt(o sandbox.Owner) error {
	if b.isClosed() || !b.alive() {
		return &sandbox.Error{Op: "adopt", ID: b.id, Err: b.gone()}
	}
	b.spec.Owner = o.OrSelf()
	return b.saveState(b.spec.Network)
}

func (d *Driver) find(ctx context.Context, id string) (*box, error) {
	if !strings.HasPrefix(id, prefix) || strings.ContainsAny(id, "/\x00") {
		return nil, fmt.Errorf("%w: no sandbox of this driver has such a name", sandbox.ErrGone)
	}
	cli, err := d.engine.api(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.running(ctx, cli, id); err != nil {
		return nil, err
	}
	e, err := d.readState(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("its container runs, but not its key: it was made by another user, or on another "+
			"machine (%w)", err)
	}
	if err != nil {
		return nil, err
	}
	b := d.boxOf(id, sandbox.Spec{
		Owner: e.Owner, Disk: e.Disk, Orphan: time.Duration(e.Orphan), Network: e.Network, Rewire: e.Rewire,
		Services: map[string]sandbox.Spec{},
	})
	b.bridge, b.here = e.Bridge, e.Here
	b.created = resources{containers: []string{id}, volumes: slices.Collect(maps.Values(e.Volumes)), network: e.Bridge}
	if e.Volumes != nil {
		b.volumes = e.Volumes
	}
	b.main.args = e.Entry
	for name, s := range e.Services {
		b.services[name] = newMachine(b, s.Container)
		b.services[name].args = s.Entry
		b.created.containers = append(b.created.containers, s.Container)
		if b.services[name].key, err = hex.DecodeString(s.Key); err != nil {
			return nil, err
		}
	}
	if b.main.key, err = hex.DecodeString(e.Key); err != nil {
		return nil, err
	}
	for _, m := range b.machines() {
		if err := m.reattach(ctx, cli); err != nil {
			b.disconnect()
			return nil, err
		}
	}
	if b.here {
		b.retakeTun(ctx, cli)
	}
	if err := b.openGate(ctx); err != nil {
		b.disconnect()
		return nil, err
	}
	b.spec.Owner.PID = 0
	b.spec.Owner = b.spec.Owner.OrSelf()
	if err := b.saveState(e.Network); err != nil {
		b.disconnect()
		return nil, err
	}
	b.handed.Store(true)
	known.Store(id, true)
	d.mu.Lock()
	d.live[id] = b
	d.mu.Unlock()
	b.watchDisk()
	return b, nil
}

// running returns nil for a running container.
func (d *Driver) running(ctx context.Context, cli *client.Client, name string) error {
	c, err := inspect(ctx, cli, name)
	switch {
	case missing(err):
		return fmt.Errorf("%w: the engine has no such container", sandbox.ErrGone)
	case err != nil:
		return d.engine.explain(err)
	case c.Config == nil || c.Config.Labels[labelSandbox] == "":
		return fmt.Errorf("%w: a container of that name is not ours", sandbox.ErrGone)
	case !c.State.Running:
		return fmt.Errorf("%w: its container has ended (exit code %d)", sandbox.ErrGone, c.State.ExitCode)
	}
	return nil
}

// reattachLimit is how long an executor may take to answer its new owner.
const reattachLimit = 30 * time.Second

func (m *machine) reattach(ctx context.Context, cli *client.Client) error {
	ctx, cancel := context.WithTimeoutCause(ctx, reattachLimit, errors.New("its executor does not answer"))
	defer cancel()
	var err error
	if m.ch, err = attach(ctx, cli, m.name); err != nil {
		if missing(err) {
			return fmt.Errorf("%w: the engine has no such container", sandbox.ErrGone)
		}
		return m.engineError(ctx, "attaching to the container", err)
	}
	m.c, err = executor.Reattach(ctx, m.ch,
		executor.Options{Driver: m.b.d.Name(), ID: m.name, Config: executor.Config{Key: m.key}, Gone: m.gone,
			Hung: m.hung, Grace: m.b.d.grace})
	if err == nil && len(m.args) > 0 {
		m.entry = m.c.Start(sandbox.Command{Args: m.args}) // the running one, or its result
	}
	return err
}

// disconnect closes the connections and leaves the containers running.
func (b *box) disconnect() {
	for _, m := range b.machines() {
		if m.c != nil {
			m.c.Close()
		} else if m.ch != nil {
			m.ch.Close()
		}
	}
}
