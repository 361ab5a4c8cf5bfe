package webtext

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"io"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/browsergym/obs"
)

// A View is an observation together with the contents of its blobs, which are read on first use. It
// is not safe for concurrent use.
type View struct {
	event.Browsed
	log event.Log

	ax    *obs.AXTree
	dom   *obs.Snapshot
	props *obs.Properties
	html  map[obs.Options]string
}

// Look returns a view of an observation in a log.
func Look(log event.Log, b event.Browsed) *View { return &View{Browsed: b, log: log} }

// Of returns a view of an observation whose contents are in memory. Arguments are nil for contents
// that were not recorded.
func Of(b event.Browsed, ax *obs.AXTree, dom *obs.Snapshot, props *obs.Properties) *View {
	return &View{Browsed: b, ax: ax, dom: dom, props: props}
}

// AX returns the accessibility tree as text; ok is false if the environment did not record one.
func (v *View) AX(ctx context.Context, o obs.AXOptions) (text string, ok bool, err error) {
	if v.ax == nil {
		if v.Browsed.AX == nil {
			return "", false, nil
		}
		if v.ax, err = read[obs.AXTree](ctx, v.log, *v.Browsed.AX, "the accessibility tree"); err != nil {
			return "", false, err
		}
	}
	if err := v.properties(ctx); err != nil {
		return "", false, err
	}
	text, err = obs.AXText(v.ax, v.props, o)
	return text, err == nil, err
}

// HTML returns the page as HTML; ok is false if the environment did not record it.
func (v *View) HTML(ctx context.Context, o obs.Options) (text string, ok bool, err error) {
	if text, ok := v.html[o]; ok {
		return text, true, nil
	}
	if v.dom == nil {
		if v.DOM == nil {
			return "", false, nil
		}
		if v.dom, err = read[obs.Snapshot](ctx, v.log, *v.DOM, "the page's DOM"); err != nil {
			return "", false, err
		}
	}
	if err := v.properties(ctx); err != nil {
		return "", false, err
	}
	if text, err = obs.DOMText(v.dom, v.props, o); err != nil {
		return "", false, err
	}
	if v.html == nil {
		v.html = map[obs.Options]string{}
	}
	v.html[o] = text
	return text, true, nil
}

// SetOfMarks returns the screenshot with the bids of interactive elements drawn over it: the
// environment's, or one that is drawn here and stored. It is nil if there is no screenshot.
func (v *View) SetOfMarks(ctx context.Context) (*event.Blob, error) {
	if v.Marks != nil || v.Screenshot == nil {
		return v.Marks, nil
	}
	if err := v.properties(ctx); err != nil {
		return nil, err
	}
	if v.props == nil {
		return v.Screenshot, nil
	}
	r, err := v.log.OpenBlob(ctx, *v.Screenshot)
	if err != nil {
		return nil, fault("reading the screenshot", err)
	}
	defer r.Close()
	img, err := png.Decode(r)
	if err != nil {
		return nil, fault("reading the screenshot", err)
	}
	var buf bytes.Buffer
	enc := png.Encoder{CompressionLevel: png.BestSpeed}
	if err := enc.Encode(&buf, obs.Overlay(img, v.props, obs.OverlayOptions{})); err != nil {
		return nil, fault("drawing marks", err)
	}
	b, err := v.log.PutBlob(ctx, "image/png", &buf)
	if err != nil {
		return nil, fault("keeping the screenshot with marks", err)
	}
	v.Marks = &b
	return v.Marks, nil
}

func (v *View) properties(ctx context.Context) (err error) {
	if v.props == nil && v.Properties != nil {
		v.props, err = read[obs.Properties](ctx, v.log, *v.Properties, "the elements' properties")
	}
	return err
}

func read[T any](ctx context.Context, log event.Log, b event.Blob, what string) (*T, error) {
	r, err := log.OpenBlob(ctx, b)
	if err != nil {
		return nil, fault("reading "+what, err)
	}
	defer r.Close()
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, fault("reading "+what, err)
	}
	t := new(T)
	if err := json.Unmarshal(raw, t); err != nil {
		return nil, fault("reading "+what, err)
	}
	return t, nil
}

// fault returns an error that is not the agent's failure.
func fault(what string, err error) error {
	return &agent.Fault{Err: fmt.Errorf("%s: %w", what, err)}
}
