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

// Defaults of a spec's zero limits. CPUs and Disk have none: the machine's cores, and what the
// engine's disk holds.
const (
	DefaultMemory = 2 << 30
	DefaultPids   = 2048
	// DefaultOrphan is long enough for a run that is killed and taken up again by hand.
	DefaultOrphan = 15 * time.Minute
)

// Hostname inside.
const Hostname = "sandbox"

// Options of a driver. Zero fields are the defaults.
type Options struct {
	// Host is the engine: unix:///path, tcp://host:port or ssh://user@host. Default: DOCKER_HOST,
	// DOCKER_CONTEXT, the current context of docker's own command, its usual socket.
	Host string
	// Image is what a spec without an image gets. Default: such a spec is refused.
	Image string
	// Starts is how many containers are started at once; so many are removed at once as well.
	// Default: twice the cores.
	Starts int
	// Subnets is where bridges of sessions come from whose services want the same port: 16
	// addresses each. Default: 10.213.0.0/16.
	Subnets string
	// State is a private folder for what is needed to take up sandboxes after a crash. Default:
	// evalrun/docker below /run or XDG_RUNTIME_DIR.
	State string
	// Images says how images are pulled, built and kept.
	Images image.Options
}

// A Driver makes sandboxes of containers. Several may live in one process.
type Driver struct {
	o      Options
	engine *engine
	images *image.Store
	state  string
	grace  time.Duration // see executor.Options; of tests
	first  time.Duration // its Start
	starts chan struct{} // a token for each container that is starting
	ends   chan struct{} // and for each that is being removed
	tool   tool
	about  about
	disk   diskWatch
	tuns   tuns

	mu   sync.Mutex
	live map[string]*box
	late sync.WaitGroup // what goes on after a Create that had to return before the engine did
}

// New returns the driver "docker". It touches nothing; [Driver.Probe] tells whether there is an
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

// Images is the store of this driver's images.
func (d *Driver) Images() *image.Store { return d.images }

// Close closes every sandbox that is still open, and waits for what the engine is late with. The
// driver may be used again.
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

// Prepare makes an image ready and returns its digest.
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

// There reports whether an image is ready, without making it so.
func (d *Driver) There(ctx context.Context, img sandbox.Image) bool {
	return img.IsZero() || d.images.There(ctx, img)
}

func (d *Driver) no(format string, args ...any) error {
	return &sandbox.Unsupported{Driver: d.Name(), What: fmt.Sprintf(format, args...)}
}
