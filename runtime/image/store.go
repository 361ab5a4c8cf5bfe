package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Store prepares images of one engine. It is safe for concurrent use, also by several processes
// that share a directory.
type Store struct {
	e            Engine
	o            Options
	known        digestCache
	preparations preparations
	builds       chan struct{}
	pulls        chan struct{}
	swept        atomic.Int64

	mu      sync.Mutex
	about   *About
	ready   map[string]readyImage
	current map[string]bool // pulled by this process
}

// A readyImage is the result of an inspection, valid for a short time.
type readyImage struct {
	info Info
	at   time.Time
}

// fresh is how long the result of an inspection is valid.
const fresh = 3 * time.Second

// New returns a Store. It accesses neither the engine nor the disk.
func New(e Engine, o Options) *Store {
	set := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	set(&o.Builds, max(1, runtime.NumCPU()/2))
	set(&o.Pulls, 4)
	set(&o.ContextFiles, 200_000)
	if o.ContextBytes <= 0 {
		o.ContextBytes = 4 << 30
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Minute
	}
	if o.Grace <= 0 {
		o.Grace = 10 * time.Minute
	}
	if o.LogBytes <= 0 {
		o.LogBytes = 4 << 20
	}
	if o.Dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			cache = filepath.Join(os.TempDir(), fmt.Sprintf("evalrun-%d", os.Getuid()))
		}
		o.Dir = filepath.Join(cache, "evalrun", "images")
	}
	return &Store{e: e, o: o, builds: make(chan struct{}, o.Builds), pulls: make(chan struct{}, o.Pulls),
		ready: map[string]readyImage{}, current: map[string]bool{}}
}

// Prepare makes an image available. It stays for at least Options.Grace. Concurrent callers for the
// same image, in this process or others, share one pull or build, which is canceled when the last
// of them has left. Errors are a *[sandbox.Error], whose Detail is the tail of a build's output, or
// an *[sandbox.Unsupported] for a Dockerfile that is refused.
func (s *Store) Prepare(ctx context.Context, img sandbox.Image) (Info, error) {
	info, err := s.prepare(ctx, img)
	if err == nil || errors.As(err, new(*sandbox.Error)) || errors.As(err, new(*sandbox.Unsupported)) {
		return info, err
	}
	var line *lineError
	if errors.As(err, &line) {
		return Info{}, &sandbox.Unsupported{Driver: "docker", What: fmt.Sprintf("building %s: %v", title(img), err)}
	}
	if img.Built() {
		err = fmt.Errorf("%w %s: %w", sandbox.ErrBuild, title(img), err)
	} else {
		err = fmt.Errorf("pulling %s: %w", title(img), err)
	}
	return Info{}, &sandbox.Error{Op: "prepare", Err: err, Permanent: errors.Is(err, ErrMissing)}
}

func (s *Store) prepare(ctx context.Context, img sandbox.Image) (Info, error) {
	if img.Built() {
		about, err := s.engine(ctx)
		if err != nil {
			return Info{}, err
		}
		r, err := s.recipe(ctx, about, img)
		if err != nil {
			return Info{}, err
		}
		return s.built(ctx, r)
	}
	if img.Ref == "" {
		return Info{}, errors.New("no image is named")
	}
	return s.pulled(ctx, img)
}

// ImageReady reports whether an image is available, without preparing it.
func (s *Store) ImageReady(ctx context.Context, img sandbox.Image) bool {
	about, err := s.engine(ctx)
	if err != nil {
		return false
	}
	if img.Built() {
		r, err := s.recipe(ctx, about, img)
		if err != nil {
			return false
		}
		if _, ok := s.remembered(r.key); ok {
			return true
		}
		_, err = s.find(ctx, r)
		return err == nil
	}
	key := pullKey(img)
	if s.o.Always && !s.askedRegistry(key) {
		return false
	}
	if _, ok := s.remembered(key); ok {
		return true
	}
	info, err := s.e.Inspect(ctx, img.Ref)
	return err == nil && matchesPlatform(info, img.Platform)
}

