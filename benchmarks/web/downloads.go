package web

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// downloads are an episode's: files that lie in a folder of the pool's until they are blobs.
type downloads struct {
	budget   int64 // bytes that may still be stored
	reported map[string]bool
}

func newDownloads(r Record) *downloads {
	d := &downloads{budget: r.DownloadLimit, reported: map[string]bool{}}
	if d.budget <= 0 {
		d.budget = 100 << 20
	}
	return d
}

// take keeps what has come since it was last asked. What is too much for the episode is told of,
// without its content.
func (d *downloads) take(ctx context.Context, log event.Log,
	all []cdp.Download) (out []event.BrowserDownload, err error) {
	for _, f := range all {
		if d.reported[f.Path] || f.State == "inProgress" || f.Path == "" {
			continue
		}
		d.reported[f.Path] = true
		b := event.BrowserDownload{URL: cut(f.URL, maxURL), Name: cut(f.Name, maxTitle), State: f.State, Size: f.Size}
		if f.State == "completed" {
			if b.Blob, err = d.keep(ctx, log, f.Path); err != nil {
				return out, err
			}
			if b.Blob != nil {
				b.Size = b.Blob.Size
			} else {
				b.State = "canceled"
			}
		}
		out = append(out, b)
	}
	return out, nil
}

// keep puts a file into a blob and removes it; nil: it is gone, no plain file, or too large.
func (d *downloads) keep(ctx context.Context, log event.Log, path string) (*event.Blob, error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, nil
	}
	defer root.Close()
	name := filepath.Base(path)
	defer root.Remove(name)
	if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() || info.Size() > d.budget {
		return nil, nil
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	b, err := log.PutBlob(ctx, "application/octet-stream", io.LimitReader(f, d.budget))
	if err != nil {
		return nil, err
	}
	d.budget -= b.Size
	return &b, nil
}
