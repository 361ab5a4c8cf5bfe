package server

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/internal/isolate"
)

func init() {
	handlers[execproto.KindReadOnly] = func(sv *server, st *execproto.Stream, body []byte) {
		go sv.answer(st, func() (execproto.Enc, error) {
			d := execproto.NewDec(body)
			from, to := d.String(), d.String()
			if err := d.Err(); err != nil {
				return nil, err
			}
			return execproto.OK(), sv.showReadOnly(clean(from), clean(to))
		})
	}
}

// showReadOnly mounts the folder from at to, which is made. Commands cannot undo it: they may not
// mount.
func (sv *server) showReadOnly(from, to string) error {
	no := &execproto.Unsupported{What: "read-only folders"}
	if sv.cfg.Root != "" || !sv.init { // a mount would be one of the host
		return no
	}
	if fi, err := os.Stat(from); err != nil {
		return err
	} else if !fi.IsDir() {
		return &fs.PathError{Op: "show", Path: from, Err: unix.ENOTDIR}
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	// With the mounts below it, because some of them hide what is there.
	switch err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); {
	case err == unix.EPERM || err == unix.EACCES:
		os.Remove(to)
		return no
	case err != nil:
		return &fs.PathError{Op: "mount", Path: to, Err: err}
	}
	if err := isolate.Seal(to); err != nil {
		unix.Unmount(to, unix.MNT_DETACH)
		return err
	}
	return nil
}
