package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// As finds an ability of sb. It asks sb itself first, then what sb wraps (a method Unwrap()
// Sandbox).
func As[T any](sb Sandbox) (T, bool) {
	for sb != nil {
		if t, ok := sb.(T); ok {
			return t, true
		}
		u, ok := sb.(interface{ Unwrap() Sandbox })
		if !ok {
			break
		}
		sb = u.Unwrap()
	}
	var zero T
	return zero, false
}

// A Dialer connects to a TCP port on the sandbox's loopback.
type Dialer interface {
	Dial(ctx context.Context, port int) (net.Conn, error)
}

// A Listener opens a TCP port on the sandbox's loopback; its connections are served outside, by the
// caller.
type Listener interface {
	Listen(ctx context.Context, port int) (net.Listener, error)
}

// A Stater tells what a sandbox uses now and has used at most.
type Stater interface {
	Stats(ctx context.Context) (Stats, error)
}

// Stats of a sandbox. A nil field is not known with this driver.
type Stats struct {
	Memory, MaxMemory, Disk *int64
	CPU, Throttled          *time.Duration
	Pids                    *int // processes that Exec started and that still run, supervisors of ours not counted
	OOMKills                *int64
}

// A Rewirer puts another network policy in force, for a phase. Connections that the new policy
// forbids are cut. It works for machines whose Spec asked for it by Rewire.
type Rewirer interface {
	Rewire(ctx context.Context, n Network) error
}

// A Warden tells what a network policy refused since the machine's start, each host and port once,
// at most some hundreds.
type Warden interface {
	Refused() []Refusal
}

// A Transparent machine tells whether programs that know no proxy have its network too; if not, why
// says so for people.
type Transparent interface {
	Transparent() (ok bool, why string)
}

// A Refusal is one place that was asked for and not allowed.
type Refusal struct {
	Host  string // as it was asked for: a name, or an address; hostile
	Port  int    // 0: a name was to be resolved
	Why   string // "not on the list", "a private address" …
	Count int64
}

// A Group is a sandbox with services.
type Group interface {
	// Service is a sidecar, by the name of its spec: commands, files and logs of its own. Its Close
	// is the group's business.
	Service(name string) (Sandbox, bool)
}

// A Logger keeps what a machine's ENTRYPOINT printed: the beginning and the end of it.
type Logger interface {
	Logs() []byte
}

// A Describer says in plain words how limits are kept, when that differs from what a reader would
// expect: {"memory": "per process"}. Drivers implement it; plan and summary print it.
type Describer interface {
	Describe() map[string]string
}

// There reports whether a driver knows an image to be ready. One that cannot tell says no.
func There(ctx context.Context, d Driver, img Image) bool {
	x, ok := d.(interface {
		There(context.Context, Image) bool
	})
	return ok && x.There(ctx, img)
}

var (
	// ErrGone: the sandbox does not exist any more; definite.
	ErrGone = errors.New("sandbox is gone")
	// ErrHung: the sandbox stopped answering and was ended by its driver. Such an error is also
	// ErrGone.
	ErrHung = fmt.Errorf("%w: it stopped answering and was ended", ErrGone)
	// ErrOutgrown: the sandbox's own memory limit has ended it as a whole: what was in it took all
	// of the memory. Such an error is also ErrGone.
	ErrOutgrown = fmt.Errorf("%w: its memory limit has ended it as a whole", ErrGone)
	// ErrBuild: the build of an image failed. It begins the message: "building NAME: …".
	ErrBuild = errors.New("building")
	// ErrNeverFits: more was asked for than the whole budget.
	ErrNeverFits = errors.New("needs more than this run's whole sandbox budget")
	// ErrHostMemory: the machine itself (not the sandbox's own limit) ran out of memory.
	ErrHostMemory = errors.New("the host is out of memory")
)

// An Error says that an operation on a sandbox failed. Unless Inside is set, the infrastructure
// failed and not what ran inside: that is never evidence about an agent.
type Error struct {
	Op  string // "create", "exec", "put" …
	ID  string // of the sandbox, if there is one
	Err error
	// Inside: the sandbox is well and answered; what is in it prevents the operation (a folder
	// where a file is to be written, a disk of its own that is full). It is the doing of whoever
	// was inside.
	Inside bool
	// Detail is longer text for people (the tail of a build's output, say), kept out of the
	// message.
	Detail string
	// Log is all of what Detail is the end of, up to a limit of who kept it; "": Detail is all
	// there is.
	Log string
	// Lasting: asked again soon, it would fail in the same way (a build whose command fails, an
	// image that its registry does not have).
	Lasting bool
	// Asked: what was asked for is at fault, and not who was to do it (a build that copies a file
	// which is not there, a health check that never succeeds).
	Asked bool
}

func (e *Error) Error() string {
	if e.ID == "" {
		return fmt.Sprintf("sandbox: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("sandbox %s: %s: %v", e.ID, e.Op, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Unsupported says that a driver cannot do what a spec asks for. A trial that meets it is skipped
// with this reason.
type Unsupported struct{ Driver, What string }

func (e *Unsupported) Error() string {
	return fmt.Sprintf("driver %s cannot do this: %s", e.Driver, e.What)
}
