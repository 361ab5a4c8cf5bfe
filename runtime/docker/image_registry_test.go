package docker

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/moby/moby/client"
)

// A registry is Debian's docker-registry behind a proxy that can be made to misbehave.
type registry struct {
	host string
	mode atomic.Value // "", "deny", "slow", "cut", "cut once"
	slow atomic.Int64 // portions of layers that were sent slowly
	srv  *httptest.Server
}

func startRegistry(t *testing.T) *registry {
	t.Helper()
	program, err := exec.LookPath("docker-registry")
	if err != nil {
		t.Skip("docker-registry is not installed")
	}
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	config := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: "+
		"{addr: %q}\n", filepath.Join(dir, "data"), addr)
	file := filepath.Join(dir, "config.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "serve", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	until(t, "the registry answers", func() bool {
		res, err := http.Get("http://" + addr + "/v2/")
		if err == nil {
			res.Body.Close()
		}
		return err == nil
	})
	r := &registry{}
	r.mode.Store("")
	r.srv = httptest.NewServer(r.proxy(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})))
	t.Cleanup(r.srv.Close)
	r.host = strings.TrimPrefix(r.srv.URL, "http://")
	return r
}

// proxy hands on, or does what the mode says.
func (r *registry) proxy(to *httputil.ReverseProxy) http.Handler {
	to.ModifyResponse = func(res *http.Response) error {
		if res.Request.Method == http.MethodGet && strings.Contains(res.Request.URL.Path, "/blobs/") {
			res.Body = &layerBody{res.Body, r}
		}
		return nil
	}
	to.FlushInterval = -1
	to.ErrorLog = log.New(io.Discard, "", 0)
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		q.Host = r.host
		switch r.mode.Load() {
		case "deny":
			if user, pass, _ := q.BasicAuth(); user != "u" || pass != "p" {
				w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`,
					http.StatusUnauthorized)
				return
			}
		case "cut":
			panic(http.ErrAbortHandler)
		}
		defer func() {
			if recover() != nil {
				panic(http.ErrAbortHandler) // without the log
			}
		}()
		to.ServeHTTP(w, q)
	})
}

// A layerBody is a layer under way.
type layerBody struct {
	io.ReadCloser
	r *registry
}

func (b *layerBody) Read(p []byte) (int, error) {
	switch b.r.mode.Load() {
	case "slow":
		b.r.slow.Add(1)
		time.Sleep(200 * time.Millisecond)
		p = p[:min(len(p), 100)]
	case "cut once":
		b.r.mode.Store("")
		n, _ := b.ReadCloser.Read(p[:min(len(p), 1000)])
		return n, io.ErrUnexpectedEOF
	}
	return b.ReadCloser.Read(p)
}

// push makes a small image of a new content and puts it into the registry.
func (r *registry) push(t *testing.T, e *engine, name string) (ref string) {
	t.Helper()
	data := make([]byte, 3<<20)
	rand.Read(data)
	// The classic builder has no cache beside its images: what is removed is gone.
	built := makeImage(t, e, image.Options{Dir: t.TempDir(), Classic: true},
		sandbox.Image{Dockerfile: "FROM scratch\nCOPY f /f\n", Context: fstest.MapFS{"f": {Data: data}}})
	cli, err := e.api(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ref = r.host + "/test/" + name + ":1"
	if _, err := cli.ImageTag(t.Context(), client.ImageTagOptions{Source: built.Ref, Target: ref}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Remove(context.Background(), ref) })
	body, err := cli.ImagePush(t.Context(), ref, client.ImagePushOptions{RegistryAuth: "e30="})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if err := e.follow(t.Context(), body, func(report) {}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{ref, built.Ref} {
		if err := e.Remove(t.Context(), name); err != nil && !errors.Is(err, image.ErrMissing) {
			t.Fatal(err)
		}
	}
	return ref
}

func TestImagePull(t *testing.T) {
	e := imageEngine(t)
	r := startRegistry(t)
	ref := r.push(t, e, "small")
	var most image.Progress
	var outcomes []image.Outcome
	o := image.Options{Dir: t.TempDir(), Config: t.TempDir(),
		Progress: func(p image.Progress) {
			if p.Total > most.Total {
				most = p
			}
		},
		Done: func(o image.Outcome) { outcomes = append(outcomes, o) },
	}
	s := image.New(e, o)
	pull := func(ref string, limit time.Duration) (image.Info, error) {
		return s.Prepare(t.Context(), sandbox.Image{Ref: ref, Name: "bench", Timeout: limit})
	}
	info, err := pull(ref, 0)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Head("http://" + r.host + "/v2/test/small/manifests/1")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	manifest, _ := http.NewRequest(http.MethodHead, "http://"+r.host+"/v2/test/small/manifests/1", nil)
	manifest.Header.Set("Accept", "application/vnd.docker.distribution.manifest.v2+json")
	if res, err = http.DefaultClient.Do(manifest); err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if want := res.Header.Get("Docker-Content-Digest"); info.Digest != want || want == "" {
		t.Errorf("digest %s, the registry says %s", info.Digest, want)
	}
	if most.Total < 3<<20 || len(outcomes) != 1 || outcomes[0].Doing != "pull" {
		t.Errorf("told %+v, %+v", most, outcomes)
	}
	byDigest := strings.TrimSuffix(ref, ":1") + "@" + info.Digest
	if _, err := pull(byDigest, 0); err != nil {
		t.Errorf("by digest: %v", err)
	}
	e.Remove(t.Context(), byDigest)

	// It is there now: what the registry does, matters no more.
	r.mode.Store("cut")
	s = image.New(e, o)
	if _, err := pull(ref, 0); err != nil {
		t.Errorf("it is there, and still: %v", err)
	}
	list, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kept := image.Kept{}
	for _, k := range list {
		if k.Ref == ref {
			kept = k
		}
	}
	if kept.Kind != "pulled" || kept.Name != "bench" || kept.Own < 3<<20 {
		t.Errorf("listed as %+v", kept)
	}
	if err := e.Remove(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	s = image.New(e, o)

	for _, c := range []struct {
		name, mode, ref, want string
		limit                 time.Duration
	}{
		{"cut connection", "cut", ref, "the registry cannot be reached from the engine", 0},
		{"denied", "deny", ref, "docker login", 0},
		{"slow", "slow", ref, "longer than its time limit, 3s", 3 * time.Second},
		{"no such tag", "", strings.TrimSuffix(ref, "1") + "2", "look at name, tag and platform", 0},
		{"no such name", "", r.host + "/test/none:1", "", 0},
		{"nobody there", "", "127.0.0.1:1/test/none:1", "the registry cannot be reached from the engine", 0},
	} {
		r.mode.Store(c.mode)
		began := time.Now()
		_, err := pull(c.ref, c.limit)
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "pulling the image "+c.ref+" of bench") {
			t.Errorf("%s: %v", c.name, err)
		}
		t.Logf("%s (%s): %v", c.name, time.Since(began).Round(time.Millisecond), err)
		if _, err := e.Inspect(t.Context(), c.ref); err == nil {
			t.Errorf("%s: and yet it is there", c.name)
		}
	}

	// A connection that is cut in the middle of a layer is taken up again by the engine.
	r.mode.Store("cut once")
	if _, err := pull(ref, 0); err != nil {
		t.Errorf("cut once: %v", err)
	}
	e.Remove(t.Context(), ref)

	// With a name the registry lets us in.
	config := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, r.host, base64.StdEncoding.EncodeToString([]byte("u:p")))
	if err := os.WriteFile(filepath.Join(o.Config, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	r.mode.Store("deny")
	s = image.New(e, o)
	if _, err := pull(ref, 0); err != nil {
		t.Errorf("with credentials: %v", err)
	}

	// A base is pulled by us, with our credentials; the builder has none.
	e.Remove(t.Context(), ref)
	img := sandbox.Image{Dockerfile: "FROM " + ref + "\nCOPY a /a\n",
		Context: fstest.MapFS{"a": {Data: fmt.Append(nil, time.Now())}}}
	based := makeImage(t, e, o, img)
	if based.Ref == "" {
		t.Error("no image")
	}
}
