// Package sandbox defines the interfaces of sandboxes. It imports the standard library only and
// knows no implementation.
//
// A [Driver] creates sandboxes of one kind (Linux namespaces, Docker, in memory). A [Provider]
// hands them out under a budget for the whole process. A [Sandbox] is one isolated machine, owned
// by one attempt of one trial. What only some kinds support is an ability ([Dialer], [Listener],
// [Stater] …): a small interface of its own, which [As] finds, also through wrappers.
//
// Everything that comes out of a sandbox (output, archives, file names) is hostile.
package sandbox

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"
)

// A Driver creates sandboxes of one kind. Its methods are safe for concurrent use.
type Driver interface {
	// Name is the driver's name in configurations and records: "local", "docker", "fake", "none".
	Name() string

	// Probe returns nil if the driver works on this machine, and else the reason. Callers add the
	// driver's name. It leaves nothing behind.
	Probe(ctx context.Context) error

	// Prepare makes an image available (by pulling, building or unpacking it) and returns its
	// digest. Concurrent callers for the same image share one preparation. The zero Image is always
	// available; its digest is "".
	Prepare(ctx context.Context, img Image) (digest string, err error)

	// Create starts a sandbox. If it fails, it leaves nothing behind. What the driver does not
	// support (a network, another user) is an [Unsupported] error; it is never silently ignored.
	Create(ctx context.Context, spec Spec) (Sandbox, error)

	// Find returns a sandbox that another process of ours has created, if it has outlived that process
	// (see Spec.Orphan); it belongs to this process from now on. [ErrGone] is definite; any other error means that it is not known now.
	Find(ctx context.Context, id string) (Sandbox, error)

	// Reap removes the sandboxes whose owner is not alive, with all traces. It returns the number
	// of removed ones, also together with an error.
	Reap(ctx context.Context, alive func(Owner) bool) (int, error)
}

// Implied is what Sys of a fs.FileInfo returns for a folder that src has only because there are files
// in it: Put creates it if it is missing, and otherwise leaves it as it is.
type Implied struct{}

// A Sandbox is one isolated machine. Its methods are safe for concurrent use. Their errors (usually
// an *[Error]) are failures of the sandbox, not of what runs inside.
type Sandbox interface {
	// ID is unique for the driver. Find takes it.
	ID() string

	// Exec runs one command and returns its result. A nonzero exit code, death by a signal and a
	// timeout are results, not errors. Exec returns when the command's own process has ended and
	// the data then in its pipes is delivered. Processes that it started go on until KillAll (an
	// agent may start a service); their later output is read and dropped. A timeout kills all of
	// them, also processes with a session of their own. When ctx ends, they are killed likewise,
	// and the error wraps ctx's cause.
	Exec(ctx context.Context, cmd Command) (Exit, error)

	// Put writes the files of src below dir (an absolute path, created with its parents if
	// missing). Links are written as links and never followed, neither in src nor in dir's existing
	// content. Devices are refused. A folder that exists gets the mode and time of src's, unless it is
	// [Implied].
	Put(ctx context.Context, dir string, src fs.FS) error

	// Get reads a file or a whole directory as a tar stream, with names relative to the parent of
	// name. If name does not exist or is below a file, the error is fs.ErrNotExist. Names are
	// bytes. What cannot be sent is an entry that [Files] refuses; devices, pipes and sockets may
	// be missing. The stream is hostile: read it with [Files], or with equal care. The caller
	// closes it.
	Get(ctx context.Context, name string) (io.ReadCloser, error)

	// KillAll kills all processes that Exec ever started, including daemons. When it returns nil,
	// none of them is running. Sidecars go on.
	KillAll(ctx context.Context) error

	// Close destroys the sandbox and everything in it. It may be called again and concurrently,
	// works after Create's context has ended, and has a time limit of its own.
	Close() error
}

// A Provider hands out sandboxes under a budget for the whole process.
type Provider interface {
	// Acquire waits until all of specs fit beside what is in use, and reserves room for them. It
	// creates nothing. A request that can never fit fails at once with [ErrNeverFits]. A caller
	// that holds a lease must close it before it acquires another.
	Acquire(ctx context.Context, specs []Spec) (Lease, error)
}

// A Lease is room for the sandboxes of one Acquire.
type Lease interface {
	// Sandbox creates one of the lease's sandboxes. Its spec may differ in the owner and in details
	// that do not change its size. Sandbox may wait for a turn to start, but not for room. The
	// lease's Close closes the sandbox, if nobody did before.
	Sandbox(ctx context.Context, spec Spec) (Sandbox, error)

	// Close closes the sandboxes that are still open. A provider may remove sandboxes in the
	// background; their room is released when they are removed. It may be called again.
	Close() error
}

// A Finder is a lease that can hold a sandbox of a dead process.
type Finder interface {
	// Find returns the sandbox with this ID, as [Driver].Find does. Its room is that of spec, as for
	// Sandbox, and the lease's Close closes it.
	Find(ctx context.Context, spec Spec, id string) (Sandbox, error)
}

