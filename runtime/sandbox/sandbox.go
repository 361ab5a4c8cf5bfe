// Package sandbox is the contract of isolated machines. It imports the standard library only and
// knows no implementation.
//
// A [Driver] makes machines of one kind (Linux namespaces, Docker, a fake in memory). A [Provider]
// hands them out under a budget for the whole process. A [Sandbox] is one machine, owned by one
// attempt of one trial. What only some kinds can do is an ability ([Dialer], [Listener], [Stater]
// …): a small interface of its own, asked for with [As], which walks through wrappers.
//
// Everything that comes out of a sandbox (output, archives, file names) was written by somebody who
// is not to be trusted.
package sandbox

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"
)

// A Driver makes sandboxes of one kind. Its methods may be called from several goroutines.
type Driver interface {
	// Name is how configurations and records call the driver: "local", "docker", "fake", "none".
	Name() string

	// Probe returns nil if the driver works on this machine, and else the reason. Callers add the
	// driver's name. It leaves nothing behind.
	Probe(ctx context.Context) error

	// Prepare makes an image ready (pull, build, unpack) and returns its digest. Callers that ask
	// for the same image share one preparation. The zero Image is always ready; its digest is "".
	Prepare(ctx context.Context, img Image) (digest string, err error)

	// Create starts a sandbox. On error nothing is left behind. What the driver cannot do as asked
	// (a network it lacks, a user it cannot become) is an [Unsupported] error, never silently less.
	Create(ctx context.Context, spec Spec) (Sandbox, error)

	// Find takes up a sandbox again that another process of ours made. [ErrGone] is definite; any
	// other error means: not known now.
	Find(ctx context.Context, id string) (Sandbox, error)

	// Reap removes the sandboxes, and all traces of them, whose owner is not alive. It returns how
	// many it removed, also beside an error.
	Reap(ctx context.Context, alive func(Owner) bool) (int, error)
}

// A Sandbox is one isolated machine. Its methods may be called from several goroutines. Their
// errors are ours (usually an *[Error]), never the fault of what runs inside.
type Sandbox interface {
	// ID is unique for the driver, and what Find takes.
	ID() string

	// Exec runs one command to its end and returns what became of it. A nonzero exit, a death by
	// signal and a time-out are results. It returns once the command's own process has ended and
	// what was then in its pipes is handed on; processes that it left run on until KillAll (an
	// agent may leave a service), and what they print later is read and dropped. A time-out kills
	// the whole tree, processes with a session of their own too. When ctx ends, the tree is killed
	// likewise and the error wraps ctx's cause.
	Exec(ctx context.Context, cmd Command) (Exit, error)

	// Put writes the files of src below dir (absolute, made with its parents when missing). Links
	// are written as links and never followed, neither in src nor in dir's existing content;
	// devices are refused.
	Put(ctx context.Context, dir string, src fs.FS) error

	// Get reads a file or a whole folder as a tar stream, names relative to the parent of name. A
	// missing name is fs.ErrNotExist, and so is one below what is no folder. Names are bytes. What
	// cannot be sent is an entry that [Files] refuses; devices, pipes and sockets may be missing.
	// The stream's content is hostile: read it with [Files] or with equal care. The caller closes.
	Get(ctx context.Context, name string) (io.ReadCloser, error)

	// KillAll ends all that Exec ever started, daemons too; when it returns nil, none of it runs.
	// Sidecars stay.
	KillAll(ctx context.Context) error

	// Close destroys the sandbox and everything in it. It may be called again and from several
	// goroutines, works after Create's context has ended, and bounds itself in time.
	Close() error
}

// A Provider hands out sandboxes under a budget for the whole process.
type Provider interface {
	// Acquire waits until all of specs fit beside what is already out, and reserves room for them.
	// It creates nothing. A request that could never fit fails at once with [ErrNeverFits]. A
	// caller that holds a lease must close it before it acquires another.
	Acquire(ctx context.Context, specs []Spec) (Lease, error)
}

// A Lease is room for the sandboxes of one Acquire.
type Lease interface {
	// Sandbox creates one sandbox, as one of the lease's specs; spec.Owner and details that do not
	// change its size may differ. It may wait for a turn to start, not for room. The lease's Close
	// closes it, if nobody did before.
	Sandbox(ctx context.Context, spec Spec) (Sandbox, error)

	// Close closes what is still open and gives the room back. It may be called again.
	Close() error
}

