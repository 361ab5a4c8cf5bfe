package harness

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Images prepares images for all trials of a run, before sandbox capacity is acquired. A permanent
// failure is remembered for a while, so that a build that cannot succeed runs once and each trial
// of the task reports it. Exported fields must be set before use.
type Images struct {
	// Get prepares one image and returns its digest, like sandbox.Driver.Prepare. It enforces
	// Image.Timeout itself, because waiting for another caller's build does not count.
	Get func(ctx context.Context, img sandbox.Image) (string, error)
	// Timeout applies to images without their own timeout; 0 means the driver's default.
	Timeout time.Duration
	// Remember is how long a permanent failure is not retried; 0 means 10 minutes.
	Remember time.Duration

	mu      sync.Mutex
	failed  map[string]failedImage
	digests map[string]string
	logs    map[string]*imageLog // keyed by digest
}

// An imageLog holds a build's output: the text until a trial has stored it, then the blob's digest.
type imageLog struct {
	mu   sync.Mutex
	text []byte
	sum  string
}

type failedImage struct {
	err   error
	until time.Time
}

// Ready prepares an image and returns its digest. task is the digest of the task, because two tasks
// may have builds of the same name.
func (m *Images) Ready(ctx context.Context, task string, img sandbox.Image) (digest string, err error) {
	if img.IsZero() {
		return "", nil
	}
	if img.Timeout == 0 {
		img.Timeout = m.Timeout
	}
	key := img.Ref + "\x00" + img.Platform
	if img.Built() {
		key = strings.Join([]string{task, img.Name, img.Target, img.Dockerfile, key}, "\x00")
	}
	m.mu.Lock()
	f, ok := m.failed[key]
	m.mu.Unlock()
	if ok && time.Now().Before(f.until) {
		return "", f.err
	}
	digest, err = m.Get(ctx, img)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		if m.digests == nil {
			m.digests = map[string]string{}
		}
		m.digests[imageName(img)] = digest
		delete(m.failed, key)
	case ctx.Err() == nil && lasting(err):
		if m.failed == nil {
			m.failed = map[string]failedImage{}
		}
		remember := m.Remember
		if remember <= 0 {
			remember = 10 * time.Minute
		}
		m.failed[key] = failedImage{err, time.Now().Add(remember)}
	}
	return digest, err
}

// Built passes in the output of an image's build. The first trial that uses the image stores it.
func (m *Images) Built(digest string, log []byte) {
	if len(log) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.logs == nil {
		m.logs = map[string]*imageLog{}
	}
	m.logs[digest] = &imageLog{text: log}
}

// Digests returns the digests of the prepared images by image name.
func (m *Images) Digests() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.digests)
}

func lasting(err error) bool {
	var sb *sandbox.Error
	return errors.As(err, &sb) && sb.Permanent
}

// imageName returns the name of an image to show to people.
func imageName(img sandbox.Image) string {
	switch {
	case img.Name != "":
		return img.Name
	case img.Ref != "":
		return img.Ref
	}
	return "Dockerfile"
}

// images prepares the images of specs and of their services.
func (a *attempt) images(ctx context.Context, role string, specs []sandbox.Spec) error {
	if a.Images == nil {
		return nil
	}
	defer a.since(func(t *record.Times) *time.Duration { return &t.Image })()
	for _, s := range withServices(specs) {
		img := s.Image
		if img.IsZero() {
			continue
		}
		if img.Platform == "" {
			img.Platform = s.Platform
		}
		digest, err := a.Images.Ready(ctx, a.job.Task.Digest, img)
		if err != nil {
			return &errImage{imageName(img), err}
		}
		x := record.Image{Role: role, Name: a.Mask.String(imageName(img)), Digest: digest, Log: a.imageLog(ctx, digest)}
		a.mu.Lock()
		if !slices.Contains(a.made, x) {
			a.made = append(a.made, x)
		}
		a.mu.Unlock()
	}
	return nil
}

// imageLog stores the output of an image's build and returns the blob's digest. It returns "" if
// this run did not build the image or the output cannot be stored; the image is usable anyway.
func (a *attempt) imageLog(ctx context.Context, digest string) string {
	a.Images.mu.Lock()
	l := a.Images.logs[digest]
	a.Images.mu.Unlock()
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sum == "" {
		if l.sum = a.keep(ctx, string(l.text)); l.sum != "" {
			l.text = nil
		}
	}
	return l.sum
}

// keep stores a text as a durable blob and returns its digest for use in the verdict. It returns ""
// if that fails.
func (a *attempt) keep(ctx context.Context, text string) string {
	ctx = context.WithoutCancel(ctx)
	b, err := a.log.PutBlob(ctx, "text/plain", strings.NewReader(text))
	if err == nil {
		err = a.Blobs.Sync(ctx)
	}
	if err != nil {
		a.Slog.Warn("the details of an error are not kept", "trial", a.job.Trial, "err", err)
		return ""
	}
	return b.SHA256
}

func withServices(specs []sandbox.Spec) (out []sandbox.Spec) {
	for _, s := range specs {
		out = append(out, s)
		for _, side := range s.Services {
			out = append(out, withServices([]sandbox.Spec{side})...)
		}
	}
	return out
}

// errImage says that an image could not be prepared.
type errImage struct {
	name string
	err  error
}

func (e *errImage) Error() string {
	var sb *sandbox.Error
	if errors.As(e.err, &sb) && strings.Contains(sb.Err.Error(), e.name) { // the error already names the image
		return sb.Err.Error()
	}
	return "image " + e.name + ": " + e.err.Error()
}
func (e *errImage) Unwrap() error { return e.err }

// imageFault converts a failure to prepare an image into a cause. The failure is not evidence about
// the agent, whoever caused it. It is not "skipped" either, because that would remove the trial
// from the coverage. A permanent failure is not retried.
func (a *attempt) imageFault(ctx context.Context, err error) cause {
	c := phaseFault(ctx, "image", err)
	if c.Fault.Status != record.Infra || c.Storage != nil {
		return c
	}
	var sb *sandbox.Error
	if !errors.As(err, &sb) || !sb.BadRequest {
		c.Fault.Class = "image"
	}
	if lasting(err) {
		c.Again, c.Lasting = false, true
	}
	if sb == nil || sb.Detail == "" {
		return c
	}
	if end := lastLines(sb.Detail, 12, 2<<10); !strings.Contains(c.Fault.Text, strings.TrimSpace(end)) {
		c.Fault.Text += "\n" + end
	}
	c.Fault.Detail = a.keep(ctx, cmp.Or(sb.Log, sb.Detail))
	return c
}

// lastLines returns the end of a text: at most n lines and about max bytes.
func lastLines(s string, n, max int) string {
	s = strings.TrimRight(strings.ToValidUTF8(s, "\uFFFD"), "\n")
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '\n' {
			n--
		}
		if n == 0 || len(s)-i > max {
			return "… " + strings.TrimLeft(strings.ToValidUTF8(s[i:], ""), "\n")
		}
	}
	return s
}
