package cdp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// fileChooser is a file chooser that a call of Upload waits for.
type fileChooser struct {
	opened   bool
	backend  int
	multiple bool
}

// Upload calls trigger, waits for the page to open a file chooser, and selects the files. The limit
// is that of a navigation. An error of trigger is returned at once.
func (p *Page) Upload(ctx context.Context, files []string, trigger func(context.Context) error) error {
	const api = "FileChooser.set_files"
	intercept := func(on bool) error {
		_, err := p.call(ctx, "Page.setInterceptFileChooserDialog", map[string]any{"enabled": on})
		return err
	}
	if err := intercept(true); err != nil {
		return p.ended(api, err)
	}
	w := &fileChooser{}
	p.c.mu.Lock()
	p.chooser = w
	p.c.mu.Unlock()
	defer func() {
		p.c.mu.Lock()
		p.chooser = nil
		p.c.mu.Unlock()
		intercept(false)
	}()
	limit := p.c.opts.Timeout
	short, cancel := context.WithTimeout(ctx, limit) // includes the trigger
	defer cancel()
	if err := trigger(ctx); err != nil {
		return err
	}
	if err := p.c.wait(short, func() (bool, error) { return w.opened || p.closed, nil }); err != nil {
		if ctx.Err() != nil || short.Err() == nil {
			return err
		}
		const line = "==========================="
		return &Failure{"TimeoutError", fmt.Sprintf("Timeout %dms exceeded while waiting for event "+
			"\"filechooser\"\n%s logs %s\nwaiting for event \"filechooser\"\n%s%s======",
			limit.Milliseconds(), line, line, line, line)}
	}
	if p.Closed() {
		return p.ended(api, ErrGone)
	}
	if len(files) > 1 && !w.multiple {
		return &Failure{"Error", api + ": Error: Non-multiple file input can only accept single file"}
	}
	paths := make([]string, 0, len(files))
	for _, f := range files {
		path, err := p.c.uploadPath(f)
		if err != nil {
			return &Failure{"Error", api + ": ENOENT: no such file or directory, access '" + f + "'"}
		}
		paths = append(paths, path)
	}
	var err error
	if len(paths) > 0 {
		_, err = p.call(ctx, "DOM.setFileInputFiles", map[string]any{"files": paths, "backendNodeId": w.backend})
	} else {
		err = p.clearFiles(ctx, w.backend)
	}
	p.slowMo(ctx)
	if err != nil {
		return p.ended(api, err)
	}
	return nil
}

// clearFiles removes all files from an input by script; the protocol has no call for it.
func (p *Page) clearFiles(ctx context.Context, backend int) error {
	raw, err := p.call(ctx, "DOM.resolveNode", map[string]any{"backendNodeId": backend})
	if err != nil {
		return err
	}
	var r struct{ Object remoteObject }
	if err := json.Unmarshal(raw, &r); err != nil {
		return err
	}
	q, err := p.c.b.Start(p.session, "Runtime.callFunctionOn",
		callFunction{Object: r.Object.Object, Function: `function() {
		this.files = new DataTransfer().files;
		this.dispatchEvent(new Event('input', {bubbles: true, composed: true}));
		this.dispatchEvent(new Event('change', {bubbles: true}));
	}`})
	if err != nil {
		return err
	}
	return q.value(ctx, nil)
}

// download handles the browser's download events.
func (b *Browser) download(method string, params []byte) {
	var e struct {
		Frame    string  `json:"frameId"`
		GUID     string  `json:"guid"`
		URL      string  `json:"url"`
		Name     string  `json:"suggestedFilename"`
		State    string  `json:"state"`
		Received float64 `json:"receivedBytes"`
	}
	if json.Unmarshal(params, &e) != nil {
		return
	}
	all := b.allContexts()
	if method == "Browser.downloadWillBegin" {
		known := false
		for _, c := range all {
			c.mu.Lock()
			known = c.beginDownload(e.Frame, Download{URL: e.URL, Name: e.Name, State: "inProgress", guid: e.GUID}) ||
				known
			c.notify()
			c.mu.Unlock()
		}
		// no context would count its size, for example of a frame in a page that was closed when it
		// opened
		if !known {
			for _, c := range all {
				b.Send("", "Browser.cancelDownload", map[string]any{"guid": e.GUID, "browserContextId": c.id})
			}
		}
		return
	}
	for _, c := range all {
		c.mu.Lock()
		for i := range c.downloads {
			d := &c.downloads[i]
			if d.guid != e.GUID {
				continue
			}
			d.State, d.Size = e.State, int64(e.Received)
			if (d.Size > c.opts.DownloadLimit || c.downloadedBytes() > c.opts.DownloadTotal) &&
				d.State == "inProgress" {
				b.Send("", "Browser.cancelDownload", map[string]any{"guid": d.guid, "browserContextId": c.id})
			}
		}
		c.notify()
		c.mu.Unlock()
	}
}

