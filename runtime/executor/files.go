package executor

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sync"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Put writes the files of src below dir, as specified by sandbox.Sandbox.
func (c *Client) Put(ctx context.Context, dir string, src fs.FS) error {
	if err := ctx.Err(); err != nil {
		return c.wrap(ctx, "put", err)
	}
	if !path.IsAbs(dir) {
		return c.wrap(ctx, "put", fmt.Errorf("%q is not an absolute path", dir))
	}
	var e execproto.Enc
	e.String(dir)
	st, stop, err := c.open(ctx, execproto.KindPut, e)
	if err != nil {
		return c.wrap(ctx, "put", err)
	}
	defer stop()
	// The result may arrive before everything is sent, if it is an error. Then sending stops.
	res := make(chan error, 1)
	go func() {
		_, err := result(st)
		st.Interrupt(execproto.ErrClosed)
		res <- err
	}()
	werr := pack(st, src)
	if werr == nil {
		werr = st.Send(execproto.KindEOF, nil)
	}
	if werr != nil && !errors.Is(werr, execproto.ErrClosed) && c.s.Err() == nil {
		st.Reset() // src failed, or ctx ended: the files written so far stay
		<-res
		return c.wrap(ctx, "put", fmt.Errorf("%s: %w", dir, werr))
	}
	err = <-res
	if ctx.Err() != nil {
		st.Reset() // it may still be at work
	} else {
		st.Finish()
	}
	if err != nil {
		return c.wrap(ctx, "put", err)
	}
	return nil
}

// pack writes src as a tar stream. It stores links as links and never follows them.
func pack(w io.Writer, src fs.FS) error {
	bw := &frameWriter{w: w}
	tw := tar.NewWriter(bw)
	err := fs.WalkDir(src, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name == "." && d.IsDir() {
			return nil
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if _, ok := fi.Sys().(sandbox.Implied); ok {
			return nil // made with what is in it
		}
		h := &tar.Header{Name: name, Mode: int64(fi.Mode().Perm()), ModTime: fi.ModTime(), Format: tar.FormatPAX}
		if fi.ModTime().Year() < 1970 { // a zero time, from a file system in memory
			h.ModTime = h.ModTime.AddDate(1970-h.ModTime.Year(), 0, 0)
		}
		switch fi.Mode().Type() {
		case fs.ModeDir:
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
			return tw.WriteHeader(h)
		case fs.ModeSymlink:
			h.Typeflag = tar.TypeSymlink
			if h.Linkname, err = fs.ReadLink(src, name); err != nil {
				return err
			}
			return tw.WriteHeader(h)
		case 0:
			f, err := src.Open(name)
			if err != nil {
				return err
			}
			defer f.Close()
			// The size and type of the opened file count, since it may differ from the one that was
			// listed.
			if fi, err = f.Stat(); err != nil {
				return err
			}
			if !fi.Mode().IsRegular() {
				return &fs.PathError{Op: "put", Path: name, Err: sandbox.ErrNotRegular}
			}
			h.Typeflag, h.Size = tar.TypeReg, fi.Size()
			if err := tw.WriteHeader(h); err != nil {
				return err
			}
			if n, err := io.Copy(tw, io.LimitReader(f, h.Size)); err != nil {
				return err
			} else if n < h.Size {
				return &fs.PathError{Op: "put", Path: name, Err: io.ErrUnexpectedEOF}
			}
			return nil
		}
		return &fs.PathError{Op: "put", Path: name, Err: errors.New("a device, pipe or socket")}
	})
	if err != nil {
		return err
	}
	if err := tw.Close(); err != nil {
		return err
	}
	return bw.flush()
}

// frameWriter joins the small writes of an archive into large frames.
type frameWriter struct {
	w   io.Writer
	buf []byte
}

func (j *frameWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		m := min(len(p), execproto.MaxData-len(j.buf))
		j.buf = append(j.buf, p[:m]...)
		p = p[m:]
		if len(j.buf) == execproto.MaxData {
			if err := j.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (j *frameWriter) flush() error {
	if len(j.buf) == 0 {
		return nil
	}
	_, err := j.w.Write(j.buf)
	j.buf = j.buf[:0]
	return err
}

// Get reads a file or directory as a tar stream, as specified by sandbox.Sandbox.
func (c *Client) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, c.wrap(ctx, "get", err)
	}
	if !path.IsAbs(name) {
		return nil, c.wrap(ctx, "get", fmt.Errorf("%q is not an absolute path", name))
	}
	var e execproto.Enc
	e.String(name)
	st, stop, err := c.open(ctx, execproto.KindGet, e)
	if err != nil {
		return nil, c.wrap(ctx, "get", err)
	}
	r := &getReader{c: c, ctx: ctx, st: st, stop: stop}
	// Read the beginning now, to return an error if there is no such file.
	r.first = make([]byte, 512)
	n, err := io.ReadFull(st, r.first)
	r.first = r.first[:n]
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		r.Close()
		return nil, c.wrap(ctx, "get", err)
	}
	return r, nil
}

type getReader struct {
	c     *Client
	ctx   context.Context
	st    *execproto.Stream
	first []byte
	stop  func() bool
	once  sync.Once
}

func (r *getReader) Read(p []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(p, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	n, err := r.st.Read(p)
	if err != nil && err != io.EOF {
		err = r.c.wrap(r.ctx, "get", err)
	}
	return n, err
}

func (r *getReader) Close() error {
	r.once.Do(func() {
		r.stop()
		r.st.Reset()
	})
	return nil
}
