package browsers

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// An Isolation says how browsers are isolated from the host, and what is missing.
type Isolation struct {
	Namespaces bool   // its own network, files and processes
	Sandbox    bool   // Chromium's sandbox
	Why        string // why one of them is missing
}

var isolations struct {
	sync.Mutex
	by map[string]Isolation
}

// Isolated returns what isolation the host permits for a browser program. It tries it once for each
// program.
func Isolated(path string) Isolation {
	isolations.Lock()
	defer isolations.Unlock()
	if i, ok := isolations.by[path]; ok {
		return i
	}
	if isolations.by == nil {
		isolations.by = map[string]Isolation{}
	}
	i := probe(path)
	isolations.by[path] = i
	return i
}

func probe(path string) Isolation {
	dir, err := os.MkdirTemp("", prefix+"probe-")
	if err != nil {
		return Isolation{Why: err.Error()}
	}
	defer os.RemoveAll(dir)
	for _, d := range []string{"profile", "files"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return Isolation{Why: err.Error()}
		}
	}
	c := &confinement{uid: nextUID()}
	defer c.close()
	if c.otherUser() {
		if err := os.Chmod(dir, 0o711); err != nil {
			return Isolation{Why: err.Error()}
		}
	}
	if err := c.prepare(dir, path, nil); err != nil {
		return Isolation{Why: err.Error()}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var says bytes.Buffer
	cmd := exec.CommandContext(ctx, "/")
	cmd.Args, cmd.Stderr, cmd.Env, cmd.WaitDelay = nil, &says, []string{"HOME=/"}, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err = c.command(cmd); err == nil {
		cmd.Err = nil
		err = cmd.Run()
	}
	c.closeChildFiles()
	var i Isolation
	switch _, first, aerr := c.readReply(); {
	case err != nil:
		i.Why = err.Error()
	case aerr != nil || says.Len() > 0:
		if i.Why = strings.TrimSpace(says.String()); i.Why == "" {
			i.Why = aerr.Error()
		}
	default:
		i.Namespaces, i.Sandbox = true, first == 1
		if !i.Sandbox {
			i.Why = "no user namespace within a user namespace"
		}
		return i
	}
	return i
}
