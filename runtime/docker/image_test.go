package docker

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/image/imagetest"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// testBase is an image with a shell that the set-up of the tests has made.
const testBase = "evalrun-test/bookworm:1"

// imageEngine is the machine's engine.
func imageEngine(t *testing.T) *engine {
	t.Helper()
	if os.Getenv("EVALRUN_TEST_DOCKER") == "" {
		t.Skip("EVALRUN_TEST_DOCKER is not set: a docker engine with " + testBase + " is needed")
	}
	e := newEngine("")
	if _, err := e.Inspect(t.Context(), testBase); err != nil {
		t.Fatalf("EVALRUN_TEST_DOCKER is set, but: %v", err)
	}
	t.Cleanup(e.close)
	return e
}

// builders are both ways to build.
func builders(t *testing.T, f func(t *testing.T, o image.Options)) {
	t.Run("buildkit", func(t *testing.T) { f(t, image.Options{Dir: t.TempDir(), Builds: 4}) })
	t.Run("classic", func(t *testing.T) { f(t, image.Options{Dir: t.TempDir(), Builds: 4, Classic: true}) })
}

func TestImageSuite(t *testing.T) {
	e := imageEngine(t)
	builders(t, func(t *testing.T, o image.Options) {
		imagetest.Run(t, imagetest.Suite{Engine: e, Base: testBase, Options: o})
	})
}

// make builds an image that is removed at the end. A failed build says what it printed.
func makeImage(t *testing.T, e *engine, o image.Options, img sandbox.Image) image.Info {
	t.Helper()
	info, err := image.New(e, o).Prepare(t.Context(), img)
	var se *sandbox.Error
	if errors.As(err, &se) {
		t.Fatalf("%v\n%s", err, se.Detail)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Remove(context.Background(), info.Ref) })
	return info
}

// A build sees what its author wrote: each step checks what the ones before it made.
func TestImageContents(t *testing.T) {
	e := imageEngine(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"run.sh": "#!/bin/sh\r\necho hi\n", "d/a b": "blank", "d/with\nnewline": "n", "drop/x": "x", "drop/keep/y": "y",
		".dockerignore": "drop/*\n!drop/keep\nDockerfile\n.dockerignore\n", "Dockerfile": "FROM wrong\n",
	} {
		name = filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(name), 0o755)
		if err := os.WriteFile(name, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	os.Chmod(filepath.Join(dir, "run.sh"), 0o755)
	os.Symlink("/etc/shadow", filepath.Join(dir, "out"))
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	text := `# syntax=docker/dockerfile:1.7
ARG BASE=nothing:1
FROM ${BASE} AS one
SHELL ["/bin/bash", "-euc"]
RUN [[ -n "$BASH_VERSION" ]] && echo 1 > /one

FROM ` + testBase + ` AS two
ARG GREETING=none
WORKDIR /app
COPY . .
COPY --from=one /one /one
RUN test "$(ls -A | tr '\n' ' ')" = "d drop out run.sh " && test -x run.sh && test "$(stat -c %a:%u 'd/a b')" = 640:0
RUN test "$(ls drop)" = keep && test "$(cat drop/keep/y)" = y && test "$(readlink out)" = /etc/shadow && test "$(ls d | wc -l)" = 3
RUN test "$(ls -A / | grep -c evalrun)" = 0
COPY <<EOF <<-'OTHER' /etc/made/
one
EOF
	$two
	OTHER
RUN <<-EOF
	set -eu
	test "$(cat /etc/made/EOF)" = one
	test "$(cat /etc/made/OTHER)" = '$two'
	# a comment that stays one
	test "$GREETING" = "hel lo"
	cat <<INNER > /inner
	"quoted" \$and \\ all
	INNER
EOF
RUN cat > /fed <<'EOF'
$x \
EOF
RUN printf '$x \\\n' | cmp - /fed && grep -q '"quoted" $and' /inner
USER 1000:1000
ENV A=b
EXPOSE 80
HEALTHCHECK --interval=3s --start-interval=1s --retries=2 CMD true
ENTRYPOINT ["/bin/sleep"]
CMD ["10"]

FROM two AS three
RUN exit 1
`
	builders(t, func(t *testing.T, o image.Options) {
		info := makeImage(t, e, o, sandbox.Image{Name: "contents", Dockerfile: text, Context: root.FS(), Target: "two",
			Args: map[string]string{"BASE": testBase, "GREETING": "hel lo"}})
		c := info.Config
		if c.User != "1000:1000" || c.Dir != "/app" || strings.Join(c.Entrypoint, " ") != "/bin/sleep" ||
			strings.Join(c.Cmd, " ") != "10" || strings.Join(c.Ports, " ") != "80/tcp" {
			t.Errorf("%+v", c)
		}
		if h := c.Health; h == nil || strings.Join(h.Test, " ") != "/bin/sh -c true" || h.Interval != 3*time.Second ||
			h.Retries != 2 {
			t.Errorf("%+v", h)
		}
	})
	if !t.Failed() {
		text = "FROM " + testBase + "\nRUN <<EOF\n#!/usr/bin/env python3\nopen('/py', 'w').write('1')\nEOF\nRUN test $(cat /py) = 1\n"
		makeImage(t, e, image.Options{Dir: t.TempDir()}, sandbox.Image{Dockerfile: text})
	}
}

func TestImageNetworkNone(t *testing.T) {
	e := imageEngine(t)
	text := "FROM " + testBase + "\nRUN test \"$(ls /sys/class/net)\" = lo\n"
	builders(t, func(t *testing.T, o image.Options) {
		makeImage(t, e, o, sandbox.Image{Name: "offline", Dockerfile: text, Network: "none"})
		text := strings.Replace(text, "=", "!=", 1)
		makeImage(t, e, o, sandbox.Image{Name: "online", Dockerfile: text})
	})
}

// A long here-document is a long argument, and no scanner stumbles over it.
func TestImageLongScript(t *testing.T) {
	e := imageEngine(t)
	script := "n=0\n" + strings.Repeat("n=$((n + 1)) # \"quoted\" \\ 'text'\n", 3000) + "test $n = 3000\n"
	builders(t, func(t *testing.T, o image.Options) {
		makeImage(t, e, o, sandbox.Image{Dockerfile: "FROM " + testBase + "\nRUN <<EOF\n" + script + "EOF\n"})
	})
}

// processes counts processes of this machine, containers' too, whose command line holds a text.
func processes(text string) (n int) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range lines {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(strings.ReplaceAll(string(b), "\x00", " "), text) {
			n++
		}
	}
	return n
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("a minute has passed, and still not: %s", what)
		}
	}
}

