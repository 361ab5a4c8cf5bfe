package cdp

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Lifecycle events of a document.
const (
	domReady = 1 << iota // DOMContentLoaded
	loaded               // load
)

// A frame is a frame of a page, including the main frame. Its fields are protected by its context's
// lock.
type frame struct {
	id              string
	parent          *frame   // nil for the main frame
	children        []*frame // in the order they were attached
	url             string
	document        string // address that its document was loaded from
	loader          string // of its current document
	lifecycle       int    // domReady, loaded
	mainContext     int    // ID of the page's script context; 0 between documents
	isolatedContext int    // ID of the script context of our isolated world
	markObject      string // remote object IDs of mark_elements.js and tools.js
	toolsObject     string
	owner           int    // backend node ID of the frame's element; 0 if not known yet
	bid             string // of that element, as it was marked last
	detached        bool
}

// mainFrame returns the main frame, which every ready page has.
func (p *Page) mainFrame() *frame {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.main
}

// allFrames returns all frames, parents before their children.
func (p *Page) allFrames() []*frame {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.main == nil {
		return nil
	}
	all := []*frame{p.main}
	for i := 0; i < len(all); i++ {
		all = append(all, all[i].children...)
	}
	return all
}

// maxFrames is the maximum number of tracked frames of a page.
const maxFrames = 5000

// attach adds a frame. The lock is held.
func (p *Page) attach(id, parent string) *frame {
	if f := p.frames[id]; f != nil {
		return f
	}
	up := p.frames[parent]
	if parent != "" && up == nil || len(p.frames) >= maxFrames {
		return nil
	}
	f := &frame{id: id, parent: up}
	p.frames[id] = f
	if up != nil {
		up.children = append(up.children, f)
	} else {
		p.main = f
	}
	return f
}

// detach removes a frame and its descendants. The lock is held.
func (p *Page) detach(f *frame) {
	if f == nil || f.detached {
		return
	}
	if f.parent != nil {
		f.parent.children = slices.DeleteFunc(f.parent.children, func(k *frame) bool { return k == f })
	}
	for all := []*frame{f}; len(all) > 0; all = all[1:] {
		all = append(all, all[0].children...)
		all[0].detached = true
		delete(p.frames, all[0].id)
	}
}

// tree is the answer of Page.getFrameTree.
type tree struct {
	Frame    frameInfo `json:"frame"`
	Children []tree    `json:"childFrames"`
}

type frameInfo struct {
	ID       string `json:"id"`
	Parent   string `json:"parentId"`
	Loader   string `json:"loaderId"`
	URL      string `json:"url"`
	Fragment string `json:"urlFragment"`
}

// addFrameTree adds the frames that existed before events were enabled. The lock is held.
func (p *Page) addFrameTree(t tree) {
	for all := []tree{t}; len(all) > 0; all = all[1:] {
		t := all[0]
		if f := p.attach(t.Frame.ID, t.Frame.Parent); f != nil && f.loader == "" {
			f.url, f.loader = t.Frame.URL+t.Frame.Fragment, t.Frame.Loader
			f.document = f.url
		}
		all = append(all, t.Children...)
	}
}

// committed records that a frame shows a new document. The lock is held.
func (p *Page) committed(i frameInfo) {
	f := p.frames[i.ID]
	if f == nil {
		if f = p.attach(i.ID, i.Parent); f == nil {
			return
		}
	}
	for _, k := range slices.Clone(f.children) {
		p.detach(k)
	}
	f.url = i.URL + i.Fragment
	f.document = f.url
	p.setStorageQuota(i.URL)
	if f.loader != i.Loader {
		f.loader, f.lifecycle = i.Loader, 0
	}
	if f.parent == nil {
		p.navigating = nil
		if p.loaders = append(p.loaders, i.Loader); len(p.loaders) > 50 {
			p.loaders = slices.Delete(p.loaders, 0, 25)
		}
	}
}

// waitFrame waits until a frame's current document has reached what, at most limit. It returns if
// the frame is removed.
func (p *Page) waitFrame(ctx context.Context, f *frame, what int, limit time.Duration) error {
	if f == nil {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := p.c.wait(short, func() (bool, error) {
		return f.lifecycle&what != 0 || f.detached || p.closed || p.crashed, nil
	})
	if errors.Is(err, ErrClosed) || ctx.Err() != nil {
		return err
	}
	return nil
}
