// Package image makes the images of sandboxes ready: it pulls them, builds them from Dockerfiles,
// keeps them for the next run and removes what was not used for long, within a budget. It knows
// engines by an interface only; runtime/docker has the real one, imagetest one in memory.
//
// A Dockerfile, its context and the output of a build were written by somebody who is not to be
// trusted. What a build could use to reach past its own machine (the engine's host network,
// privileges, secrets, remote contexts where the network is off) is refused before the engine sees
// it, by name and line.
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
	// ErrInUse: a container, or another image, still needs it.
	ErrInUse = errors.New("image is in use")
	// ErrDiskFull: the engine's disk is full.
	ErrDiskFull = errors.New("the engine's disk is full")
	// ErrSource: a step of a build copies what is not there.
	ErrSource = errors.New("a COPY or ADD whose source is not there")
	// ErrAway: the engine went away, or is not there. It says nothing about the image.
	ErrAway = errors.New("the engine went away")
)

// Info is an image that is ready.
type Info struct {
	ID       string   // the engine's: "sha256:…" of its configuration
	Digest   string   // what identifies it elsewhere: the registry's digest of a pulled image, else the ID
	Ref      string   // the name it can be started by
	Tags     []string // all of its names
	OS, Arch string
	Size     int64 // bytes of all layers, shared ones too
	Created  time.Time
	Labels   map[string]string
	Config   Config
}

// Config is what an image says about the processes that are started from it.
type Config struct {
	User, Dir       string
	Env             []string // NAME=value
	Entrypoint, Cmd []string
	Shell           []string
	Health          *sandbox.Health // nil: none, or switched off
	Ports           []string        // "80/tcp"
	OnBuild         []string        // steps of builds that begin with it
}

// About is what an engine is.
type About struct {
	ID       string // of the engine's installation; what is kept between runs belongs to it
	Version  string // "20.10.24"
	OS, Arch string
	Dir      string // where it keeps images, when that is a folder of this machine; "" else
	BuildKit bool
	// Frontend is the version of the Dockerfile language that its own BuildKit frontend reads, as
	// {1, 2}. The classic builder has none.
	Frontend [2]int
}

// An Engine keeps images. Its methods may be called from several goroutines; what they wait for
// ends with ctx.
type Engine interface {
	About(ctx context.Context) (About, error)

	// Inspect describes an image by name or ID. [ErrMissing] is definite.
	Inspect(ctx context.Context, ref string) (Info, error)

	// Pull fetches an image from its registry. [ErrDiskFull] is told apart.
	Pull(ctx context.Context, p Pull) error

	// Build builds an image and names it. [ErrDiskFull] and [ErrAway] are the engine's own finding,
	// not what a command printed. When it returns, also with an error or because ctx has ended, the
	// engine builds no more.
	Build(ctx context.Context, b Build) error

	// List is all images, unnamed ones too.
	List(ctx context.Context) ([]Info, error)

	// Remove takes a name, or by ID an unnamed image, away; layers that nothing else needs go with
	// the last name. It is never forced: [ErrInUse].
	Remove(ctx context.Context, ref string) error

	// Containers are all containers, of anybody, running or not.
	Containers(ctx context.Context) ([]Container, error)

	// RemoveContainer removes a container that a build left behind and that does not run; else
	// ErrInUse.
	RemoveContainer(ctx context.Context, id string) error

	// PruneCache empties the builder's cache of what nobody used for so long, and returns the bytes
	// that this freed.
	PruneCache(ctx context.Context, unused time.Duration) (int64, error)
}

// A Container is what the engine says about one.
type Container struct {
	ID      string
	Image   string // ID of its image
	Running bool
	Labels  map[string]string
}

// A Pull is one image to fetch.
type Pull struct {
	Ref, Platform string
	Auth          Auth
	Progress      func(current, total int64) // bytes of layers; called often
}

// Auth is what a registry is told. The zero value is nobody in particular.
type Auth struct {
	Username      string `json:"username,omitempty"`
	Password      string `json:"password,omitempty"`
	ServerAddress string `json:"serveraddress,omitempty"`
	IdentityToken string `json:"identitytoken,omitempty"`
}

// A Build is one image to build.
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
	CPUs       float64 // limits of its commands, where the builder has them (the classic one); 0: none
	Memory     int64
	Log        io.Writer         // what it prints
	Step       func(text string) // the step that now runs
}

// Progress is how far a preparation is.
type Progress struct {
	Name           string // of the image, for people
	Ref            string // the name that it gets; tells images apart that are called the same
	Doing          string // "pull", "build"
	Current, Total int64  // of a pull: bytes of its layers, as far as known
	Step           string // of a build; hostile
	Done           bool   // the last of this preparation
	Err            error
}

// An Outcome is what became of one pull or build.
type Outcome struct {
	Name, Ref string
	Key       string // of a build
	Digest    string // of what was made
	Doing     string // "pull", "build"
	Took      time.Duration
	Log       []byte // of a build: the beginning and the end of what it printed, up to Options.LogBytes; hostile
	Err       error
}

// Options of a Store. Zero fields are the defaults.
type Options struct {
	// Dir keeps locks and the times of last use, shared by all evalruns of this user. Default:
	// evalrun/images below the user's cache folder.
	Dir string
	// Timeout is for one pull or build, where the image does not say; default 10 minutes. Waiting
	// for a turn or for another's work does not count.
	Timeout time.Duration
	// Builds and Pulls bound how many run at once in this process. Default: half of the cores (at
	// least one), and four.
	Builds, Pulls int
	// Budget is how many bytes images that we made or pulled may take. 0: six tenths of what is
	// free on the engine's disk and theirs together; where that is not known, and when it is
	// negative, there is no limit.
	Budget int64
	// Grace protects what was used so lately from the budget; default 10 minutes.
	Grace time.Duration
	// Always asks the registry, once in the life of the Store, for images that are there too, so
	// that a tag that has moved is noticed.
	Always bool
	// ContextBytes and ContextFiles bound a build's context after .dockerignore; default 4 GiB and
	// 200,000.
	ContextBytes int64
	ContextFiles int
	// CPUs and Memory are limits of each build's commands, where the builder has them.
	CPUs   float64
	Memory int64
	// Classic builds with the classic builder also where there is BuildKit.
	Classic bool
	// LogBytes of a build's output are kept for Outcome; default 4 MiB.
	LogBytes int64
	// Progress and Done, when not nil, are told what goes on. They may be called from several
	// goroutines and must not wait.
	Progress func(Progress)
	Done     func(Outcome)
	// Config is the folder of Docker's client configuration, for registries that want a name.
	// Default: DOCKER_CONFIG, else .docker in the home folder.
	Config string
}
