package docker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	spec "github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/moby/moby/api/types/build"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

var _ image.Engine = (*engine)(nil)

// About implements [image.Engine].
func (e *engine) About(ctx context.Context) (image.About, error) {
	cli, err := e.api(ctx)
	if err != nil {
		return image.About{}, err
	}
	sys, err := cli.Info(ctx, client.InfoOptions{})
	if err != nil {
		return image.About{}, e.explain(err)
	}
	info := sys.Info
	version, err := cli.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return image.About{}, e.explain(err)
	}
	a := image.About{ID: info.ID, Version: info.ServerVersion, OS: version.Os, Arch: version.Arch}
	if a.ID == "" {
		a.ID = e.name()
	}
	if _, err := os.Stat(info.DockerRootDir); err == nil && strings.HasPrefix(e.name(), "unix://") {
		a.Dir = info.DockerRootDir
	}
	// Every engine of our API version has BuildKit, whatever its default builder is. Other engines
	// with this API do not.
	a.BuildKit = true
	for _, c := range version.Components {
		a.BuildKit = a.BuildKit && !strings.Contains(c.Name, "Podman")
	}
	if a.BuildKit {
		a.Frontend = frontend(info.ServerVersion)
	}
	return a, nil
}

// frontends has the version of the Dockerfile language in each engine version, the newest first.
// Older engines have 1.2.
var frontends = []struct {
	engine   [2]int
	frontend [2]int
}{
	{[2]int{29, 0}, [2]int{1, 19}}, {[2]int{28, 2}, [2]int{1, 15}}, {[2]int{28, 0}, [2]int{1, 13}},
	{[2]int{27, 2}, [2]int{1, 9}}, {[2]int{27, 0}, [2]int{1, 8}},
	{[2]int{26, 0}, [2]int{1, 7}}, {[2]int{25, 0}, [2]int{1, 6}}, {[2]int{23, 0}, [2]int{1, 5}},
}

func frontend(version string) [2]int {
	var v [2]int
	for i, part := range strings.SplitN(version, ".", 3) {
		if i < 2 {
			v[i], _ = strconv.Atoi(part)
		}
	}
	for _, f := range frontends {
		if slices.Compare(v[:], f.engine[:]) >= 0 {
			return f.frontend
		}
	}
	return [2]int{1, 2}
}

// Inspect implements [image.Engine].
func (e *engine) Inspect(ctx context.Context, ref string) (image.Info, error) {
	cli, err := e.api(ctx)
	if err != nil {
		return image.Info{}, err
	}
	r, err := cli.ImageInspect(ctx, ref)
	if err != nil {
		return image.Info{}, e.imageError("inspecting image "+ref, err)
	}
	i := image.Info{ID: r.ID, Digest: r.ID, Ref: ref, Tags: r.RepoTags, OS: r.Os, Arch: r.Architecture, Size: r.Size}
	if r.Variant != "" && r.Architecture == "arm" {
		i.Arch += "/" + r.Variant
	}
	i.Created, _ = time.Parse(time.RFC3339Nano, r.Created)
	for _, d := range r.RepoDigests {
		name, digest, _ := strings.Cut(d, "@")
		if i.Digest == r.ID || strings.HasPrefix(ref, name) {
			i.Digest = digest
		}
	}
	if c := r.Config; c != nil {
		i.Labels = c.Labels
		i.Config = image.Config{User: c.User, Dir: c.WorkingDir, Env: c.Env, Entrypoint: c.Entrypoint, Cmd: c.Cmd,
			Shell: c.Shell, Health: health(c.Healthcheck), OnBuild: c.OnBuild}
		for p := range c.ExposedPorts {
			i.Config.Ports = append(i.Config.Ports, p)
		}
		slices.Sort(i.Config.Ports)
	}
	return i, nil
}

