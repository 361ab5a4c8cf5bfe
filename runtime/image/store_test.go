package image_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/image/imagetest"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestFake(t *testing.T) {
	e := &imagetest.Engine{}
	e.Add("base:1", 1000)
	imagetest.Run(t, imagetest.Suite{Engine: e, Base: "base:1", Options: image.Options{Builds: 4}})
}

func built(steps string) sandbox.Image {
	return sandbox.Image{Name: "task", Dockerfile: "FROM scratch\n" + steps,
		Context: fstest.MapFS{"a": {Data: []byte("1")}}}
}

func prepare(t *testing.T, s *image.Store, img sandbox.Image) image.Info {
	t.Helper()
	info, err := s.Prepare(t.Context(), img)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// What goes in makes the key: anything else makes another image, and nothing else does.
func TestKey(t *testing.T) {
	e := &imagetest.Engine{}
	e.Add("base:1", 1)
	o := image.Options{Dir: t.TempDir()}
	key := func(change func(*sandbox.Image)) string {
		t.Helper()
		img := sandbox.Image{Dockerfile: "FROM scratch AS a\nCOPY a /a\nFROM a\n",
			Context: fstest.MapFS{"a": {Data: []byte("1"), Mode: 0o644}}}
		change(&img)
		return prepare(t, image.New(e, o), img).Ref
	}
	same := key(func(*sandbox.Image) {})
	for what, change := range map[string]func(*sandbox.Image){
		"name":           func(i *sandbox.Image) { i.Name = "other" },
		"time limit":     func(i *sandbox.Image) { i.Timeout = time.Minute },
		"public network": func(i *sandbox.Image) { i.Network = "public" },
		"own platform":   func(i *sandbox.Image) { i.Platform = "linux/amd64" },
		"line ends":      func(i *sandbox.Image) { i.Dockerfile = strings.ReplaceAll(i.Dockerfile, "\n", "\r\n") },
		"file's time":    func(i *sandbox.Image) { i.Context.(fstest.MapFS)["a"].ModTime = time.Now() },
	} {
		if got := key(change); got != same {
			t.Errorf("%s makes another image", what)
		}
	}
	seen := map[string]string{same: "nothing"}
	for what, change := range map[string]func(*sandbox.Image){
		"text":     func(i *sandbox.Image) { i.Dockerfile += "USER u\n" },
		"content":  func(i *sandbox.Image) { i.Context.(fstest.MapFS)["a"].Data = []byte("2") },
		"mode":     func(i *sandbox.Image) { i.Context.(fstest.MapFS)["a"].Mode = 0o755 },
		"file":     func(i *sandbox.Image) { i.Context.(fstest.MapFS)["b"] = &fstest.MapFile{} },
		"argument": func(i *sandbox.Image) { i.Args = map[string]string{"A": "1"} },
		"target":   func(i *sandbox.Image) { i.Target = "a" },
		"network":  func(i *sandbox.Image) { i.Network = "none" },
	} {
		got := key(change)
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s make the same image", what, other)
		}
		seen[got] = what
	}
}