// A build that hangs is ended, with all that it runs; so is one whose evalrun was killed.
func TestImageEnds(t *testing.T) {
	if dir := os.Getenv("EVALRUN_IMAGE_CHILD"); dir != "" {
		o := image.Options{Dir: dir, Classic: os.Getenv("EVALRUN_IMAGE_CLASSIC") != ""}
		_, err := image.New(newEngine(""), o).Prepare(context.Background(),
			sandbox.Image{Dockerfile: os.Getenv("EVALRUN_IMAGE_TEXT")})
		t.Fatal(err) // it is killed before
	}
	e := imageEngine(t)
	builders(t, func(t *testing.T, o image.Options) {
		seconds := fmt.Sprint(100_000 + time.Now().UnixNano()%1_000_000)
		mark := "sleep " + seconds
		text := "FROM " + testBase + "\nRUN echo " + seconds + "\nRUN " + mark + "\n"
		_, err := image.New(e, o).Prepare(t.Context(), sandbox.Image{Dockerfile: text, Timeout: 3 * time.Second})
		if err == nil || !strings.Contains(err.Error(), "time limit") {
			t.Errorf("%v", err)
		}
		until(t, "what the hanging build ran is gone", func() bool { return processes(mark) == 0 })

		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		child := exec.Command(self, "-test.run=^TestImageEnds$")
		child.Env = append(os.Environ(), "EVALRUN_IMAGE_CHILD="+o.Dir, "EVALRUN_IMAGE_TEXT="+text)
		if o.Classic {
			child.Env = append(child.Env, "EVALRUN_IMAGE_CLASSIC=1")
		}
		var said bytes.Buffer
		child.Stdout, child.Stderr = &said, &said
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { child.Wait(); close(ended) }()
		t.Cleanup(func() {
			child.Process.Kill()
			if <-ended; t.Failed() {
				t.Logf("the child said: %s", said.Bytes())
			}
		})
		until(t, "the build of the child runs", func() bool { return processes(mark) > 0 })
		child.Process.Signal(syscall.SIGKILL)
		<-ended
		until(t, "what the child's build ran is gone", func() bool { return processes(mark) == 0 })
		until(t, "nothing of the builds is left", func() bool {
			if _, err := image.New(e, o).Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			return len(scraps(t, e, seconds)) == 0
		})
	})
}