// An Owner identifies whom a sandbox belongs to. Run, Host, Boot and PID tell whether that owner is
// alive. A driver replaces an Owner without a PID by the calling process.
type Owner struct {
	Run     string `json:"run"`
	Trial   string `json:"trial,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	Role    string `json:"role,omitempty"` // agent, grader, tool
	Host    string `json:"host"`
	Boot    string `json:"boot"` // the kernel's boot id
	PID     int    `json:"pid"`
	Start   uint64 `json:"start,omitempty"` // the process's start time in clock ticks since boot, since PIDs are reused
}

// An Image is the root file system of a sandbox. The zero value is the driver's default (for local:
// a minimal read-only view of this machine's system directories).
type Image struct {
	Ref        string            // a name that the driver understands; for local, "dir:/path" is an unpacked root
	Dockerfile string            // text of a Dockerfile; Context belongs to it
	Context    fs.FS             // from os.Root, never from os.DirFS
	Args       map[string]string // build arguments
	Target     string            // stage of the Dockerfile; "": the last
	Platform   string            // "linux/amd64"; "": the driver's own
	Network    string            // network of a build's commands: "" or "public", or "none"
	// for pulling or building it, without waiting for other preparations; 0: the driver's default
	Timeout time.Duration
	Name    string // name for progress messages; not part of the image's identity
}

// IsZero reports whether the image is the driver's default.
func (i Image) IsZero() bool {
	return i.Ref == "" && i.Dockerfile == "" && i.Context == nil && len(i.Args) == 0
}

// Built reports whether the image is built from a Dockerfile.
func (i Image) Built() bool { return i.Dockerfile != "" || i.Context != nil }

// folder is the prefix of references to unpacked images, directories of this machine.
const folder = "dir:"

// Folder returns the directory of an unpacked image.
func (i Image) Folder() (path string, ok bool) { return strings.CutPrefix(i.Ref, folder) }

// NeedsEngine reports whether the image needs a container engine.
func (i Image) NeedsEngine() bool { return !i.IsZero() && !strings.HasPrefix(i.Ref, folder) }

// CPUShare is the scheduler weight of a whole sandbox, where one process of the host, such as
// evalrun, has 1024. It is not a limit: idle processor time may be used.
const CPUShare = 128

// A Spec describes a sandbox to create. Zero limits mean the driver's defaults, which are printed
// in the plan.
type Spec struct {
	Owner Owner
	Image Image
	// sidecars in main's private network, by their host names; they are healthy before main starts
	Services map[string]Spec
	After    []string // of a service: others that must be healthy before it starts
	Aliases  []string // other host names of the sandbox, for its services and itself
	// Entrypoint with Cmd runs as a child of our process 1, and is not killed by KillAll. Nil: the
	// image's. A service without a Cmd uses the image's. The main sandbox runs only what its spec
	// or the image's ENTRYPOINT says, so an image with only a CMD starts nothing.
	Entrypoint []string
	Cmd        []string
	Setuid     bool   // commands may gain privileges by setuid programs (sudo, su)
	Trace      bool   // commands can be traced (method Trace of the executor's client)
	User       string // name or uid[:gid] of commands; "": the image's, else root inside
	Dir        string // working directory of commands, created if missing; "": the image's, else "/"
	Env        map[string]string
	CPUs       float64 // hard limit in cores
	Memory     int64   // hard limit in bytes
	Disk       int64   // hard limit in bytes of what is written to the root and /tmp
	Reserve    Reserve // counted for admission; zero fields: the hard limits
	Pids       int
	Health     *Health
	Platform   string // "linux/amd64"; "": the driver's own
	Shm        int64
	Tmpfs      map[string]int64
	Volumes    []Volume
	Network    Network
	Rewire     bool // the network policy will be changed later (see [Rewirer])
	// Orphan is how long the sandbox outlives its owner's last word, to be found by another process.
	// 0: the driver's default, which may be that it ends with its owner.
	Orphan time.Duration
}

// Reserve is what a sandbox counts for admission.
type Reserve struct {
	CPUs   float64
	Memory int64
	// Like names sandboxes that use about as much memory, so that what some of them used tells how
	// many fit at once. "": nothing is known of it.
	Like string
}

// A Health check is run by the executor inside the sandbox, with every engine.
type Health struct {
	Test                                          []string
	Interval, Timeout, StartPeriod, StartInterval time.Duration
	Retries                                       int
}

// A Volume is shared by the sandboxes of one session. It never is a path of the host.
type Volume struct {
	Name, Path string
	ReadOnly   bool
}

// A Network policy. The zero value is no network, not even a route.
type Network struct {
	Mode  string // "" or "none", "public", "allow"
	Allow []string
}

// None reports whether the policy is no network at all.
func (n Network) None() bool { return n.Mode == "" || n.Mode == "none" }

// A Command is one program to run inside.
type Command struct {
	ID   string            // executed once; a second Exec returns the stored Exit. "": not stored
	Args []string          // run without a shell. One that cannot be started is exit code 127 or 126, not an error
	Dir  string            // "": the spec's
	User string            // "": the spec's
	Env  map[string]string // added to the spec's

	// A nil Stdin is empty. Stdout and Stderr receive output as it arrives; with a nil Stderr both
	// go to Stdout, in exact order. Writes are never concurrent. A nil Stdout discards. If a writer
	// fails, the rest of that stream is only counted, the command goes on, and Exec does not return
	// the error.
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	// Limit limits the bytes delivered of each stream: the first half as it arrives, and the last
	// half at the end, with a line between them that says how many bytes are left out. 0: no limit.
	Limit int64
	// FullLimit limits the size of the file inside the sandbox that has the complete output, named
	// by Exit.Full, if Limit left something out. 0: 64 MiB; negative: no file.
	FullLimit int64
	Timeout   time.Duration // 0: limited by ctx only
}

// An Exit is the result of a command.
type Exit struct {
	Code     int    // -1 if a signal killed it
	Signal   string // "SIGKILL"; "" when it exited
	Full     string // path of the complete output inside, if Limit left something out
	TimedOut bool
	OOM      bool  // killed for exceeding the sandbox's own memory limit
	Out, Err int64 // exact byte counts of the streams, including what Limit left out
	Wall     time.Duration
	CPU      time.Duration // user and system time of the tree; 0 where it is not known
	MaxRSS   int64         // bytes, of the largest process; 0 where it is not known
}

// How describes how a command with this time limit ended, to follow its name: "ran longer than 5s",
// "left with status 3".
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
