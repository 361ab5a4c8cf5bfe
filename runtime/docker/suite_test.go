package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	executor.Main()
	if path := os.Getenv("EVALRUN_TEST_STDIO"); path != "" { // what ssh starts, see TestSSH
		stdio(path)
	}
	code := m.Run()
	imports.Range(func(key, _ any) bool {
		host, name, _ := strings.Cut(key.(string), " ")
		if cli, err := New(Options{Host: host}).engine.api(context.Background()); err == nil {
			cli.ImageRemove(context.Background(), name, client.ImageRemoveOptions{Force: true})
		}
		return true
	})
	os.Exit(code)
}

// stdio is "docker system dial-stdio".
func stdio(path string) {
	c, err := net.Dial("unix", path)
	if err != nil {
		os.Exit(1)
	}
	go func() {
		io.Copy(c, os.Stdin)
		c.(*net.UnixConn).CloseWrite()
	}()
	io.Copy(os.Stdout, c)
	os.Exit(0)
}

// emptyImage has no files at all.
const emptyImage = "evalrun-test/empty:1"

// require returns a driver for the engine of this machine, or skips.
func require(t testing.TB) *Driver { return requireWith(t, Options{}) }

func requireWith(t testing.TB, o Options) *Driver {
	t.Helper()
	if os.Getenv("EVALRUN_TEST_DOCKER") == "" {
		t.Skip("needs a docker engine: set EVALRUN_TEST_DOCKER=1")
	}
	if o.State == "" {
		o.State = filepath.Join(t.TempDir(), "state")
	}
	d := New(o)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := d.Probe(ctx); err != nil {
		t.Fatal(err)
	}
	needEmpty(t, api(t, d))
	return d
}

func api(t testing.TB, d *Driver) *client.Client {
	t.Helper()
	cli, err := d.engine.api(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return cli
}

var imports sync.Map // engine and name: made by this process

// importImage makes an image with these programs and nothing else. It is removed when the tests
// end.
func importImage(t testing.TB, cli *client.Client, files map[string][]byte, changes ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(files[name]))})
		w.Write(files[name])
	}
	w.Close()
	// Its name is this process's own, which removes it at its end.
	name := fmt.Sprintf("evalrun-test/import-%x:1", sha256.Sum256(fmt.Append(b.Bytes(), changes, process())))[:48]
	name = strings.TrimSuffix(name, ":1")
	if _, ok := imports.LoadOrStore(cli.DaemonHost()+" "+name, true); ok {
		return name
	}
	r, err := cli.ImageImport(context.Background(), client.ImageImportSource{Source: &b, SourceName: "-"}, name,
		client.ImageImportOptions{Platform: ocispec.Platform{OS: "linux"}, Changes: changes})
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, r)
	r.Close()
	return name
}

// needEmpty makes the image without files, where it is not there.
func needEmpty(t testing.TB, cli *client.Client) {
	t.Helper()
	if _, err := cli.ImageInspect(context.Background(), emptyImage); err == nil {
		return
	}
	var b bytes.Buffer
	tar.NewWriter(&b).Close()
	r, err := cli.ImageImport(context.Background(), client.ImageImportSource{Source: &b, SourceName: "-"}, emptyImage,
		client.ImageImportOptions{Platform: ocispec.Platform{OS: "linux"}})
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, r)
	r.Close()
}

// mine lists all that the engine has of this process, and what lies in a driver's state folder.
func mine(t testing.TB, d *Driver) []string {
	t.Helper()
	all, err := d.list(context.Background(), api(t, d), labelSandbox)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for id, f := range all {
		if f.labels[labelProcess] == process() {
			out = append(out, "sandbox "+id+": "+
				strings.Join(append(append(f.containers, f.volumes...), f.network), " "))
		}
	}
	files, _ := filepath.Glob(filepath.Join(d.state, "*"))
	for _, f := range files {
		out = append(out, "file "+filepath.Base(f))
	}
	return out
}

func TestSuite(t *testing.T) {
	first := require(t)
	state := first.state
	sandboxtest.Run(t, sandboxtest.Suite{
		Table: "../../docs/sandboxes.md", Column: "docker",
		Driver:  func(t *testing.T) sandbox.Driver { return requireWith(t, Options{State: state}) },
		Another: func(t *testing.T) sandbox.Driver { return requireWith(t, Options{State: state}) },
		Spec:    sandbox.Spec{Image: sandbox.Image{Ref: emptyImage}, Memory: 512 << 20, Pids: 256},
		Claims: sandboxtest.Claims{Memory: true, Pids: true, Users: true, Find: true, NoNet: true, Usage: true,
			FileOps: true, Shells: true, Copies: true, Services: true},
		Image: func(t *testing.T, programs map[string][]byte) sandbox.Image {
			return sandbox.Image{Ref: importImage(t, api(t, first), programs)}
		},
		Bash: sandbox.Image{Ref: testBase},
		Left: func(t *testing.T) []string { return mine(t, first) },
	})
}
