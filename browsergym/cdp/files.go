package cdp

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// chooser is a wait for a page that asks for files.
type chooser struct {
	opened  bool
	backend int
	many    bool
}

// Upload does something that makes the page ask for files, and gives it those. It waits for the question as long as for a navigation. What trigger
// returns as an error comes first.
func (p *Page) Upload(ctx context.Context, files []string, trigger func(context.Context) error) error {
	const api = "FileChooser.set_files"
	intercept := func(on bool) error {
		_, err := p.call(ctx, "Page.setInterceptFileChooserDialog", map[string]any{"enabled": on})
		return err
	}
	if err := intercept(true); err != nil {
		return p.ended(api, err)
	}
	w := &chooser{}
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
	short, cancel := context.WithTimeout(ctx, limit) // from here on: the action counts
	defer cancel()
	if err := trigger(ctx); err != nil {
		return err
	}
	if err := p.c.wait(short, func() (bool, error) { return w.opened || p.closed, nil }); err != nil {
		if ctx.Err() != nil || short.Err() == nil {
			return err
		}
		const line = "==========================="
		return &Failure{"TimeoutError", fmt.Sprintf("Timeout %dms exceeded while waiting for event \"filechooser\"\n%s logs %s\nwaiting for event \"filechooser\"\n%s%s======",
			limit.Milliseconds(), line, line, line, line)}
	}
	if p.Closed() {
		return p.ended(api, ErrGone)
	}
	if len(files) > 1 && !w.many {
		return &Failure{"Error", api + ": Error: Non-multiple file input can only accept single file"}
	}
	paths := make([]string, 0, len(files))
	for _, f := range files {
		if _, err := os.Stat(f); err != nil {
			return &Failure{"Error", api + ": ENOENT: no such file or directory, access '" + f + "'"}
		}
		path, err := filepath.Abs(f)
		if err != nil {
			return err
		}
		paths = append(paths, path)
	}
	var err error
	if len(paths) > 0 {
		_, err = p.call(ctx, "DOM.setFileInputFiles", map[string]any{"files": paths, "backendNodeId": w.backend})
	} else {
		err = p.noFiles(ctx, w.backend)
	}
	p.slow(ctx)
	if err != nil {
		return p.ended(api, err)
	}
	return nil
}

// noFiles takes all files out of an input, which the browser itself cannot be told to do.
func (p *Page) noFiles(ctx context.Context, backend int) error {
	raw, err := p.call(ctx, "DOM.resolveNode", map[string]any{"backendNodeId": backend})
	if err != nil {
		return err
	}
	var r struct{ Object remote }
	if err := json.Unmarshal(raw, &r); err != nil {
		return err
	}
	q, err := p.c.b.Start(p.session, "Runtime.callFunctionOn", invoke{Object: r.Object.Object, Function: `function() {
		this.files = new DataTransfer().files;
		this.dispatchEvent(new Event('input', {bubbles: true, composed: true}));
		this.dispatchEvent(new Event('change', {bubbles: true}));
	}`})
	if err != nil {
		return err
	}
	return q.value(ctx, nil)
}

// download takes what the browser tells of downloads.
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
	for _, c := range b.all() {
		c.mu.Lock()
		if method == "Browser.downloadWillBegin" {
			c.beginDownload(e.Frame, Download{URL: e.URL, Name: e.Name, State: "inProgress", guid: e.GUID})
		}
		for i := range c.downloads {
			d := &c.downloads[i]
			if d.guid != e.GUID || method != "Browser.downloadProgress" {
				continue
			}
			d.State, d.Size = e.State, int64(e.Received)
			if d.Size > c.opts.DownloadLimit && d.State == "inProgress" {
				b.Send("", "Browser.cancelDownload", map[string]any{"guid": d.guid, "browserContextId": c.id})
			}
		}
		c.change()
		c.mu.Unlock()
	}
}

// maxDownloads bounds what a context keeps of its downloads; more are canceled.
const maxDownloads = 100

// beginDownload notes a download of one of the context's frames. The lock is held.
func (c *Context) beginDownload(frame string, d Download) {
	for _, p := range c.pages {
		f := p.frames[frame]
		if f == nil {
			continue
		}
		if f.up == nil {
			p.navigating = nil // a link to a download leads nowhere
		}
		if len(c.downloads) >= maxDownloads {
			c.b.Send("", "Browser.cancelDownload", map[string]any{"guid": d.guid, "browserContextId": c.id})
			return
		}
		if c.opts.Downloads != "" {
			d.Path = filepath.Join(c.opts.Downloads, d.guid)
		}
		c.downloads = append(c.downloads, d)
		return
	}
}
