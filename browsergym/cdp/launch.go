package cdp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/isolate"
)

// Binaries are the names of browsers to look for, best first. The headless shell renders like the
// browser of published results.
var Binaries = []string{"chromium-headless-shell", "chrome-headless-shell", "headless_shell", "chromium",
	"chromium-browser", "google-chrome", "google-chrome-stable"}

// Find returns the path of a browser: path if it is set, else the first of [Binaries] that exists.
func Find(path string) (string, error) {
	if path != "" {
		p, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("browser %s: %w", path, err)
		}
		return p, nil
	}
	for _, name := range Binaries {
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return "", errors.New("no browser was found; install chromium-headless-shell, or name one (browser.path)")
}

// resolveWrapper returns the program that a distribution's wrapper script executes, so that no
// shell runs between us and the browser.
func resolveWrapper(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return path
	}
	defer f.Close()
	b := make([]byte, 4<<10)
	n, _ := io.ReadFull(f, b)
	text, script := strings.CutPrefix(string(b[:n]), "#!/bin/sh")
	if !script {
		return path
	}
	var lines []string // without comments
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" && l[0] != '#' && l[0] != '-' {
			lines = append(lines, l)
		}
	}
	if len(lines) != 1 { // it does more than execute the program
		return path
	}
	program, ok := strings.CutSuffix(strings.TrimPrefix(lines[0], "exec "), ` "$@"`)
	if fi, err := os.Stat(program); !ok || err != nil || !filepath.IsAbs(program) || !fi.Mode().IsRegular() ||
		fi.Mode()&0o111 == 0 {
		return path
	}
	return program
}

// Options of a browser. A zero field means its default.
type Options struct {
	Path   string            // of the program; "" means the result of [Find]
	Dir    string            // parent of its profile folder; "" means the system's folder for temporary files
	Args   []string          // additional flags
	Env    map[string]string // environment variables in addition to PATH, HOME and LANG
	Stderr io.Writer         // receives a copy of its stderr

	// Prepare, if set, changes how the browser's process is started, for example in namespaces by
	// a program that executes the browser. It must keep cmd.ExtraFiles and may append to it.
	Prepare func(cmd *exec.Cmd) error
	Sandbox bool // Chromium's sandbox works, even if this process is root
}

// A Browser is a running Chromium. It is safe for concurrent use.
type Browser struct {
	*Conn
	Product   string // "HeadlessChrome/156.0.8078.79"
	cmd       *exec.Cmd
	profile   string
	stderr    *tail
	exited    chan struct{}
	exitState string
	once      sync.Once

	mu        sync.Mutex
	contexts  map[string]*Context
	prewarmed []*Prewarmed
	probes    []*probe // slow and pending probes
}

// flags are the flags of the reference's browser that affect observations, and those that keep it
// quiet. Chromium does not merge repeated --disable-features, so there is only one.
var flags = strings.Fields(`
	--disable-features=OverlayScrollbars,ExtendedOverlayScrollbars --force-color-profile=srgb --mute-audio
	--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4
	--disable-popup-blocking --disable-back-forward-cache --disable-background-timer-throttling --disable-backgrounding-occluded-windows
	--disable-renderer-backgrounding --disable-ipc-flooding-protection --disable-hang-monitor --disable-prompt-on-repost --disable-dev-shm-usage
	--disable-extensions --disable-component-update --disable-background-networking --disable-client-side-phishing-detection --disable-default-apps
	--disable-field-trial-config --disable-breakpad --allow-pre-commit-input --enable-automation --no-first-run --no-default-browser-check
	--password-store=basic --use-mock-keychain --no-service-autorun --export-tagged-pdf --disable-search-engine-choice-screen
	--disable-site-isolation-trials --disable-sync --disable-quic --disable-gpu --no-startup-window --remote-debugging-pipe
	--disable-checker-imaging`) // the last flag makes sure that screenshots include images that are still being decoded

// startLimit bounds the time until a new browser answers its first call.
const startLimit = 30 * time.Second

