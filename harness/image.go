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

// Images makes images ready before room for their machines is taken, for all trials of a run. What
// failed in a way that lasts is not tried again for a while: each trial of a task that cannot be
// built says so, and the build runs once. Its exported fields are set before use.
type Images struct {
	// Get makes one image ready and returns its digest; it is sandbox.Driver.Prepare, and keeps
	// Image.Timeout by itself, since waiting for somebody else's turn is not counted in that.
	Get func(ctx context.Context, img sandbox.Image) (string, error)
	// Timeout is for images that do not say it; 0: the driver's.
	Timeout time.Duration
	// Remember is how long a failure that lasts is not tried again; 0: 10 minutes.
	Remember time.Duration

	mu      sync.Mutex
	failed  map[string]failedImage
	digests map[string]string
	logs    map[string]*imageLog // by digest
}

// An imageLog is what a build printed: the text until a trial has kept it, then where it is.
type imageLog struct {
	mu   sync.Mutex
	text []byte
	sum  string
}

type failedImage struct {
	err   error
	until time.Time
}

// Ready makes an image ready, on behalf of a task (its digest: two tasks may have builds of one
// name).
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

// Built is told what the build of an image has printed. The first trial that uses the image keeps
// it.
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

// Digests are those of the images that were made ready, by name.
func (m *Images) Digests() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.digests)
}

func lasting(err error) bool {
	var sb *sandbox.Error
	return errors.As(err, &sb) && sb.Permanent
}

// imageName is what people call an image.
func imageName(img sandbox.Image) string {
	switch {
	case img.Name != "":
		return img.Name
	case img.Ref != "":
		return img.Ref
	}
	return "Dockerfile"
}

// images makes the images of specs ready, services with them.
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

// imageLog keeps what the build of an image has printed and returns its place among the blobs; ""
// where this run has not built it, or it cannot be kept: the image is as good without.
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

// keep puts a text where the verdict can name it, durable before the verdict is.
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

// errImage is an image that could not be made ready.
type errImage struct {
	name string
	err  error
}

func (e *errImage) Error() string {
	var sb *sandbox.Error
	if errors.As(e.err, &sb) && strings.Contains(sb.Err.Error(), e.name) { // it says by itself what was being made
		return sb.Err.Error()
	}
	return "image " + e.name + ": " + e.err.Error()
}
func (e *errImage) Unwrap() error { return e.err }

// imageFault says what an image that could not be made ready means. It is no evidence about an
// agent, whosever fault it is; and it is not "skipped" either, which would take the trial out of
// the coverage as if nobody had wanted it. A failure that lasts is not tried again.
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

// lastLines are the last lines of a text, at most n of them and max bytes.
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
