package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strings"
	"sync"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/moby/moby/client/pkg/versions"
)

// MinAPI is the oldest supported version of the engine's API: that of Docker 20.10.
const MinAPI = "1.41"

// An engine is a Docker engine, connected to when it is first needed. Its methods are safe for
// concurrent use. The files image*.go implement image.Engine.
type engine struct {
	want string // Options.Host

	asking chan struct{} // a lock that a caller can give up waiting for: held during the first call

	mu    sync.Mutex
	cli   *client.Client
	host  string // the resolved address, for messages
	known bool   // it has responded, and is new enough
}

func newEngine(want string) *engine { return &engine{want: want, asking: make(chan struct{}, 1)} }

// api returns the client of an engine that has responded once and is new enough. Errors say what to
// do.
func (e *engine) api(ctx context.Context) (*client.Client, error) {
	if cli := e.answered(); cli != nil {
		return cli, nil
	}
	select {
	case e.asking <- struct{}{}:
		defer func() { <-e.asking }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if cli := e.answered(); cli != nil {
		return cli, nil
	}
	cli, err := e.client()
	if err != nil {
		return nil, err
	}
	ping, err := cli.Ping(ctx, client.PingOptions{})
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, e.explain(err)
	}
	at := e.name()
	if ping.APIVersion != "" && versions.LessThan(ping.APIVersion, MinAPI) {
		return nil, fmt.Errorf("the docker engine at %s speaks version %s of its API; evalrun needs %s: install "+
			"docker 20.10 or newer", at, ping.APIVersion, MinAPI)
	}
	if _, err := cli.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, e.explain(err)
	}
	if v := cli.ClientVersion(); versions.LessThan(v, MinAPI) { // somebody has set DOCKER_API_VERSION
		return nil, fmt.Errorf("version %s of docker's API was asked for; evalrun needs %s: unset DOCKER_API_VERSION",
			v, MinAPI)
	}
	if ping.OSType != "" && ping.OSType != "linux" {
		return nil, fmt.Errorf("the docker engine at %s runs %s containers; evalrun needs linux containers: switch "+
			"the engine over", at, ping.OSType)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known = true
	return cli, nil
}

// answered returns the client of an engine that has responded before, or nil.
func (e *engine) answered() *client.Client {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.known {
		return nil
	}
	return e.cli
}

// client returns a client that has not made a call yet.
func (e *engine) client() (*client.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cli == nil {
		at, err := findHost(e.want)
		if err != nil {
			return nil, err
		}
		if e.cli, err = at.connect(); err != nil {
			return nil, fmt.Errorf("connecting to the docker engine at %s: %w", at.Host, err)
		}
		e.host = at.Host
	}
	return e.cli, nil
}

// name returns the engine's address, or "" before the first call.
func (e *engine) name() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.host
}

// close ends idle connections.
func (e *engine) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cli != nil {
		e.cli.Close()
	}
}

// explain explains why an engine did not respond, and what to do. It returns other errors
// unchanged.
func (e *engine) explain(err error) error {
	if !unreachable(err) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	at := e.name()
	path, local := strings.CutPrefix(at, "unix://")
	if local { // the client does not say why it could not connect
		c, why := net.Dial("unix", path)
		if why == nil {
			c.Close()
		} else {
			err = why
		}
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		name := "your user"
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
		return fmt.Errorf("%s may not talk to the docker engine at %s: add %s to the group docker (sudo usermod -aG "+
			"docker %s, then log in again), or use sudo: %w", name, at, name, name, err)
	case local && errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no docker engine at %s: install docker, or start it (sudo systemctl start "+
			"docker), or set DOCKER_HOST: %w", path, err)
	case local && errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("the docker engine at %s does not run: start it (sudo systemctl start docker): %w", path, err)
	}
	return fmt.Errorf("the docker engine at %s cannot be reached: see that it runs and that DOCKER_HOST and "+
		"DOCKER_CONTEXT are right: %w", at, err)
}

// unreachable reports whether a call got no response at all.
func unreachable(err error) bool {
	if err == nil {
		return false
	}
	return client.IsErrConnectionFailed(err) || errors.As(err, new(*net.OpError)) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) || strings.HasSuffix(err.Error(), "EOF")
}

// missing reports a definite 404.
func missing(err error) bool { return errdefs.IsNotFound(err) }

// message returns the engine's message, without the client's prefix.
func message(err error) string {
	return strings.TrimPrefix(strings.TrimSpace(err.Error()), "Error response from daemon: ")
}

// inspect returns what the engine knows of a container.
func inspect(ctx context.Context, cli *client.Client, name string) (container.InspectResponse, error) {
	r, err := cli.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	return r.Container, err
}