func TestPull(t *testing.T) {
	e := &imagetest.Engine{Remote: map[string]int64{"tool:1": 500}}
	e.Add("there:1", 7)
	var last image.Progress
	s := image.New(e, image.Options{Dir: t.TempDir(), Progress: func(p image.Progress) { last = p }})
	prepare(t, s, sandbox.Image{Ref: "there:1"})
	if e.Pulls != 0 {
		t.Error("an image that is there was pulled")
	}
	for range 2 {
		prepare(t, s, sandbox.Image{Ref: "tool:1", Name: "bench"})
	}
	if e.Pulls != 1 || !last.Done || last.Doing != "pull" || last.Name != "bench" {
		t.Errorf("%d pulls, progress %+v", e.Pulls, last)
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Ref != "tool:1" || list[0].Kind != "pulled" || list[0].Own != 500 ||
		list[0].Name != "bench" {
		t.Errorf("%+v, %v", list, err)
	}
	always := image.New(e, image.Options{Dir: t.TempDir(), Always: true})
	for range 2 {
		info := prepare(t, always, sandbox.Image{Ref: "tool:1", Platform: "linux/amd64"})
		always.Forget(info.ID)
	}
	if e.Pulls != 2 {
		t.Errorf("always was asked for: pulled %d times more, not once", e.Pulls-1)
	}
	_, err = s.Prepare(t.Context(), sandbox.Image{Ref: "private/x:1", Name: "bench"})
	if err == nil || !strings.Contains(err.Error(), "pulling the image private/x:1 of bench: pull access denied") ||
		!strings.Contains(err.Error(), "docker login") {
		t.Errorf("%v", err)
	}
}

// A base is pulled before the build, whose builder then asks no registry; when another is pulled in
// its place, what was built upon it is built anew.
func TestBase(t *testing.T) {
	e := &imagetest.Engine{Remote: map[string]int64{"base:1": 500}}
	dir := t.TempDir()
	img := sandbox.Image{Dockerfile: "FROM base:1\nCOPY a /a\n", Context: fstest.MapFS{"a": {Data: []byte("12345")}}}
	first := prepare(t, image.New(e, image.Options{Dir: dir}), img)
	if e.Pulls != 1 || e.Builds != 1 {
		t.Errorf("%d pulls, %d builds", e.Pulls, e.Builds)
	}
	list, err := image.New(e, image.Options{Dir: dir}).List(t.Context())
	if err != nil || len(list) != 2 || list[1].Own != 5 {
		t.Errorf("what it takes beside its base: %+v, %v", list, err)
	}
	if err := e.Remove(t.Context(), "base:1"); err != nil {
		t.Fatal(err)
	}
	if again := prepare(t, image.New(e, image.Options{Dir: dir}), img); again.ID != first.ID || e.Pulls != 1 {
		t.Error("its base is gone, and it was built anew")
	}
	e.Add("base:1", 600)
	if again := prepare(t, image.New(e, image.Options{Dir: dir}), img); again.ID == first.ID || e.Builds != 2 {
		t.Error("its base is another, and it was not built anew")
	}
}

func TestRefusedIsUnsupported(t *testing.T) {
	s := image.New(&imagetest.Engine{}, image.Options{Dir: t.TempDir()})
	_, err := s.Prepare(t.Context(), built("RUN --security=insecure id\n"))
	if !errors.As(err, new(*sandbox.Unsupported)) ||
		!strings.Contains(err.Error(), "building the image of task: Dockerfile line 2: RUN --security=insecure") {
		t.Errorf("%v", err)
	}
}

// triggering is an engine whose images have steps for those who build upon them.
type triggering struct {
	*imagetest.Engine
	steps map[string][]string
}

func (e triggering) Inspect(ctx context.Context, ref string) (image.Info, error) {
	info, err := e.Engine.Inspect(ctx, ref)
	info.Config.OnBuild = e.steps[ref]
	return info, err
}

// What a base image adds to a build is judged as if it stood in the Dockerfile.
func TestOnBuild(t *testing.T) {
	e := triggering{&imagetest.Engine{}, map[string][]string{
		"harmless:1": {"RUN id", "COPY . /app"},
		"fetches:1":  {"RUN id", "ADD http://169.254.169.254/latest /app/"},
		"leaves:1":   {"RUN --network=host id"},
	}}
	for ref := range e.steps {
		e.Add(ref, 1)
	}
	s := image.New(e, image.Options{Dir: t.TempDir()})
	for ref, want := range map[string]string{"harmless:1": "",
		"fetches:1": "line 1: the base fetches:1 adds steps of its own (ONBUILD): ADD http://169.254",
		"leaves:1":  "RUN --network=host"} {
		_, err := s.Prepare(t.Context(), sandbox.Image{Name: "task", Dockerfile: "FROM " + ref + "\n"})
		var refused *sandbox.Unsupported
		if want == "" && err != nil || want != "" &&
			(!errors.As(err, &refused) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", ref, err, want)
		}
	}
}

func TestDiskFull(t *testing.T) {
	e := &imagetest.Engine{}
	s := image.New(e, image.Options{Dir: t.TempDir()})
	_, err := s.Prepare(t.Context(), built("RUN fill\n"))
	if !errors.Is(err, image.ErrDiskFull) || !strings.Contains(err.Error(), "evalrun images prune") {
		t.Errorf("%v", err)
	}
	if n := e.Names(); len(n) > 0 {
		t.Errorf("left: %v", n)
	}
}

// The least recently used goes first, and never what is in use, was used just now, or is somebody
// else's.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &imagetest.Engine{Remote: map[string]int64{}}
		for i := range 8 {
			e.Remote[fmt.Sprintf("r%d:1", i)] = 100
		}
		e.Add("mine:1", 10_000)
		s := image.New(e, image.Options{Dir: t.TempDir(), Budget: 350, Grace: time.Minute})
		pull := func(i int) {
			t.Helper()
			prepare(t, s, sandbox.Image{Ref: fmt.Sprintf("r%d:1", i)})
			time.Sleep(5 * time.Second)
		}
		// The times of files are the true ones, so those of use are set.
		use := func(i int, age time.Duration) { setUsed(t, s, fmt.Sprintf("r%d:1", i), age) }
		for i := range 4 {
			pull(i)
			use(i, time.Duration(10-i)*time.Hour)
		}
		e.AddContainer("r0:1")
		use(1, 0)
		pull(4) // 400 bytes are over: r0 is in use, r1 was used just now, so r2 goes
		if got := strings.Join(e.Names(), " "); got != "mine:1 r0:1 r1:1 r3:1 r4:1" {
			t.Errorf("left are %s", got)
		}
		out, err := s.Prune(t.Context(), image.Pruning{All: true})
		if err != nil || len(out.Removed) != 3 || out.Freed != 300 || len(out.Left) != 1 ||
			out.Left[0].Reason != "a container uses it" {
			t.Errorf("%+v, %v", out, err)
		}
		if got := strings.Join(e.Names(), " "); got != "mine:1 r0:1" {
			t.Errorf("left are %s", got)
		}
	})
}

