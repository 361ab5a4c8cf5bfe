package format

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// A repository at a commit. What was fetched stays in the cache, where the commit's own hash says
// whether it is what was asked for.
type repository struct{ url, commit string }

var (
	commitForm = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)
	urlForm    = regexp.MustCompile(`^(https://|ssh://|file:///)[^\s\x00-\x1f]+$|^[A-Za-z0-9_.-]+@[A-Za-z0-9.-]+:[^\s\x00-\x1f]+$`)
)

func (r repository) check() error {
	switch {
	case !urlForm.MatchString(r.url):
		return fmt.Errorf("%q is no address that tasks are fetched from; want https, ssh or file", r.url)
	case !commitForm.MatchString(r.commit):
		return fmt.Errorf("%s is named at %q; a task is only fetched at a full commit id", r.url, r.commit)
	}
	return nil
}

// fetchLimit bounds one fetch.
const fetchLimit = 10 * time.Minute

// fetched remembers which folders were verified by this process, and keeps two fetches of one from
// running at once.
var fetched = struct {
	sync.Mutex
	m map[string]error
}{m: map[string]error{}}

// folder returns a folder that holds the repository at its commit. It is fetched only when fetch is
// set.
func (r repository) folder(ctx context.Context, cache string, fetch bool) (string, error) {
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no cache folder (%w); set the option cache", err)
		}
		cache = filepath.Join(user, "evalrun", "harbor")
	}
	sum := sha256.Sum256([]byte(r.url))
	dir := filepath.Join(cache, hex.EncodeToString(sum[:8]), r.commit)
	fetched.Lock()
	defer fetched.Unlock()
	if err, ok := fetched.m[dir]; ok && (err == nil || ctx.Err() != nil) {
		return dir, err
	}
	err := r.ensure(ctx, dir, fetch)
	if ctx.Err() == nil {
		fetched.m[dir] = err
	}
	return dir, err
}

func (r repository) ensure(ctx context.Context, dir string, fetch bool) error {
	if _, err := os.Stat(dir); err == nil {
		return r.checkCommit(ctx, dir)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !fetch {
		return fmt.Errorf("it is in %s at %s, which is not fetched; set the option fetch: true, or root to a folder "+
			"with a copy", r.url, r.commit[:12])
	}
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for _, args := range [][]string{
		{"init", "-q"},
		{"fetch", "-q", "--depth", "1", "--no-tags", "--no-recurse-submodules", "--", r.url, r.commit},
		{"checkout", "-q", "--detach", r.commit},
	} {
		if _, err := git(ctx, tmp, args...); err != nil {
			return fmt.Errorf("fetching %s: %w", r.url, err)
		}
	}
	if err := r.checkCommit(ctx, tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		if _, there := os.Stat(dir); there == nil { // another evalrun was faster
			return r.checkCommit(ctx, dir)
		}
		return err
	}
	return nil
}

// checkCommit compares a folder with the commit that it is to hold.
func (r repository) checkCommit(ctx context.Context, dir string) error {
	head, err := git(ctx, dir, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	changed, err := git(ctx, dir, "status", "--porcelain", "--ignored", "--untracked-files=normal")
	if err != nil {
		return err
	}
	if strings.TrimSpace(head) != r.commit || strings.TrimSpace(changed) != "" {
		return fmt.Errorf("the cached folder %s does not hold commit %s any more; remove it and fetch again", dir,
			r.commit)
	}
	return nil
}

// git runs this machine's git, without hooks, prompts or helpers that a repository could bring.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git",
		append([]string{"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c",
			"protocol.ext.allow=never",
			"-c", "advice.detachedHead=false", "-c", "core.autocrlf=false", "-c", "gc.auto=0"}, args...)...)
	cmd.Dir = dir
	for _, kv := range os.Environ() { // a GIT_DIR of ours would lead elsewhere
		if !strings.HasPrefix(kv, "GIT_") || strings.HasPrefix(kv, "GIT_SSH") || strings.HasPrefix(kv, "GIT_CONFIG") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		what := strings.TrimSpace(errs.String())
		if i := strings.LastIndexByte(what, '\n'); i >= 0 {
			what = what[i+1:]
		}
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, what)
	}
	return out.String(), nil
}
