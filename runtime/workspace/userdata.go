package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing/fstest"
	"time"
	"unicode/utf8"

	"github.com/evalrun/evalrun/internal/hostpath"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// DeerFlow's own folders.
const (
	userData   = "/mnt/user-data"
	skillsRoot = "/mnt/skills"
	skillsDir  = skillsRoot + "/public"
	resultsDir = userData + "/outputs/tool-results"
)

// userFolders are what is in userData.
var userFolders = []string{userData + "/workspace", userData + "/uploads", userData + "/outputs"}

// makeFolders makes DeerFlow's folders before the first call. If something is in their place, the
// calls say so.
func (w *Workspace) makeFolders(ctx context.Context) error {
	w.folders.Lock()
	defer w.folders.Unlock()
	if w.haveFolders {
		return nil
	}
	sb, err := w.get(ctx)
	if err != nil {
		return err
	}
	open := fstest.MapFS{}
	for _, f := range userFolders {
		open[path.Base(f)] = &fstest.MapFile{Mode: fs.ModeDir | 0o777, ModTime: time.Now()}
	}
	err = putFolders(ctx, sb, userData, open)
	if err == nil && w.options.Skills != "" {
		err = showSkills(ctx, sb, w.options.Skills)
	}
	w.haveFolders = err == nil
	return err
}

// putFolders puts folders and links into a sandbox, as far as what is there allows.
func putFolders(ctx context.Context, sb sandbox.Sandbox, dir string, tree fstest.MapFS) error {
	err := sb.Put(ctx, dir, tree)
	if failed := (*sandbox.Error)(nil); errors.As(err, &failed) && failed.Inside && !errors.Is(err, sandbox.ErrGone) {
		return nil
	}
	return err
}

// showSkills shows a folder as that of the skills: read-only, or where the driver cannot, by a link.
func showSkills(ctx context.Context, sb sandbox.Sandbox, from string) error {
	if c, ok := executor.Of(sb); ok {
		err := c.ShowReadOnly(ctx, from, skillsDir)
		var failed *sandbox.Error
		if !errors.As(err, new(*sandbox.Unsupported)) && !(errors.As(err, &failed) && failed.Inside) {
			return err
		}
	}
	link := path.Join("../..", from)
	return putFolders(ctx, sb, skillsRoot, fstest.MapFS{path.Base(skillsDir): {Data: []byte(link),
		Mode: fs.ModeSymlink | 0o777}})
}

// mapped returns the folders of the sandbox that command lines may name without isolation:
// DeerFlow's, the working directory, and that of complete outputs.
func (w *Workspace) mapped() []string {
	list := []string{userData, skillsRoot, "/run/evalrun"}
	if d := w.options.Dir; d != "" {
		d = path.Clean(d)
		if !slices.ContainsFunc(systemDirs, func(s string) bool { return hostpath.Below(s, d) }) {
			list = append(list, d)
		}
	}
	return list
}

// place checks the path of a call, by DeerFlow's rules.
func (c *deerflowCall) place(writes bool) error {
	name := c.args.Path
	if !path.IsAbs(name) {
		return told(fmt.Sprintf("path %q is not absolute; it must begin with /", name[:min(len(name), 200)]))
	}
	if slices.Contains(strings.Split(name, "/"), "..") {
		return told(fmt.Sprintf("path %q must not have ..", name[:min(len(name), 200)]))
	}
	root := c.w.hostRoot()
	name = path.Clean(root.Mask(path.Clean(name)))
	c.args.Path = name
	switch {
	case name == userData:
		c.within = []string{userData}
	case hostpath.Below(name, userData):
		c.within = userFolders
	case writes && hostpath.Below(name, skillsRoot):
		return told(name + ": read-only file system")
	}
	if list := c.w.mapped(); root != "" && !slices.ContainsFunc(list, func(f string) bool { return hostpath.Below(name, f) }) {
		return told(fmt.Sprintf("%s: permission denied: it must be below %s", name, strings.Join(list, ", ")))
	}
	return nil
}

// The budget of a result, in characters.
const (
	maxResult    = 12_000 // a longer one is kept in a file
	synopsisHead = 2_000
	synopsisTail = 1_000
	maxKept      = 30_000 // a longer one that cannot be kept is cut
	keptHead     = 8_000
	keptTail     = 3_000
)

// budget returns a long result as a synopsis, with the file that has all of it.
func (c *deerflowCall) budget(tool, text string) (string, error) {
	n := utf8.RuneCountInString(text)
	if n <= maxResult || tool == "read_file" {
		return text, nil
	}
	end := ".txt"
	if tool == "bash" {
		end = ".log"
	}
	sum := sha256.Sum256([]byte(text))
	name := resultsDir + "/" + tool + "-" + hex.EncodeToString(sum[:6]) + end
	res, why, err := c.w.fileOp(c.ctx, c.action.Actor, sandbox.FileOp{Op: sandbox.FileWrite, Path: name, Text: text,
		Within: userFolders})
	switch {
	case err != nil:
		return "", err
	case why == nil && !res.Error:
		return ends(text, synopsisHead, synopsisTail, fmt.Sprintf("The whole result has %d characters and is in %s: read "+
			"parts of it with read_file, or search it with grep.", n, name)), nil
	case n <= maxKept:
		return text, nil
	}
	return ends(text, keptHead, keptTail, "The whole result could not be kept."), nil
}

// ends returns the beginning and the end of a text, each up to a number of characters and cut at the
// end of a line if it has one, with a remark between them.
func ends(text string, head, tail int, remark string) string {
	first := chars(text, head)
	if i := strings.LastIndexByte(first, '\n'); i >= 0 {
		first = first[:i+1]
	}
	skip := utf8.RuneCountInString(text) - tail
	last := text[len(chars(text, skip)):]
	if i := strings.IndexByte(last, '\n'); i >= 0 && !strings.HasSuffix(text[:len(text)-len(last)], "\n") {
		last = last[i+1:]
	}
	n := skip + tail - utf8.RuneCountInString(first) - utf8.RuneCountInString(last)
	if first != "" && !strings.HasSuffix(first, "\n") {
		first += "\n"
	}
	return fmt.Sprintf("%s[... %d characters are left out. %s]\n%s", first, n, remark, last)
}
