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

// A Dialer connects to a TCP port on the sandbox's loopback interface.
type Dialer interface {
	Dial(ctx context.Context, port int) (net.Conn, error)
}

// A Listener opens a TCP port on the sandbox's loopback interface. The caller serves its
// connections, outside of the sandbox.
type Listener interface {
	Listen(ctx context.Context, port int) (net.Listener, error)
}

// A Stater reports what a sandbox uses now, and the maximum so far.
type Stater interface {
	Stats(ctx context.Context) (Stats, error)
}

// Stats of a sandbox. A nil field is not known with this driver.
type Stats struct {
	Memory, MaxMemory, Disk *int64
	CPU, Throttled          *time.Duration
	Pids                    *int // running processes that Exec started, without our supervisors
	OOMKills                *int64
}

// A Rewirer changes the network policy, for a phase. It closes connections that the new policy
// forbids. It works for sandboxes whose Spec has Rewire set.
type Rewirer interface {
	Rewire(ctx context.Context, n Network) error
}

// A RefusalLister lists what the network policy has refused since the sandbox's start, each host
// and port once, some hundreds at most.
type RefusalLister interface {
	Refused() []Refusal
}

// A Transparent sandbox reports whether programs that do not use the proxy have its network too; if
// not, why is the reason, for people.
type Transparent interface {
	Transparent() (ok bool, why string)
}

// A Refusal is a host and port to which the network policy refused access.
type Refusal struct {
	Host  string // as requested: a name or an address; hostile
	Port  int    // 0: a name lookup
	Why   string // "not on the list", "a private address" …
	Count int64
}

// A Copier is a driver that can copy a running sandbox.
type Copier interface {
	// Copy creates a sandbox with a copy of the files of the one with this ID, which may belong to
	// another process and neither stops nor changes. Owner, User, Dir and Env are those of spec. The
	// copy has no network, no services and no ENTRYPOINT. What is in volumes and in memory is missing.
	Copy(ctx context.Context, id string, spec Spec) (Sandbox, error)
}

// A Group is a sandbox with services.
type Group interface {
	// Service returns a sidecar by the name of its spec. It has commands, files and logs of its
	// own. The group closes it.
	Service(name string) (Sandbox, bool)
}

// A Logger has the output of a sandbox's ENTRYPOINT: the first and the last part of it.
type Logger interface {
	Logs() []byte
}

// A Describer explains how limits are enforced, where that differs from what users expect:
// {"memory": "per process"}. Drivers implement it; plan and summary print it.
type Describer interface {
	Describe() map[string]string
}

// ImageReady reports whether an image is available without being prepared. It is false for drivers
// that cannot tell.
func ImageReady(ctx context.Context, d Driver, img Image) bool {
	x, ok := d.(interface {
		ImageReady(context.Context, Image) bool
	})
	return ok && x.ImageReady(ctx, img)
}

var (
	// ErrGone: the sandbox does not exist any more. That is definite.
	ErrGone = errors.New("sandbox is gone")
	// ErrHung: the sandbox stopped responding and was killed by its driver. Such an error is also
	// ErrGone.
	ErrHung = fmt.Errorf("%w: it stopped answering and was ended", ErrGone)
	// ErrSandboxOOM: the sandbox was killed as a whole for exceeding its own memory limit. Such an
	// error is also ErrGone.
	ErrSandboxOOM = fmt.Errorf("%w: its memory limit has ended it as a whole", ErrGone)
	// ErrBuild: the build of an image failed. It begins the message: "building NAME: …".
	ErrBuild = errors.New("building")
	// ErrNeverFits: a request exceeds the whole budget.
	ErrNeverFits = errors.New("needs more than this run's whole sandbox budget")
	// ErrHostMemory: the host (not the sandbox's own limit) ran out of memory.
	ErrHostMemory = errors.New("the host is out of memory")
)

// An Error says that an operation on a sandbox failed. Unless Inside or BadRequest is set, this is
// a failure of the infrastructure, and no evidence about an agent.
type Error struct {
	Op  string // "create", "exec", "put" …
	ID  string // of the sandbox, if there is one
	Err error
	// Inside: the sandbox works, but what is in it prevents the operation (a directory in place of
	// the file to be written, a full disk of its own). What ran inside is responsible.
	Inside bool
	// Detail is a longer text for people, such as the tail of a build's output. It is not part of
	// the message.
	Detail string
	// Log is the complete text that Detail is the end of, up to a size limit; "": Detail is
	// complete.
	Log string
	// Permanent: a retry would soon fail in the same way (a build whose command fails, an image
	// that its registry does not have).
	Permanent bool
	// BadRequest: the request is at fault (a build that copies a file that does not exist, a health
	// check that never succeeds).
	BadRequest bool
}

func (e *Error) Error() string {
	if e.ID == "" {
		return fmt.Sprintf("sandbox: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("sandbox %s: %s: %v", e.ID, e.Op, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Unsupported says that a driver does not support what a spec asks for. A trial that gets it is
// skipped, with this reason.
type Unsupported struct{ Driver, What string }

func (e *Unsupported) Error() string {
	return fmt.Sprintf("driver %s cannot do this: %s", e.Driver, e.What)
}