func setUsed(t *testing.T, s *image.Store, ref string, age time.Duration) {
	t.Helper()
	found := false
	filepath.WalkDir(image.Dir(s), func(p string, _ os.DirEntry, _ error) error {
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), `"`+ref+`"`) {
			then := time.Now().Add(-age)
			found = os.Chtimes(p, then, then) == nil
		}
		return nil
	})
	if !found {
		t.Errorf("%s has no record", ref)
	}
}

// What others built upon our image, or tagged, is theirs.
func TestTheirs(t *testing.T) {
	e := &imagetest.Engine{}
	s := image.New(e, image.Options{Dir: t.TempDir()})
	info := prepare(t, s, built("COPY a /a\n"))
	if err := e.Build(t.Context(), image.Build{Tag: "user/app:1", Context: strings.NewReader(""), Dockerfile: "x",
		Labels: info.Labels, Log: new(strings.Builder)}); err != nil {
		t.Fatal(err)
	}
	out, err := s.Prune(t.Context(), image.Pruning{All: true})
	if err != nil || len(out.Removed) != 1 || out.Removed[0].Ref != info.Ref {
		t.Errorf("%+v, %v", out, err)
	}
	if got := strings.Join(e.Names(), " "); got != "user/app:1" {
		t.Errorf("left are %s", got)
	}
}

