package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"
)

// contextTime is the time of all files in a context: fixed, so that digests do not depend on it,
// and one that ZIP can represent.
var contextTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// stream writes a recipe's context as a tar archive. It fails if a file has changed since the
// recipe's key was computed.
func (r *recipe) stream(ctx context.Context, out io.Writer) error {
	tw := tar.NewWriter(out)
	prefix := ""
	if r.moved {
		prefix = contextDir + "/"
		if err := putDir(tw, contextDir, 0o755); err != nil {
			return err
		}
	}
	for _, e := range r.entries {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := r.put(tw, prefix, e); err != nil {
			return fmt.Errorf("sending the context: %w", err)
		}
	}
	made := map[string]bool{}
	for _, h := range r.hidden {
		for dir := path.Dir(h.name); dir != "." && !made[dir]; dir = path.Dir(dir) {
			made[dir] = true
			if err := putDir(tw, dir, 0o755); err != nil {
				return err
			}
		}
		head := &tar.Header{Typeflag: tar.TypeReg, Name: h.name, Mode: h.mode, Size: int64(len(h.text)),
			ModTime: contextTime}
		if err := tw.WriteHeader(head); err != nil {
			return err
		}
		if _, err := io.WriteString(tw, h.text); err != nil {
			return err
		}
	}
	return tw.Close()
}

func putDir(tw *tar.Writer, name string, mode int64) error {
	return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, ModTime: contextTime})
}

func (r *recipe) put(tw *tar.Writer, prefix string, e entry) error {
	h := &tar.Header{Name: prefix + e.name, Mode: tarMode(e.mode), ModTime: contextTime}
	switch e.mode.Type() {
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	case fs.ModeSymlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
	default:
		h.Typeflag, h.Size = tar.TypeReg, e.size
	}
	if err := tw.WriteHeader(h); err != nil || e.mode.Type() != 0 {
		return err
	}
	f, err := r.fsys.Open(e.name)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if n, err := io.Copy(io.MultiWriter(tw, sum), io.LimitReader(f, e.size)); err != nil {
		return err
	} else if n != e.size || [sha256.Size]byte(sum.Sum(nil)) != e.sum {
		return fmt.Errorf("%q changed while it was read", e.name)
	}
	return nil
}

func tarMode(m fs.FileMode) int64 {
	n := int64(m.Perm())
	for bit, v := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			n |= v
		}
	}
	return n
}