// Launch starts a browser with its own profile. It runs until Close or until this process ends.
func Launch(ctx context.Context, o Options) (_ *Browser, err error) {
	path, err := Find(o.Path)
	if err != nil {
		return nil, err
	}
	path = resolveWrapper(path)
	profile, err := os.MkdirTemp(o.Dir, "evalrun-browser-")
	if err != nil {
		return nil, fmt.Errorf("making the browser's profile folder: %w", err)
	}
	b := &Browser{profile: profile, stderr: &tail{next: o.Stderr}, exited: make(chan struct{})}
	toR, toW, err := os.Pipe()
	if err != nil {
		os.RemoveAll(profile)
		return nil, err
	}
	fromR, fromW, err := os.Pipe()
	if err != nil {
		toR.Close()
		toW.Close()
		os.RemoveAll(profile)
		return nil, err
	}
	args := append([]string{"--user-data-dir=" + profile, "--headless"}, flags...)
	if os.Geteuid() == 0 && !o.Sandbox { // root cannot have Chromium's own sandbox
		args = append(args, "--no-sandbox")
	}
	b.cmd = &exec.Cmd{
		Path: path, Args: append([]string{path}, append(args, o.Args...)...), Dir: profile,
		Env:        []string{"PATH=" + os.Getenv("PATH"), "HOME=" + profile, "LANG=C.UTF-8", "TZ=" + os.Getenv("TZ")},
		ExtraFiles: []*os.File{toR, fromW}, Stderr: b.stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
		WaitDelay:   2 * time.Second,
	}
	for k, v := range o.Env {
		b.cmd.Env = append(b.cmd.Env, k+"="+v)
	}
	if o.Prepare != nil {
		if err := o.Prepare(b.cmd); err != nil {
			for _, f := range []*os.File{toR, toW, fromR, fromW} {
				f.Close()
			}
			os.RemoveAll(profile)
			return nil, fmt.Errorf("starting the browser %s: %w", path, err)
		}
	}
	started := make(chan error, 1)
	go b.run(started)
	err = <-started
	toR.Close()
	fromW.Close()
	if err != nil {
		toW.Close()
		fromR.Close()
		os.RemoveAll(profile)
		return nil, fmt.Errorf("starting the browser %s: %w", path, err)
	}
	b.Conn, b.contexts = NewConn(fromR, toW), map[string]*Context{}
	b.Handle("", b.event)
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("no answer within %v", startLimit))
	defer cancel()
	if err := b.handshake(ctx); err != nil {
		select {
		case <-b.exited: // it ended by itself
			err = fmt.Errorf("%w: it ended as it began (%s)", err, b.exitState)
		case <-time.After(time.Second):
			b.Kill()
		}
		b.Close()
		return nil, fmt.Errorf("starting the browser %s: %w%s", path, err, b.stderr.suffix())
	}
	return b, nil
}

// run starts the process and waits for it on a locked thread, because the process dies with the
// thread that started it.
func (b *Browser) run(started chan<- error) {
	runtime.LockOSThread()
	if b.cmd.SysProcAttr.Cloneflags&syscall.CLONE_NEWNET == 0 {
		// Chromium drops all connections (net::ERR_NETWORK_CHANGED) when an interface appears or
		// disappears, as those of containers do. If it cannot query the kernel, it does not notice.
		// The browser also starts on kernels without filters.
		_ = isolate.DenyRouteNetlink()
	}
	err := b.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	b.cmd.Wait()
	b.exitState = b.cmd.ProcessState.String()
	b.signalGroup(syscall.SIGKILL) // remaining processes of the browser
	close(b.exited)
}

func (b *Browser) signalGroup(sig syscall.Signal) { syscall.Kill(-b.cmd.Process.Pid, sig) }

// minVersion is the first version of Chromium that has all calls that are used here.
const minVersion = 120

// handshake checks the version and enables events for new pages, before their first document runs.
func (b *Browser) handshake(ctx context.Context) error {
	raw, err := b.Call(ctx, "", "Browser.getVersion", nil)
	if err != nil {
		return err
	}
	var v struct{ Product string }
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	b.Product = v.Product
	if _, version, ok := strings.Cut(v.Product, "/"); ok {
		major, _, _ := strings.Cut(version, ".")
		if n, err := strconv.Atoi(major); err == nil && n < minVersion {
			return fmt.Errorf("%s is too old; version %d or a newer one is needed", v.Product, minVersion)
		}
	}
	_, err = b.Call(ctx, "", "Target.setAutoAttach",
		map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true})
	return err
}

// closeLimit is the time in which a browser may end by itself before it is killed.
const closeLimit = 3 * time.Second

// Close ends the browser, and all its processes, and removes its profile. It may be called again.
func (b *Browser) Close() error {
	b.once.Do(func() {
		b.Conn.Close() // closing its pipe ends it
		select {
		case <-b.exited:
		case <-time.After(closeLimit):
			b.signalGroup(syscall.SIGKILL)
			<-b.exited
		}
		for range 500 { // its last processes may still write there, and end late on a busy machine
			if os.RemoveAll(b.profile) == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	if _, err := os.Stat(b.profile); err == nil {
		return fmt.Errorf("the browser's profile folder %s could not be removed", filepath.Base(b.profile))
	}
	return nil
}

// Kill ends the browser at once, as a crash would.
func (b *Browser) Kill() { b.signalGroup(syscall.SIGKILL) }

// Signal sends a signal to all processes of the browser.
func (b *Browser) Signal(sig syscall.Signal) { b.signalGroup(sig) }

// PID returns the PID of the browser's first process.
func (b *Browser) PID() int { return b.cmd.Process.Pid }

// Profile returns the folder of the browser's profile, which Close removes.
func (b *Browser) Profile() string { return b.profile }

// Exited returns a channel that is closed when the browser's process has ended.
func (b *Browser) Exited() <-chan struct{} { return b.exited }

// ExitReason returns how the browser ended and the end of its stderr.
func (b *Browser) ExitReason() string {
	select {
	case <-b.exited:
		return b.exitState + b.stderr.suffix()
	default:
		return "it runs"
	}
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	b    []byte
	next io.Writer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next != nil {
		t.next.Write(p)
	}
	t.b = append(t.b, p...)
	if n := len(t.b) - 8<<10; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	return len(p), nil
}

func (t *tail) suffix() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := strings.TrimSpace(string(t.b)); s != "" {
		return ": " + s
	}
	return ""
}