// scraps are unnamed images, and containers, of steps that hold a text.
func scraps(t *testing.T, e *engine, text string) (out []string) {
	cli, err := e.api(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list, err := e.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		if len(i.Tags) > 0 {
			continue
		}
		h, err := cli.ImageHistory(t.Context(), i.ID)
		if err == nil && strings.Contains(fmt.Sprint(h.Items), text) {
			out = append(out, i.ID)
		}
	}
	cs, err := e.Containers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cs {
		if r, err := inspect(t.Context(), cli, c.ID); err == nil &&
			strings.Contains(strings.Join(r.Config.Cmd, " "), text) {
			out = append(out, c.ID)
		}
	}
	return out
}

// A command that speaks of a full disk is a command that fails.
func TestImageSaysFull(t *testing.T) {
	e := imageEngine(t)
	builders(t, func(t *testing.T, o image.Options) {
		_, err := image.New(e, o).Prepare(t.Context(),
			sandbox.Image{Dockerfile: "FROM " + testBase + "\nRUN echo no space left on device; exit 1\n"})
		if err == nil || errors.Is(err, image.ErrDiskFull) ||
			!strings.Contains(err.Error(), "if that is the engine's") {
			t.Errorf("%v", err)
		}
	})
}

// What is too large is refused before the engine gets it.
func TestImageHugeContext(t *testing.T) {
	e := imageEngine(t)
	_, err := image.New(e, image.Options{Dir: t.TempDir(), ContextBytes: 1 << 20}).Prepare(t.Context(),
		sandbox.Image{Dockerfile: "FROM scratch\nCOPY a /a\n", Context: fstest.MapFS{"a": {Data: make([]byte, 2<<20)}}})
	if err == nil || !strings.Contains(err.Error(), "larger than it may be") {
		t.Errorf("%v", err)
	}
}

// A step that copies what is not there is told apart from a command that fails: it is the fault of
// who wrote it.
func TestImageSource(t *testing.T) {
	e := imageEngine(t)
	builders(t, func(t *testing.T, o image.Options) {
		for step, asked := range map[string]bool{
			"COPY missing /x":                                 true,
			"COPY a missing /x/":                              true,
			"ADD missing /x":                                  true,
			"COPY --from=" + testBase + " /missing /x":        true,
			"RUN cat /missing":                                false,
			`RUN echo 'COPY failed: "/x": not found'; exit 1`: false,
			`RUN echo 'failed to compute cache key: "/x" not found'; exit 1`: false,
		} {
			_, err := image.New(e, o).Prepare(t.Context(),
				sandbox.Image{Dockerfile: "FROM " + testBase + "\n" + step + "\n", Context: fstest.MapFS{"a": {}}})
			var se *sandbox.Error
			if !errors.As(err, &se) || se.BadRequest != asked || !se.Permanent {
				t.Errorf("%s: %v (%+v); want BadRequest %v", step, err, se, asked)
			}
		}
	})
}

// Of several that remove one image at a time, each finds it removed, missing or in use: two runs
// may share an engine, and both keep to a disk budget.
func TestImageRemovedTwice(t *testing.T) {
	e := imageEngine(t)
	for range 5 {
		data := make([]byte, 1<<20)
		rand.Read(data)
		info := makeImage(t, e, image.Options{Dir: t.TempDir(), Classic: true}, sandbox.Image{
			Dockerfile: "FROM scratch\nCOPY f /f\n", Context: fstest.MapFS{"f": {Data: data}}})
		errs := make(chan error)
		for range 8 {
			go func() { errs <- e.Remove(t.Context(), info.Ref) }()
		}
		for range 8 {
			if err := <-errs; err != nil && !errors.Is(err, image.ErrMissing) && !errors.Is(err, image.ErrInUse) {
				t.Error(err)
			}
		}
		if _, err := e.Inspect(t.Context(), info.Ref); !errors.Is(err, image.ErrMissing) {
			t.Errorf("after that: %v", err)
		}
	}
}