// downloadedBytes returns the size of all downloads. The lock is held.
func (c *Context) downloadedBytes() (n int64) {
	for _, d := range c.downloads {
		if d.State != "canceled" {
			n += d.Size
		}
	}
	return n
}

// CancelUnreported cancels downloads without an event: if a page closes at the moment its response
// becomes a download, the browser sends none, and the size would not be limited. A new file is
// canceled at the second call that finds it, or at once if it is too large.
func (b *Browser) CancelUnreported() {
	for _, c := range b.allContexts() {
		if c.opts.Downloads == "" {
			continue
		}
		files, _ := os.ReadDir(c.opts.Downloads)
		c.mu.Lock()
		untold := map[string]bool{}
		for _, f := range files {
			guid := strings.TrimSuffix(f.Name(), ".crdownload")
			fi, err := f.Info()
			if err != nil || slices.ContainsFunc(c.downloads, func(d Download) bool { return d.guid == guid }) {
				continue
			}
			untold[guid] = true
			if c.unreported[guid] || fi.Size() > c.opts.DownloadLimit {
				b.Send("", "Browser.cancelDownload", map[string]any{"guid": guid, "browserContextId": c.id})
			}
		}
		c.unreported = untold
		c.mu.Unlock()
	}
}

// uploadPath returns the path by which the browser finds a file to upload. Only files below
// UploadFrom and Downloads are allowed, after symbolic links are resolved. Any other file is
// reported as missing, so that an agent learns nothing about it.
func (c *Context) uploadPath(name string) (string, error) {
	if name == "" { // an empty name is no file, not the working directory
		return "", os.ErrNotExist
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", err
	}
	given := func(dir string) bool { return isBelow(dir, path) }
	if !slices.ContainsFunc(c.opts.UploadFrom, given) && !given(c.opts.Downloads) {
		return "", os.ErrNotExist
	}
	in, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe must not block
	if err != nil {
		return "", err
	}
	defer in.Close()
	if c.opts.Uploads == "" || given(c.opts.Uploads) || given(c.opts.Downloads) {
		return path, nil
	}
	fi, err := in.Stat()
	if err != nil || !fi.Mode().IsRegular() || fi.Size() > maxUpload {
		return "", fmt.Errorf("%s: not a file of at most %d MB", name, maxUpload>>20)
	}
	dir, err := os.MkdirTemp(c.opts.Uploads, "")
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, filepath.Base(name)) // the page learns this name
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", err
	}
	if _, err := io.Copy(out, io.LimitReader(in, maxUpload)); err != nil {
		out.Close()
		return "", err
	}
	return to, errors.Join(out.Close(), os.Chmod(dir, 0o755))
}

// maxUpload is the maximum size of a file that is copied for the browser.
const maxUpload = 1 << 30

// isBelow reports whether a path lies in a folder. "" contains nothing.
func isBelow(dir, path string) bool {
	if dir == "" {
		return false
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// maxDownloads limits the downloads kept by a context; more are canceled. maxTargets limits the
// pages that it remembers.
const (
	maxDownloads = 100
	maxTargets   = 10_000
)

// beginDownload records a download if it belongs to one of the context's frames, or to a page that
// has closed since: many pages are opened only for a download. The lock is held.
func (c *Context) beginDownload(frame string, d Download) bool {
	ours := c.targets[frame]
	for _, p := range c.pages {
		if f := p.frames[frame]; f != nil {
			ours = true
			if f.parent == nil {
				p.navigating = nil // a link to a download does not navigate
			}
		}
	}
	switch {
	case !ours:
		return false
	case len(c.downloads) >= maxDownloads:
		c.b.Send("", "Browser.cancelDownload", map[string]any{"guid": d.guid, "browserContextId": c.id})
		return true
	case c.opts.Downloads != "":
		d.Path = filepath.Join(c.opts.Downloads, d.guid)
	}
	c.downloads = append(c.downloads, d)
	return true
}