// title returns an image's name for people.
func title(img sandbox.Image) string {
	switch {
	case img.Name != "" && !img.Built() && img.Ref != img.Name:
		return fmt.Sprintf("the image %s of %s", img.Ref, img.Name)
	case img.Name != "":
		return "the image of " + img.Name
	case img.Built():
		return "an image from its Dockerfile"
	}
	return "the image " + img.Ref
}

func name(img sandbox.Image) string {
	if img.Name != "" {
		return img.Name
	}
	return img.Ref
}

// engine asks for the engine's description, once.
func (s *Store) engine(ctx context.Context) (About, error) {
	s.mu.Lock()
	known := s.about
	s.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	a, err := s.e.About(ctx)
	if err != nil {
		return About{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.about = &a
	return a, nil
}

// remembered returns the result for a key, if it is still valid.
func (s *Store) remembered(key string) (Info, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.ready[key]
	return r.info, ok && time.Since(r.at) < fresh
}

// remember stores a result, and records the use of the image for other processes.
func (s *Store) remember(key string, info Info, rec record) Info {
	s.mu.Lock()
	if len(s.ready) > 10_000 {
		clear(s.ready)
	}
	s.ready[key] = readyImage{info, time.Now()}
	s.mu.Unlock()
	s.used(info, rec)
	return info
}

// Forget drops the result for an image that Prepare returned but that was removed since.
func (s *Store) Forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, r := range s.ready {
		if r.info.ID == id || r.info.Ref == id {
			delete(s.ready, k)
		}
	}
}

// dir returns the directory for this engine's images.
func (s *Store) dir() string {
	id := "unknown"
	s.mu.Lock()
	if s.about != nil && s.about.ID != "" {
		id = s.about.ID
	}
	s.mu.Unlock()
	return filepath.Join(s.o.Dir, short(id))
}

func (s *Store) lockFile(what, key string) string {
	return filepath.Join(s.dir(), "locks", what+"-"+short(key))
}

func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:12])
}

// limited runs work when it gets a turn, under an image's timeout, which starts with the turn.
func (s *Store) limited(ctx context.Context, turns chan struct{}, img sandbox.Image,
	work func(context.Context) error) error {
	select {
	case turns <- struct{}{}:
		defer func() { <-turns }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	limit := img.Timeout
	if limit <= 0 {
		limit = s.o.Timeout
	}
	late := fmt.Errorf("it took longer than its time limit, %s; raise it: phases.image, or, where the task sets one, "+
		"by its benchmark's options", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	err := work(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// diskAdvice adds what to do about a full disk.
func diskAdvice(err error) error {
	return fmt.Errorf("%w; free some with evalrun images prune --all", err)
}

// advice adds what to do about a pull's error.
func advice(err error) error {
	text := strings.ToLower(err.Error())
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(text, w) {
				return true
			}
		}
		return false
	}
	switch {
	case errors.Is(err, ErrAway): // its message says what to do, and the registry is not involved
		return err
	case errors.Is(err, ErrDiskFull):
		return diskAdvice(err)
	case has("toomanyrequests", "rate limit"):
		return fmt.Errorf("%w; the registry limits pulls: log in with docker login, or wait", err)
	case has("unauthorized", "denied", "authentication required", "no basic auth credentials"):
		return fmt.Errorf("%w; it does not exist, or wants a name: docker login REGISTRY", err)
	case has("manifest unknown", "not found", "no matching manifest"):
		return fmt.Errorf("%w; look at name, tag and platform", err)
	case has("no such host", "connection refused", "network is unreachable", "i/o timeout", "tls handshake",
		"connection reset", "eof", "no route to host", "context deadline exceeded"):
		return fmt.Errorf("%w; the registry cannot be reached from the engine: look at its network and proxy, or "+
			"bring the image by docker load", err)
	}
	return err
}
