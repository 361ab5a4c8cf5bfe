package docker

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Defaults of a spec's zero limits. CPUs and Disk have none.
const (
	DefaultMemory = 2 << 30
	DefaultPids   = 2048
	// DefaultOrphan is long enough for a run that is killed and resumed by hand.
	DefaultOrphan = 15 * time.Minute
)

// Hostname inside.
const Hostname = "sandbox"

// Options of a driver. Zero fields are the defaults.
type Options struct {
	// Host is the engine: unix:///path, tcp://host:port or ssh://user@host. Default: DOCKER_HOST,
	// DOCKER_CONTEXT, the current context of the docker command, its default socket.
	Host string
	// Image is used for a spec without an image. Default: such a spec is refused.
	Image string
	// Starts limits how many containers start at once, and how many are removed at once. Default:
	// twice the number of cores.
	Starts int
	// Subnets is the range of the bridges of sessions whose services need the same port: 16
	// addresses each. Default: 10.213.0.0/16.
	Subnets string
	// State is a private directory for what is needed to reattach to sandboxes after a crash.
	// Default: evalrun/docker below /run or XDG_RUNTIME_DIR.
	State string
	// Images configures how images are pulled, built and kept.
	Images image.Options
}

// A Driver creates sandboxes in containers. A process may have several.
type Driver struct {
	o      Options
	engine *engine
	images *image.Store
	state  string
	grace  time.Duration // see executor.Options; for tests
	first  time.Duration // its Start
	starts chan struct{} // a token for each starting container
	ends   chan struct{} // and for each that is being removed
	tool   tool
	about  about
	disk   diskWatch
	tuns   tuns

	mu   sync.Mutex
	live map[string]*box
	late sync.WaitGroup // goroutines of a Create that returned before the engine did
}

// New returns the driver "docker". It does not connect; [Driver.Probe] checks whether there is an
// engine.
func New(o Options) *Driver {
	if o.Starts <= 0 {
		o.Starts = 2 * runtime.NumCPU()
	}
	if o.Subnets == "" {
		o.Subnets = "10.213.0.0/16"
	}
	d := &Driver{o: o, engine: newEngine(o.Host), state: o.State, live: map[string]*box{}}
	d.starts, d.ends = make(chan struct{}, o.Starts), make(chan struct{}, o.Starts)
	if d.state == "" {
		d.state = stateDir()
	}
	d.images = image.New(d.engine, o.Images)
	d.disk.d = d
	return d
}

func (d *Driver) Name() string { return "docker" }

// Images returns the store of this driver's images.
func (d *Driver) Images() *image.Store { return d.images }

// Close closes all open sandboxes, and waits for background work. The driver may be used again.
func (d *Driver) Close() error {
	d.mu.Lock()
	var open []*box
	for _, b := range d.live {
		open = append(open, b)
	}
	d.mu.Unlock()
	var wg sync.WaitGroup
	for _, b := range open {
		wg.Go(func() { b.Close() })
	}
	wg.Wait()
	d.late.Wait()
	d.engine.close()
	return nil
}

// Prepare prepares an image and returns its digest.
func (d *Driver) Prepare(ctx context.Context, img sandbox.Image) (string, error) {
	if img.IsZero() {
		return "", nil
	}
	if err := d.checkPlatform(img.Platform); err != nil {
		return "", err
	}
	if _, err := d.engine.api(ctx); err != nil {
		return "", &sandbox.Error{Op: "prepare", Err: err}
	}
	info, err := d.images.Prepare(ctx, img)
	if err != nil {
		return "", err
	}
	return info.Digest, nil
}

// ImageReady reports whether an image is available, without preparing it.
func (d *Driver) ImageReady(ctx context.Context, img sandbox.Image) bool {
	return img.IsZero() || d.images.ImageReady(ctx, img)
}

func (d *Driver) no(format string, args ...any) error {
	return &sandbox.Unsupported{Driver: d.Name(), What: fmt.Sprintf(format, args...)}
}
