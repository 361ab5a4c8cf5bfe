// Package imagetest has an engine in memory, and the tests that every [image.Engine] passes.
package imagetest

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/runtime/image"
)

// An Engine keeps images in memory. Its builder knows FROM, COPY (whole names), LABEL, ENV, USER,
// WORKDIR, and of RUN: "echo TEXT", "sleep SECONDS" (which ends with the build's context), "exit N"
// and "fill", which finds the disk full. Fields are set before use.
type Engine struct {
	ID       string
	Remote   map[string]int64 // what a registry has: size by name
	Pace     time.Duration    // of a pull
	Frontend [2]int           // default 1.2
	Version  string

	mu         sync.Mutex
	images     map[string]*image.Info // by ID
	containers map[string]image.Container
	files      map[string]map[string]string // of built images, by ID
	n          int
	Builds     int // so far
	Pulls      int
	Most       int // at once
	running    int
	Last       image.Build
	Auths      []image.Auth
	Sent       map[string]string // the last build's context: contents by name, "-> target" of a link, "/" of a folder
}

var _ image.Engine = (*Engine)(nil)

// Add puts an image there, as docker load would.
func (e *Engine) Add(ref string, size int64) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.add(ref, size, nil, nil)
}

func (e *Engine) add(ref string, size int64, labels map[string]string, files map[string]string) string {
	e.n++
	id := fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Append(nil, e.n, ref)))
	if e.images == nil {
		e.images, e.files = map[string]*image.Info{}, map[string]map[string]string{}
	}
	for _, i := range e.images {
		i.Tags = slices.DeleteFunc(i.Tags, func(t string) bool { return t == ref })
	}
	i := &image.Info{ID: id, Digest: id, OS: "linux", Arch: "amd64", Size: size, Created: time.Now(), Labels: labels}
	if ref != "" {
		i.Tags = []string{ref}
	}
	e.images[id], e.files[id] = i, files
	return id
}

// AddContainer puts a container of an image there, whose labels it inherits.
func (e *Engine) AddContainer(ref string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := e.find(ref)
	e.n++
	id := fmt.Sprint("container", e.n)
	if e.containers == nil {
		e.containers = map[string]image.Container{}
	}
	e.containers[id] = image.Container{ID: id, Image: i.ID, Labels: i.Labels}
	return id
}

// Names are the names of all images.
func (e *Engine) Names() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, i := range e.images {
		out = append(out, cmp.Or(strings.Join(i.Tags, ","), "<none>"))
	}
	slices.Sort(out)
	return out
}

func (e *Engine) About(context.Context) (image.About, error) {
	f := e.Frontend
	if f == ([2]int{}) {
		f = [2]int{1, 2}
	}
	return image.About{ID: cmp.Or(e.ID, "fake"), Version: cmp.Or(e.Version, "20.10.24"), OS: "linux", Arch: "amd64",
		BuildKit: true, Frontend: f}, nil
}

func (e *Engine) find(ref string) *image.Info {
	if i := e.images[ref]; i != nil {
		return i
	}
	for _, i := range e.images {
		if slices.Contains(i.Tags, ref) {
			return i
		}
	}
	return nil
}

func (e *Engine) Inspect(_ context.Context, ref string) (image.Info, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := e.find(ref)
	if i == nil {
		return image.Info{}, fmt.Errorf("%w: %s", image.ErrMissing, ref)
	}
	out := *i
	out.Ref = ref
	return out, nil
}

func (e *Engine) begin(n *int) func() {
	e.mu.Lock()
	defer e.mu.Unlock()
	*n++
	e.running++
	e.Most = max(e.Most, e.running)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.running--
	}
}

