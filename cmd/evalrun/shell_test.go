package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/harness/attach"
	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/local"
)

// A screen is a terminal of a person, with a program on it.
type screen struct {
	t      *testing.T
	master *os.File
	slave  *os.File
	cmd    *exec.Cmd
	modes  unix.Termios

	mu   sync.Mutex
	seen bytes.Buffer
	wake chan struct{}
}

// onScreen starts a program on a terminal.
func onScreen(t *testing.T, dir string, args ...string) *screen {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := os.NewFile(uintptr(fd), "terminal") // the only one of the descriptor, or it would be closed twice
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, master: m, wake: make(chan struct{}, 1)}
	if s.slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.slave.Close(); m.Close() })
	s.resize(24, 80)
	modes, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	s.modes = *modes
	s.cmd = exec.Command(args[0], args[1:]...)
	s.cmd.Dir, s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = dir, s.slave, s.slave, s.slave
	s.cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := m.Read(b)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.seen.Write(b[:n])
			s.mu.Unlock()
			select {
			case s.wake <- struct{}{}:
			default:
			}
		}
	}()
	return s
}

func (s *screen) resize(rows, cols uint16) {
	if err := unix.IoctlSetWinsize(int(s.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) types(text string) {
	if _, err := s.master.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// sees waits until the text is on the screen, and returns what was before it.
func (s *screen) sees(text string) string {
	s.t.Helper()
	over := time.After(time.Minute)
	for {
		s.mu.Lock()
		have := s.seen.String()
		if i := strings.Index(have, text); i >= 0 {
			s.seen.Next(i + len(text))
			s.mu.Unlock()
			return have[:i]
		}
		s.mu.Unlock()
		select {
		case <-s.wake:
		case <-over:
			s.t.Fatalf("%q is not on the screen, but %q", text, have)
		}
	}
}

// ends waits for the end of the program, which must leave the terminal as it was.
func (s *screen) ends(code int) {
	s.t.Helper()
	var x *exec.ExitError
	if err := s.cmd.Wait(); err != nil && !errors.As(err, &x) {
		s.t.Fatal(err)
	}
	if is := s.cmd.ProcessState.ExitCode(); is != code {
		s.t.Errorf("exit code %d, want %d", is, code)
	}
	modes, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS)
	if err != nil || *modes != s.modes {
		s.t.Errorf("the terminal is not as it was: %v, %v", modes, err)
	}
}

// TestShell sits at a terminal, in the sandbox of a running trial.
func TestShell(t *testing.T) {
	t.Run("local", func(t *testing.T) {
		if _, err := launch.OpenDriver(t.Context(), &local.Kind, image.Options{}); err != nil {
			if os.Getenv("EVALRUN_TEST_LOCAL") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
		shellOf(t, "--sandbox", "local")
	})
	t.Run("docker", func(t *testing.T) {
		if ok, err := dockerHere(t); err != nil {
			t.Fatal(err)
		} else if !ok {
			t.Skip("needs EVALRUN_TEST_DOCKER=1 and a Docker engine")
		}
		shellOf(t, "--sandbox", "docker", "--set", "sandbox.image="+testImage)
	})
}

func shellOf(t *testing.T, sandbox ...string) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"tasks.yaml": "name: w\ntasks:\n- {id: one, instruction: Wait., answer: \"3\"}\n",
		"agent.yaml": "- do:\n  - run: touch begun; until [ -e go ]; do sleep 0.1; done\n  - finish: \"3\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := exec.Command("evalrun", append([]string{"run", "tasks:tasks.yaml", "--agent", "script:agent.yaml", "-o", "out",
		"-q"}, sandbox...)...)
	var told bytes.Buffer
	run.Dir, run.Stdout, run.Stderr = dir, &told, &told
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	evalrun := func(args ...string) (string, error) {
		cmd := exec.Command("evalrun", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for {
		if _, err := evalrun("shell", "out", "one", "-q", "-c", "test -e begun"); err == nil {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("the run has ended: %v\n%s", err, &told)
		case <-time.After(50 * time.Millisecond):
		}
	}
	// The agent cannot see the socket.
	if out, err := evalrun("shell", "out", "one", "-q", "-c",
		"find / -xdev -name "+attach.SocketName+" 2>/dev/null; grep -a "+attach.SocketName+" /proc/net/unix; echo end"); out != "end\n" {
		t.Errorf("%q, %v", out, err)
	}

	s := onScreen(t, dir, "evalrun", "shell", "out", "one")
	s.sees("beside its agent")
	s.types("PS1='at''home> '\r")
	s.sees("athome> ")
	s.types("stty size; echo $TERM\r")
	s.sees("24 80")
	s.sees("xterm-256color")
	s.types("until stty size | grep '40 132'; do sleep 0.1; done; echo wid''er\r")
	s.resize(40, 132)
	s.sees("wider")
	s.types("sh -c 'echo sle''eps; exec sleep 1000'\r")
	s.sees("sleeps")
	s.types("\x03")
	s.sees("^C")
	s.types("printf 'a\\033]52;c;eA==\\007b\\033[6n\\033]0;t\\033\\\\c''d\\n'\r")
	if before := s.sees("abcd"); strings.Contains(before, "\x1b]") || strings.Contains(before, "\x1b[6n") {
		t.Errorf("%q", before)
	}
	s.types("\x1b[A\x15") // keys reach the shell's line editor
	s.types("exit 42\r")
	s.ends(42)

	// One leaves by ~. while something runs.
	s = onScreen(t, dir, "evalrun", "shell", "out", "one")
	s.sees("beside its agent")
	s.types("stty raw -echo; trap '' HUP INT TERM; echo bu''sy; exec sleep 100000\r")
	s.sees("busy")
	s.types("\r~.")
	s.sees("you have left")
	s.ends(137)

	// A fresh look at the files, where the driver can.
	out, err := evalrun("shell", "out", "one", "--look", "-c", "ls")
	switch {
	case sandbox[1] == "docker" && (err != nil || !strings.Contains(out, "begun")):
		t.Errorf("a look: %s, %v", out, err)
	case sandbox[1] == "local" && err == nil:
		t.Errorf("a look at a local sandbox: %s", out)
	}

	// The agent ends while somebody is there.
	s = onScreen(t, dir, "evalrun", "shell", "out", "one")
	s.sees("beside its agent")
	s.types("\x1b[?1049h echo he''re; touch go; sleep 100000\r")
	s.sees("the shell ended: the agent has ended, so its sandbox is closed to others")
	s.ends(137)
	if err := <-ended; err != nil {
		t.Errorf("the run: %v\n%s", err, &told)
	}
	story, err := evalrun("show", "out", "--trial", "one", "--full")
	if err != nil || !regexp.MustCompile(`(?s)opened a shell.*typed: .*exit 42.*left \(exit code 42\).*its terminal is gone.*`+
		`touch go.*the agent has ended`).MatchString(story) || !strings.Contains(story, "flags touched") {
		t.Errorf("%v\n%s", err, story)
	}
	if list, _ := filepath.Glob(filepath.Join(dir, "out", "*.sock")); list != nil {
		t.Errorf("%q are left", list)
	}

	// Afterwards, a fresh one.
	s = onScreen(t, dir, "evalrun", "shell", "out", "one")
	s.sees("this is a fresh sandbox")
	s.types("ls -A | wc -l; exit 9\r")
	s.sees("0")
	s.ends(9)
}
