package web

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// downloads is the folder where an episode's pages put files, until they are blobs.
type downloads struct {
	dir  string // "": pages may not download
	left int64  // bytes that may still come
	told map[string]bool
}

func newDownloads(r Record) (*downloads, error) {
	d := &downloads{left: r.DownloadLimit, told: map[string]bool{}}
	if d.left <= 0 {
		d.left = 100 << 20
	}
	if r.NoDownloads {
		return d, nil
	}
	var err error
	if d.dir, err = os.MkdirTemp("", "evalrun-downloads-"); err != nil {
		return nil, fmt.Errorf("making a folder for downloads: %w", err)
	}
	return d, nil
}

// take keeps what has come since it was last asked. What is too much for the episode is told of, without its content.
func (d *downloads) take(ctx context.Context, log event.Log, all []cdp.Download) (out []event.BrowserDownload, err error) {
	for _, f := range all {
		if d.told[f.Path] || f.State == "inProgress" || f.Path == "" {
			continue
		}
		d.told[f.Path] = true
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

// keep puts a file into a blob and removes it; nil: it is gone, or too large.
func (d *downloads) keep(ctx context.Context, log event.Log, path string) (*event.Blob, error) {
	root, err := os.OpenRoot(d.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name := filepath.Base(path)
	defer root.Remove(name)
	f, err := root.Open(name)
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > d.left {
		return nil, nil
	}
	b, err := log.PutBlob(ctx, "application/octet-stream", io.LimitReader(f, d.left))
	if err != nil {
		return nil, err
	}
	d.left -= b.Size
	return &b, nil
}

func (d *downloads) close() error {
	if d.dir == "" {
		return nil
	}
	return os.RemoveAll(d.dir)
}