// health converts an image's health check; nil: none, or disabled.
func health(h *spec.HealthcheckConfig) *sandbox.Health {
	if h == nil || len(h.Test) == 0 || h.Test[0] == "NONE" {
		return nil
	}
	test := h.Test[1:]
	if h.Test[0] == "CMD-SHELL" {
		test = append([]string{"/bin/sh", "-c"}, test...)
	}
	return &sandbox.Health{Test: test, Interval: h.Interval, Timeout: h.Timeout, StartPeriod: h.StartPeriod,
		StartInterval: h.StartInterval, Retries: h.Retries}
}

// Pull implements [image.Engine].
func (e *engine) Pull(ctx context.Context, p image.Pull) error {
	cli, err := e.api(ctx)
	if err != nil {
		return err
	}
	o := client.ImagePullOptions{Platforms: platforms(p.Platform)}
	if p.Auth != (image.Auth{}) {
		b, err := json.Marshal(p.Auth)
		if err != nil {
			return err
		}
		o.RegistryAuth = base64.URLEncoding.EncodeToString(b)
	}
	body, err := cli.ImagePull(ctx, p.Ref, o)
	if err != nil {
		return e.imageError("", err)
	}
	defer body.Close()
	type layer struct{ now, all int64 }
	layers := map[string]layer{}
	return e.follow(ctx, body, func(m report) {
		l := layers[m.ID]
		switch m.Status {
		case "Downloading":
			l = layer{m.Detail.Current, m.Detail.Total}
		case "Download complete", "Pull complete", "Verifying Checksum", "Extracting":
			l.now = l.all
		default:
			return
		}
		layers[m.ID] = l
		if p.Progress != nil {
			var sum layer
			for _, l := range layers {
				sum.now += l.now
				sum.all += l.all
			}
			p.Progress(sum.now, sum.all)
		}
	})
}

// Build implements [image.Engine].
func (e *engine) Build(ctx context.Context, b image.Build) error {
	cli, err := e.api(ctx)
	if err != nil {
		return err
	}
	args := map[string]*string{}
	for k, v := range b.Args {
		args[k] = &v
	}
	o := client.ImageBuildOptions{
		Tags: []string{b.Tag}, Labels: b.Labels, Dockerfile: b.Dockerfile, BuildArgs: args, Target: b.Target,
		NetworkMode: b.Network, Remove: true, ForceRemove: true, Version: build.BuilderBuildKit, BuildID: random(16),
	}
	o.Platforms = platforms(b.Platform)
	if b.Classic {
		o.Version, o.BuildID = build.BuilderV1, ""
		o.Memory, o.MemorySwap = b.Memory, b.Memory
		if b.CPUs > 0 {
			o.CPUPeriod, o.CPUQuota = 100_000, int64(b.CPUs*100_000)
		}
	}
	// An engine that has the whole context notices only by the end of the connection that the
	// caller has left, and BuildKit needs a request to cancel.
	defer context.AfterFunc(ctx, func() {
		if o.BuildID != "" {
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
			defer cancel()
			cli.BuildCancel(late, o.BuildID, client.BuildCancelOptions{})
		}
	})()
	res, err := cli.ImageBuild(ctx, b.Context, o)
	if err != nil {
		return e.imageError("", err)
	}
	defer res.Body.Close()
	t := newTrace(b.Log, b.Step)
	return e.follow(ctx, res.Body, func(m report) {
		switch {
		case m.ID == "moby.buildkit.trace":
			t.read(m.Aux)
		case m.Stream != "":
			t.plain(m.Stream)
		}
	})
}

// A report is one message of the engine's stream for pulls and builds.
type report struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Stream string `json:"stream"`
	Error  string `json:"error"`
	Detail struct {
		Current int64 `json:"current"`
		Total   int64 `json:"total"`
	} `json:"progressDetail"`
	Aux json.RawMessage `json:"aux"`
}

