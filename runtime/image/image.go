// Package image prepares the images of sandboxes. It pulls them or builds them from Dockerfiles,
// keeps them for later runs, and removes the least recently used ones to stay within a budget. It
// uses container engines through the interface [Engine]; runtime/docker implements it, and
// imagetest in memory.
//
// Dockerfiles, build contexts and the output of builds are hostile. What a build could use to reach
// beyond its own container (the engine's host network, privileges, secrets, remote contexts when
// the network is off) is refused before the engine sees it, with name and line.
package image

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

var (
	// ErrMissing: the engine has no such image.
	ErrMissing = errors.New("no such image")
	// ErrInUse: a container or another image still needs it.
	ErrInUse = errors.New("image is in use")
	// ErrDiskFull: the engine's disk is full.
	ErrDiskFull = errors.New("the engine's disk is full")
	// ErrSource: a COPY or ADD of a build names a file that does not exist.
	ErrSource = errors.New("a COPY or ADD whose source is not there")
	// ErrAway: the engine is unavailable. That says nothing about the image.
	ErrAway = errors.New("the engine went away")
)

// Info describes an image of the engine.
type Info struct {
	ID       string   // the engine's: "sha256:…" of its configuration
	Digest   string   // the registry's digest of a pulled image, else the ID
	Ref      string   // a name to start it by
	Tags     []string // all its names
	OS, Arch string
	Size     int64 // bytes of all layers, shared ones too
	Created  time.Time
	Labels   map[string]string
	Config   Config
}

// Config is an image's configuration of processes.
type Config struct {
	User, Dir       string
	Env             []string // NAME=value
	Entrypoint, Cmd []string
	Shell           []string
	Health          *sandbox.Health // nil: none, or disabled
	Ports           []string        // "80/tcp"
	OnBuild         []string        // ONBUILD steps, for builds based on it
}

// About describes an engine.
type About struct {
	ID       string // of the engine's installation; records of images belong to it
	Version  string // "20.10.24"
	OS, Arch string
	Dir      string // its image directory, if that is on this machine; else ""
	BuildKit bool
	// Frontend is the version of the Dockerfile language of its built-in BuildKit frontend, such as
	// {1, 2}. The classic builder has none.
	Frontend [2]int
}

// An Engine stores images. Its methods are safe for concurrent use and return when ctx ends.
type Engine interface {
	About(ctx context.Context) (About, error)

	// Inspect describes an image by name or ID. [ErrMissing] is definite.
	Inspect(ctx context.Context, ref string) (Info, error)

	// Pull fetches an image from its registry. It returns [ErrDiskFull] if the disk is full.
	Pull(ctx context.Context, p Pull) error

	// Build builds an image and names it. [ErrDiskFull] and [ErrAway] are the engine's own errors,
	// not a command's output. When Build returns, for whatever reason, the engine is not building
	// any more.
	Build(ctx context.Context, b Build) error

	// List returns all images, also unnamed ones.
	List(ctx context.Context) ([]Info, error)

	// Remove removes a name, or by ID an unnamed image. Layers that no other image needs are
	// removed with the last name. It is never forced, but returns [ErrInUse].
	Remove(ctx context.Context, ref string) error

	// Containers returns all containers, running or not, whoever has created them.
	Containers(ctx context.Context) ([]Container, error)

	// RemoveContainer removes a container of a build that is not running. For a running one it
	// returns ErrInUse.
	RemoveContainer(ctx context.Context, id string) error

	// PruneCache removes what was not used for so long from the builder's cache, and returns the
	// bytes freed.
	PruneCache(ctx context.Context, unused time.Duration) (int64, error)
}

// A Container is a container of the engine.
type Container struct {
	ID      string
	Image   string // ID of its image
	Running bool
	Labels  map[string]string
}

// A Pull is a request to pull an image.
type Pull struct {
	Ref, Platform string
	Auth          Auth
	Progress      func(current, total int64) // bytes of layers; called often
}

// Auth are credentials for a registry. The zero value means anonymous access.
type Auth struct {
	Username      string `json:"username,omitempty"`
	Password      string `json:"password,omitempty"`
	ServerAddress string `json:"serveraddress,omitempty"`
	IdentityToken string `json:"identitytoken,omitempty"`
}

// A Build is a request to build an image.
type Build struct {
	Tag        string
	Labels     map[string]string
	Context    io.Reader // a tar stream
	Dockerfile string    // its name in the context
	Args       map[string]string
	Target     string
	Platform   string
	Network    string  // "" or "none"
	Classic    bool    // the classic builder, not BuildKit
	CPUs       float64 // CPUs for its commands, with the classic builder only; 0: no limit
	Memory     int64
	Log        io.Writer         // receives the output
	Step       func(text string) // called for each step that begins
}

// Progress reports on a preparation.
type Progress struct {
	Name           string // of the image, for people
	Ref            string // the name that it will have, which is unique
	Doing          string // "pull", "build"
	Current, Total int64  // of a pull: bytes of its layers, as far as known
	Step           string // of a build; hostile
	Done           bool   // the last report of this preparation
	Err            error
}

// An Outcome is the result of one pull or build.
type Outcome struct {
	Name, Ref string
	Key       string // of a build
	Digest    string // of what was made
	Doing     string // "pull", "build"
	Took      time.Duration
	Log       []byte // of a build: the first and the last part of its output, up to Options.LogBytes; hostile
	Err       error
}

// Options of a Store. Zero fields are the defaults.
type Options struct {
	// Dir is a directory for locks and usage records, shared by all evalrun processes of this user.
	// Default: evalrun/images in the user's cache directory.
	Dir string
	// Timeout limits one pull or build if the image sets no timeout; default 10 minutes. It does
	// not include waiting for other pulls and builds.
	Timeout time.Duration
	// Builds and Pulls limit how many run at once in this process. Default: half the number of
	// cores (at least one), and four.
	Builds, Pulls int
	// Budget limits the bytes of images that we built or pulled. 0: 60 % of the sum of these images
	// and the free space of the engine's disk. If that is not known, or if Budget is negative,
	// there is no limit.
	Budget int64
	// Grace protects images that were used within this time from removal; default 10 minutes.
	Grace time.Duration
	// Always pulls images that exist too, once per Store, to notice that a tag has moved.
	Always bool
	// ContextBytes and ContextFiles limit a build context after .dockerignore; default 4 GiB and
	// 200,000.
	ContextBytes int64
	ContextFiles int
	// CPUs and Memory limit the commands of each build, if the builder supports it.
	CPUs   float64
	Memory int64
	// Classic selects the classic builder even if there is BuildKit.
	Classic bool
	// LogBytes of a build's output are kept for Outcome; default 4 MiB.
	LogBytes int64
	// Progress and Done, if not nil, receive reports. They may be called concurrently and must not
	// block.
	Progress func(Progress)
	Done     func(Outcome)
	// Config is the directory of Docker's client configuration, with credentials for registries.
	// Default: DOCKER_CONFIG, else .docker in the home directory.
	Config string
}
