// Package isolate makes a process that was started in fresh namespaces into process 1 of a sandbox:
// a root file system of its own, no way back, and a thread that can start commands and do little
// else. It is the part of runtime/local that runs inside, and the spawner that starts such
// processes.
package isolate

import "github.com/evalrun/evalrun/internal/execproto"

// Kinds of entries.
const (
	Dir  = 'd' // a folder
	File = 'f' // a file with Data as content
	Link = 'l' // a symbolic link to Data
	Bind = 'b' // Data of the host, read-only, with all that is mounted below it
	// as Bind of a folder, if possible through an overlay, so that locks and watches are not shared
	// with the host
	Over  = 'o'
	Write = 'w' // as Bind, but it can be written
	Mount = 'm' // a detached mount, of which Size is the descriptor; read-only where Mode has no bit for writing
	Tmpfs = 't' // an empty file system of Size bytes
)

// An Entry is something in the root of a sandbox. Parents come before what is in them.
type Entry struct {
	Kind byte
	Path string // absolute
	Data string
	Mode uint32
	Size int64
}

// A Layout is how the root of a sandbox is made.
type Layout struct {
	Hostname string
	Image    string // an unpacked root; "": an empty one
	ImageFD  int    // of a detached mount of Image, taken instead of the path; 0: none
	Disk     int64  // size of what can be written
	Nest     bool   // processes may make user namespaces of their own, as a browser's sandbox does
	Share    uint64 // divides the kernel's limits for the user, who has other sandboxes; 0: they are not divided
	Entries  []Entry
}

// Encode is the form that Setup takes.
func (l *Layout) Encode() []byte {
	var e execproto.Enc
	e.String(l.Hostname)
	e.String(l.Image)
	e.Int(int64(l.ImageFD))
	e.Int(l.Disk)
	e.Bool(l.Nest)
	e.Uint(l.Share)
	e.Uint(uint64(len(l.Entries)))
	for _, x := range l.Entries {
		e.Uint(uint64(x.Kind))
		e.String(x.Path)
		e.String(x.Data)
		e.Uint(uint64(x.Mode))
		e.Int(x.Size)
	}
	return e
}

func decodeLayout(b []byte) (l Layout, err error) {
	d := execproto.NewDec(b)
	l.Hostname = d.String()
	l.Image = d.String()
	l.ImageFD = int(d.Int())
	l.Disk = d.Int()
	l.Nest = d.Bool()
	l.Share = d.Uint()
	n := d.Uint()
	for ; n > 0 && n <= uint64(len(b)); n-- {
		l.Entries = append(l.Entries, Entry{Kind: byte(d.Uint()), Path: d.String(), Data: d.String(),
			Mode: uint32(d.Uint()), Size: d.Int()})
	}
	return l, d.Err()
}