// Whoever finds that an image is not there after all says so, and the next preparation makes it.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &imagetest.Engine{Remote: map[string]int64{"tool:1": 1}}
		s := image.New(e, image.Options{Dir: t.TempDir()})
		for _, img := range []sandbox.Image{{Ref: "tool:1"}, {Dockerfile: "FROM scratch\n"}} {
			if s.ImageReady(t.Context(), img) {
				t.Error("it is there before it is made")
			}
			info := prepare(t, s, img)
			if !s.ImageReady(t.Context(), img) {
				t.Error("it is made, and not there")
			}
			if err := e.Remove(t.Context(), info.Ref); err != nil {
				t.Fatal(err)
			}
			if again := prepare(t, s, img); again.ID != info.ID {
				t.Error("a moment later it is not believed any more")
			}
			s.Forget(info.ID)
			if s.ImageReady(t.Context(), img) {
				t.Error("it was removed, and is there")
			}
			if again := prepare(t, s, img); again.ID == info.ID {
				t.Error("it is believed for ever")
			}
		}
	})
}

// What a build that was killed leaves behind goes with the next sweep, and what others have does
// not.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &imagetest.Engine{}
		s := image.New(e, image.Options{Dir: t.TempDir()})
		e.Labeled("", map[string]string{"evalrun.build": "1"})
		step := e.Labeled("", map[string]string{"evalrun.build": "1"})
		e.AddContainer(step)
		e.Labeled("", map[string]string{"evalrun.image": "0123"})
		e.Labeled("", map[string]string{"other": "1"})
		used := e.Labeled("", map[string]string{"evalrun.image": "0123", "evalrun.build": "1"})
		e.AddContainer(used)
		time.Sleep(time.Minute)
		n, err := s.Sweep(t.Context())
		if err != nil || n != 4 {
			t.Errorf("%d, %v", n, err)
		}
		if again, err := s.Sweep(t.Context()); err != nil || again != 0 || s.Swept() != 4 {
			t.Errorf("once more: %d, %v; %d in all", again, err, s.Swept())
		}
		if got := strings.Join(e.Names(), " "); got != "<none> <none>" {
			t.Errorf("left are %s", got)
		}
	})
}

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &imagetest.Engine{Remote: map[string]int64{}, Pace: time.Second}
		s := image.New(e, image.Options{Dir: t.TempDir(), Pulls: 3, Timeout: 2 * time.Second})
		var wg sync.WaitGroup
		for i := range 9 {
			e.Remote[fmt.Sprintf("r%d:1", i)] = 1
		}
		for ref := range e.Remote { // three turns of a second each: waiting for a turn is not the pull's time
			wg.Go(func() {
				if _, err := s.Prepare(t.Context(), sandbox.Image{Ref: ref}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if e.Most != 3 {
			t.Errorf("%d at once", e.Most)
		}
	})
}

func TestAuth(t *testing.T) {
	dir := t.TempDir()
	helper := "#!/bin/sh\nread host\ncase $host in help.example) echo '{\"ServerURL\":\"x\",\"Username\":\"hu\",\"Secret\":\"hs\"}';; token.example) echo '{\"Username\":\"<token>\",\"Secret\":\"tok\"}';; none.example) echo credentials not found in native keychain; exit 1;; *) echo broken; exit 2;; esac\n"
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-test"), []byte(helper), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	config := map[string]any{
		"auths": map[string]any{"https://index.docker.io/v1/": map[string]string{
			"auth": base64.StdEncoding.EncodeToString([]byte("hub:p:w"))},
			"reg.example:5000": map[string]string{"identitytoken": "it"}},
		"credHelpers": map[string]string{"help.example": "test", "token.example": "test", "none.example": "test",
			"bad.example": "test", "evil.example": "../../bin/x"},
	}
	b, _ := json.Marshal(config)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	e := &imagetest.Engine{Remote: map[string]int64{}}
	s := image.New(e, image.Options{Dir: t.TempDir(), Config: dir})
	hub := image.Auth{Username: "hub", Password: "p:w", ServerAddress: "https://index.docker.io/v1/"}
	for ref, want := range map[string]image.Auth{
		"python:3":              hub,
		"docker.io/u/x":         hub,
		"reg.example:5000/x:1":  {IdentityToken: "it", ServerAddress: "reg.example:5000"},
		"help.example/a/b":      {Username: "hu", Password: "hs", ServerAddress: "help.example"},
		"token.example/a":       {IdentityToken: "tok", ServerAddress: "token.example"},
		"none.example/a":        {},
		"reg.example/x":         {},
		"localhost/x":           {},
		"other.example:5000/x2": {},
	} {
		e.Remote[ref] = 1
		e.Auths = nil
		prepare(t, s, sandbox.Image{Ref: ref})
		if len(e.Auths) != 1 || e.Auths[0] != want {
			t.Errorf("%s: %+v", ref, e.Auths)
		}
	}
	for ref, want := range map[string]string{"bad.example/x": "docker-credential-test",
		"evil.example/x": "no name of a credential helper"} {
		if _, err := s.Prepare(t.Context(), sandbox.Image{Ref: ref}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prepare(t.Context(), sandbox.Image{Ref: "x.example/y"}); err == nil ||
		!strings.Contains(err.Error(), "config.json") {
		t.Errorf("a broken config: %v", err)
	}
}

// A process that is killed in the middle of a build holds up nobody.
func TestKilled(t *testing.T) {
	if dir := os.Getenv("EVALRUN_IMAGE_CHILD"); dir != "" {
		image.New(&imagetest.Engine{}, image.Options{Dir: dir, Progress: func(p image.Progress) {
			if strings.Contains(p.Step, "sleep") {
				fmt.Println("sleeping")
			}
		}}).Prepare(context.Background(), built("RUN sleep 1000\n"))
		return
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self, "-test.run=^TestKilled$")
	child.Env = append(os.Environ(), "EVALRUN_IMAGE_CHILD="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	e := &imagetest.Engine{}
	got := make(chan error, 1)
	img := built("RUN sleep 1000\n")
	img.Timeout = time.Second
	go func() {
		_, err := image.New(e, image.Options{Dir: dir}).Prepare(t.Context(), img)
		got <- err
	}()
	select {
	case err := <-got:
		t.Errorf("it did not wait for the other's build: %v", err)
	case <-time.After(2 * time.Second):
	}
	child.Process.Signal(syscall.SIGKILL)
	child.Wait()
	select {
	case err := <-got: // its own build began, and took its own time
		if err == nil || !strings.Contains(err.Error(), "time limit") || e.Builds != 1 {
			t.Errorf("%v, %d builds", err, e.Builds)
		}
	case <-time.After(30 * time.Second):
		t.Error("the dead process's lock is still there")
	}
	var left []string
	filepath.WalkDir(dir, func(p string, d os.DirEntry, _ error) error {
		if strings.Contains(p, "/locks/build-") {
			left = append(left, p)
		}
		return nil
	})
	if len(left) > 0 {
		t.Errorf("locks are left: %v", left)
	}
	if !slices.Equal(e.Names(), nil) {
		t.Errorf("images are left: %v", e.Names())
	}
}

// BenchmarkPrepare is what a trial pays for an image that is ready.
func BenchmarkPrepare(b *testing.B) {
	dir := b.TempDir()
	for i := range 20 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), make([]byte, 10<<10), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer root.Close()
	e := &imagetest.Engine{}
	e.Add("base:1", 1)
	s := image.New(e, image.Options{Dir: b.TempDir()})
	img := sandbox.Image{Dockerfile: "FROM base:1\nCOPY f1 /app\nRUN echo a\n", Context: root.FS()}
	if _, err := s.Prepare(b.Context(), img); err != nil {
		b.Fatal(err)
	}
	time.Sleep(2100 * time.Millisecond) // until the files' times are old enough to be believed
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Prepare(b.Context(), img); err != nil {
			b.Fatal(err)
		}
	}
}