// An Owner says to whom a sandbox belongs. Run, Host, Boot and PID tell whether that somebody is
// still alive. A driver takes an Owner without a PID to be the process that asks.
type Owner struct {
	Run     string `json:"run"`
	Trial   string `json:"trial,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	Role    string `json:"role,omitempty"` // agent, grader, tool
	Host    string `json:"host"`
	Boot    string `json:"boot"` // the kernel's boot id
	PID     int    `json:"pid"`
	Start   uint64 `json:"start,omitempty"` // the process's start time in clock ticks since boot: PIDs come again
}

// An Image is the root file system of a sandbox. The zero value is the driver's default (for local:
// a minimal read-only view of this machine's system directories).
type Image struct {
	Ref        string            // a name that the driver understands; for local "dir:/path" is an unpacked root
	Dockerfile string            // text of a Dockerfile; Context belongs to it
	Context    fs.FS             // from os.Root, never from os.DirFS
	Args       map[string]string // build arguments
	Target     string            // stage of the Dockerfile; "": the last
	Platform   string            // "linux/amd64"; "": the driver's own
	Network    string            // of a build's commands: "" or "public", or "none"
	// for pulling or building it, waiting for another's turn not counted; 0: the driver's default
	Timeout time.Duration
	Name    string // what people are told that is being made; no part of its identity
}

// IsZero reports whether the image is the driver's default.
func (i Image) IsZero() bool {
	return i.Ref == "" && i.Dockerfile == "" && i.Context == nil && len(i.Args) == 0
}

// Built reports whether the image is built from a Dockerfile, and not known by a name.
func (i Image) Built() bool { return i.Dockerfile != "" || i.Context != nil }

// folder is how the reference of an unpacked image begins, a folder of this machine.
const folder = "dir:"

// Folder returns the folder of an unpacked image.
func (i Image) Folder() (path string, ok bool) { return strings.CutPrefix(i.Ref, folder) }

// NeedsEngine reports whether only a container engine can make a machine of the image.
func (i Image) NeedsEngine() bool { return !i.IsZero() && !strings.HasPrefix(i.Ref, folder) }

// CPUShare is the scheduler weight of a whole sandbox, where one process of the host, such as
// evalrun, has 1024. It is not a limit: idle processor time may be used.
const CPUShare = 128

// A Spec describes a sandbox to be made. Zero limits mean the driver's defaults, which are printed
// in the plan.
type Spec struct {
	Owner Owner
	Image Image
	// sidecars in main's private network, by the names that it knows them by; healthy before it
	// starts
	Services map[string]Spec
	After    []string // of a service: others that are healthy before it starts
	Aliases  []string // other names that the machine is known by, to its services and to itself
	// Entrypoint with Cmd is a child of our own process 1, and not ended by KillAll. Nil: the
	// image's. A service without a Cmd takes the image's; a main machine runs only what its spec,
	// or the image's ENTRYPOINT, says, so an image that only has a CMD starts nothing.
	Entrypoint []string
	Cmd        []string
	Setuid     bool   // commands may gain privileges by setuid programs (sudo, su)
	User       string // name or uid[:gid] that commands run as; "": the image's, else root inside
	Dir        string // working directory of commands, made when missing; "": the image's, else "/"
	Env        map[string]string
	CPUs       float64 // hard limit in cores
	Memory     int64   // hard limit in bytes
	Disk       int64   // hard limit in bytes of what is written to the root and /tmp
	Reserve    Reserve // what admission counts; zero fields: the hard limits
	Pids       int
	Health     *Health
	Platform   string // "linux/amd64"; "": the driver's own
	Shm        int64
	Tmpfs      map[string]int64
	Volumes    []Volume
	Network    Network
	Rewire     bool          // the network policy will be changed later (see [Rewirer])
	Orphan     time.Duration // without a word from its owner for so long, the machine ends itself; 0: the default
}

// Reserve is what a sandbox is counted at when room for it is sought.
type Reserve struct {
	CPUs   float64
	Memory int64
}

// A Health check is run by the executor inside the sandbox, whatever the engine.
type Health struct {
	Test                                          []string
	Interval, Timeout, StartPeriod, StartInterval time.Duration
	Retries                                       int
}

// A Volume is shared among the sandboxes of one session. It never is a path of the host.
type Volume struct {
	Name, Path string
	ReadOnly   bool
}

// A Network policy. The zero value is none: not even a route.
type Network struct {
	Mode  string // "" or "none", "public", "allow"
	Allow []string
}

// None reports whether the policy is no network at all.
func (n Network) None() bool { return n.Mode == "" || n.Mode == "none" }

// A Command is one program to run inside.
type Command struct {
	ID   string            // executed once; asked again, the remembered Exit comes back. "": not remembered
	Args []string          // no shell is added. What cannot be found or started is exit 127 or 126, not an error
	Dir  string            // "": the spec's
	User string            // "": the spec's
	Env  map[string]string // added to the spec's

	// Stdin nil is an empty input. Stdout and Stderr receive output as it comes; nil Stderr sends
	// both through Stdout, in exact order. Writes to them are never concurrent. A nil Stdout
	// discards. An error from a writer ends the transfer, not the command: that stream is only
	// counted from there on, and Exec does not return the error, which its caller's own writer
	// knows.
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	// Limit bounds the bytes handed on of each stream: the first half comes live, the last half at
	// the end with one line between them that says how many bytes are left out. 0: no limit.
	Limit int64
	// FullLimit bounds what is kept of the whole output in a file inside the sandbox, named by
	// Exit.Full, when Limit cut something. 0: 64 MiB; negative: nothing is kept.
	FullLimit int64
	Timeout   time.Duration // 0: none but ctx's
}

// An Exit is what became of a command.
type Exit struct {
	Code     int    // -1 when a signal ended it
	Signal   string // "SIGKILL"; "" when it exited
	Full     string // path inside of the complete output, when Limit cut something
	TimedOut bool
	OOM      bool  // killed for passing the sandbox's own memory limit
	Out, Err int64 // exact byte counts of the streams, also of what Limit left out
	Wall     time.Duration
	CPU      time.Duration // user and system time of the tree; 0 where it is not known
	MaxRSS   int64         // bytes, of the largest process; 0 where it is not known
}

// How says how a command ended that was given limit, in words that follow its name: "ran longer
// than 5s", "left with status 3".
func (e Exit) How(limit time.Duration) string {
	switch {
	case e.TimedOut:
		return fmt.Sprintf("ran longer than %v", limit)
	case e.OOM:
		return "ran out of memory"
	case e.Signal != "":
		return "was ended by " + e.Signal
	}
	return fmt.Sprintf("left with status %d", e.Code)
}
