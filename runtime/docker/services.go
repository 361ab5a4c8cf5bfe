package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/moby/moby/client"

	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// startServices starts the services, each when those before it are healthy, and returns when all
// are healthy. After the first failure, it stops waiting for the others.
func (b *box) startServices(ctx context.Context, cli *client.Client, infos map[string]image.Info) error {
	if len(b.services) == 0 {
		return nil
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	healthy := map[string]chan struct{}{}
	for name := range b.services {
		healthy[name] = make(chan struct{})
	}
	var wg sync.WaitGroup
	for name, m := range b.services {
		wg.Go(func() {
			spec := b.spec.Services[name]
			for _, after := range spec.After {
				select {
				case <-healthy[after]:
				case <-ctx.Done():
					return
				}
			}
			if err := b.startService(ctx, cli, name, m, spec, infos[name]); err != nil {
				fail(fmt.Errorf("service %s: %w", name, err))
				return
			}
			close(healthy[name])
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (b *box) startService(ctx context.Context, cli *client.Client, name string, m *machine, spec sandbox.Spec,
	info image.Info) error {
	Defaults(&spec)
	p := &plan{spec: &spec, info: info, labels: labels(b.id, b.spec.Owner), volumes: b.volumes, bridge: b.bridge,
		env: b.gateEnv()}
	p.labels[labelService] = name
	if b.bridge == "" {
		p.join = b.main.name
	} else {
		p.hosts = b.hosts(name)
	}
	if len(p.entry(true)) == 0 {
		return errors.New("neither its image nor its spec says what to run")
	}
	if err := m.start(ctx, cli, p); err != nil {
		return err
	}
	return m.enter(ctx, p, true)
}

// enter starts a container's ENTRYPOINT, if it has one, and waits until its health check succeeds.
// If the ENTRYPOINT of a service ends before, that is an error, with its last output as detail.
func (m *machine) enter(ctx context.Context, p *plan, service bool) error {
	var ended <-chan struct{}
	if m.args = p.entry(service); len(m.args) > 0 {
		m.entry = m.c.Start(sandbox.Command{Args: m.args})
		ended = m.entry.Done()
	}
	h := p.health()
	if h == nil {
		return nil
	}
	if !service {
		ended = nil // a check of main may be of what commands will start
	}
	err := executor.WaitHealthy(ctx, m, *h, ended)
	var u *executor.Unhealthy
	if ctx.Err() != nil || !errors.As(err, &u) {
		return err
	}
	whose := "its health check"
	if p.spec.Health == nil {
		whose = "the HEALTHCHECK of its image"
	}
	return m.withOutput(fmt.Errorf("%s: %w", whose, u), u.Output)
}

// withOutput returns the error of a health check with the output of ENTRYPOINT.
func (m *machine) withOutput(err error, output string) error {
	e := &sandbox.Error{Op: "health check", ID: m.name, Err: err, Detail: output, BadRequest: true, Permanent: true}
	if m.entry == nil {
		return e
	}
	logs := strings.TrimSpace(strings.ToValidUTF8(string(m.entry.Logs()), "\ufffd"))
	last := logs[strings.LastIndexByte(logs, '\n')+1:]
	if len(last) > 200 {
		last = last[len(last)-200:]
	}
	select {
	case <-m.entry.Done():
		x, _ := m.entry.Exit()
		how := fmt.Sprintf("it ended with code %d", x.Code)
		if x.Signal != "" {
			how = "it was ended by " + x.Signal
		}
		if x.OOM {
			how += ", out of its memory limit"
		}
		if last != "" {
			how += "; its last word: " + last
		}
		e.Err = fmt.Errorf("%s (%w)", how, err)
	default:
	}
	e.Detail = logs
	return e
}