// List implements [image.Engine].
func (e *engine) List(ctx context.Context) ([]image.Info, error) {
	cli, err := e.api(ctx)
	if err != nil {
		return nil, err
	}
	list, err := cli.ImageList(ctx, client.ImageListOptions{})
	if err != nil {
		return nil, e.imageError("listing images", err)
	}
	var out []image.Info
	for _, s := range list.Items {
		i := image.Info{ID: s.ID, Size: s.Size, Created: time.Unix(s.Created, 0), Labels: s.Labels}
		for _, t := range s.RepoTags {
			if t != "<none>:<none>" {
				i.Tags = append(i.Tags, t)
			}
		}
		out = append(out, i)
	}
	return out, nil
}

// Remove implements [image.Engine].
func (e *engine) Remove(ctx context.Context, ref string) error {
	cli, err := e.api(ctx)
	if err != nil {
		return err
	}
	if _, err = cli.ImageRemove(ctx, ref, client.ImageRemoveOptions{PruneChildren: true}); err == nil {
		return nil
	}
	// If another process removes it at the same time, the engine's answer depends on the order.
	if _, gone := e.Inspect(ctx, ref); errors.Is(gone, image.ErrMissing) {
		return gone
	}
	return e.imageError("", err)
}

// Containers implements [image.Engine].
func (e *engine) Containers(ctx context.Context) ([]image.Container, error) {
	cli, err := e.api(ctx)
	if err != nil {
		return nil, err
	}
	list, err := cli.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		return nil, e.imageError("listing containers", err)
	}
	var out []image.Container
	for _, c := range list.Items {
		out = append(out, image.Container{ID: c.ID, Image: c.ImageID, Running: c.State == container.StateRunning,
			Labels: c.Labels})
	}
	return out, nil
}

// RemoveContainer implements [image.Engine].
func (e *engine) RemoveContainer(ctx context.Context, id string) error {
	cli, err := e.api(ctx)
	if err != nil {
		return err
	}
	if _, err = cli.ContainerRemove(ctx, id, client.ContainerRemoveOptions{RemoveVolumes: true}); err != nil {
		return e.imageError("removing container "+id, err)
	}
	return nil
}

// PruneCache implements [image.Engine].
func (e *engine) PruneCache(ctx context.Context, unused time.Duration) (int64, error) {
	cli, err := e.api(ctx)
	if err != nil {
		return 0, err
	}
	o := client.BuildCachePruneOptions{All: true}
	if unused > 0 {
		o.Filters = client.Filters{}.Add("unused-for", unused.String())
	}
	r, err := cli.BuildCachePrune(ctx, o)
	if err != nil {
		return 0, e.imageError("emptying the builder's cache", err)
	}
	return int64(r.Report.SpaceReclaimed), nil
}

// imageError converts the engine's message to an error that [image.Store] knows.
func (e *engine) imageError(doing string, err error) error {
	text := message(err)
	switch {
	// otherwise the message is about a registry
	case unreachable(err) && !strings.HasPrefix(err.Error(), "Error response from daemon: "):
		return unavailableError{e.explain(err)}
	case errdefs.IsConflict(err):
		return fmt.Errorf("%w: %s", image.ErrInUse, text)
	case errdefs.IsNotFound(err) && strings.Contains(strings.ToLower(text), "no such"):
		return fmt.Errorf("%w: %s", image.ErrMissing, text)
	case full(text):
		return fmt.Errorf("%w: %s", image.ErrDiskFull, text)
	case doing == "":
		return errors.New(text)
	}
	return fmt.Errorf("%s: %s", doing, text)
}

func full(text string) bool {
	return strings.Contains(text, "no space left on device") || strings.Contains(text, "disk quota exceeded")
}

// platforms returns a platform in the engine's form, "linux/arm64/v8"; none is the engine's own.
func platforms(s string) []ocispec.Platform {
	if s == "" {
		return nil
	}
	system, arch, _ := strings.Cut(s, "/")
	arch, variant, _ := strings.Cut(arch, "/")
	return []ocispec.Platform{{OS: system, Architecture: arch, Variant: variant}}
}