func (e *Engine) Pull(ctx context.Context, p image.Pull) error {
	defer e.begin(&e.Pulls)()
	e.mu.Lock()
	e.Auths = append(e.Auths, p.Auth)
	size, ok := e.Remote[p.Ref]
	e.mu.Unlock()
	if !ok {
		return fmt.Errorf("pull access denied for %s, repository does not exist or may require 'docker login'", p.Ref)
	}
	if p.Progress != nil {
		p.Progress(0, size)
	}
	if err := sleep(ctx, e.Pace); err != nil {
		return err
	}
	if p.Progress != nil {
		p.Progress(size, size)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.add(p.Ref, size, nil, nil)
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func (e *Engine) Build(ctx context.Context, b image.Build) error {
	defer e.begin(&e.Builds)()
	sent := map[string]string{}
	tr := tar.NewReader(b.Context)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("unpacking the context: %w", err)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			sent[strings.TrimSuffix(h.Name, "/")] = "/"
		case tar.TypeSymlink:
			sent[h.Name] = "-> " + h.Linkname
		default:
			text, err := io.ReadAll(tr)
			if err != nil {
				return fmt.Errorf("unpacking the context: %w", err)
			}
			sent[h.Name] = string(text)
		}
	}
	e.mu.Lock()
	e.Last, e.Sent = b, sent
	e.mu.Unlock()
	r := recipe{e: e, b: b, sent: sent, files: map[string]string{}, labels: map[string]string{}}
	for i, line := range strings.Split(strings.ReplaceAll(sent[b.Dockerfile], "\\\n", ""), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		if b.Step != nil {
			b.Step(line)
		}
		fmt.Fprintf(b.Log, "#%d %s\n", i, line)
		if err := r.step(ctx, line); err != nil {
			return err
		}
	}
	maps.Copy(r.labels, b.Labels)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.add(b.Tag, r.size, r.labels, r.files)
	return nil
}

// A recipe is a build under way.
type recipe struct {
	e             *Engine
	b             image.Build
	sent          map[string]string
	files, labels map[string]string
	stages        []string
	size          int64
}

func (r *recipe) step(ctx context.Context, line string) error {
	name, rest, _ := strings.Cut(line, " ")
	words := strings.Fields(rest)
	switch name {
	case "FROM":
		if len(words) == 3 {
			r.stages = append(r.stages, words[2])
		}
		if words[0] == "scratch" || slices.Contains(r.stages, words[0]) {
			return nil
		}
		base, err := r.e.Inspect(ctx, words[0])
		if err != nil {
			return fmt.Errorf("the builder asked a registry for %s", words[0])
		}
		r.size = base.Size
		maps.Copy(r.labels, base.Labels)
		r.e.mu.Lock()
		defer r.e.mu.Unlock()
		maps.Copy(r.files, r.e.files[base.ID])
	case "COPY":
		text, ok := r.sent[words[0]]
		if !ok {
			return fmt.Errorf("%q not found in the context", words[0])
		}
		r.files[words[len(words)-1]] = text
		r.size += int64(len(text))
	case "LABEL":
		k, v, _ := strings.Cut(rest, "=")
		r.labels[k] = v
	case "RUN":
		return r.run(ctx, rest)
	}
	return nil
}

func (r *recipe) run(ctx context.Context, command string) error {
	verb, arg, _ := strings.Cut(command, " ")
	switch verb {
	case "echo":
		fmt.Fprintln(r.b.Log, arg)
	case "sleep":
		var seconds int
		fmt.Sscan(arg, &seconds)
		return sleep(ctx, time.Duration(seconds)*time.Second)
	case "exit":
		return fmt.Errorf("executor failed running [/bin/sh -c %s]: exit code: %s", command, arg)
	case "fill":
		return fmt.Errorf("%w: write /big: no space left on device", image.ErrDiskFull)
	}
	return nil
}

func (e *Engine) List(context.Context) ([]image.Info, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []image.Info
	for _, i := range e.images {
		out = append(out, *i)
	}
	slices.SortFunc(out, func(a, b image.Info) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

func (e *Engine) Remove(_ context.Context, ref string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := e.find(ref)
	if i == nil {
		return fmt.Errorf("%w: %s", image.ErrMissing, ref)
	}
	last := len(i.Tags) < 2
	for _, c := range e.containers {
		if c.Image == i.ID && last {
			return fmt.Errorf("%w: container %s", image.ErrInUse, c.ID)
		}
	}
	i.Tags = slices.DeleteFunc(i.Tags, func(t string) bool { return t == ref })
	if last {
		delete(e.images, i.ID)
	}
	return nil
}

func (e *Engine) Containers(context.Context) ([]image.Container, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.containers)), nil
}

func (e *Engine) RemoveContainer(_ context.Context, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.containers[id]; !ok {
		return fmt.Errorf("%w: container %s", image.ErrMissing, id)
	}
	delete(e.containers, id)
	return nil
}

func (e *Engine) PruneCache(context.Context, time.Duration) (int64, error) { return 0, nil }

// Labeled puts an image with labels there and returns its ID; ref may be "".
func (e *Engine) Labeled(ref string, labels map[string]string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.add(ref, 1, labels, nil)
}
