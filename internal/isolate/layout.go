// Package isolate turns a process started in new namespaces into process 1 of a sandbox: with its
// own root file system, no way back to the host's, and a thread that can start commands and do
// little else. It is the part of runtime/local that runs inside the sandbox. It also has the
// spawner that starts such processes.
package isolate

import "github.com/evalrun/evalrun/internal/execproto"

// Kinds of entries.
const (
	Dir  = 'd' // a folder
	File = 'f' // a file with content Data
	Link = 'l' // a symbolic link to Data
	Bind = 'b' // Data on the host, read-only, with everything mounted below it
	// Over is Bind for a folder, through an overlay if possible, so that locks and watches are not
	// shared with the host.
	Over  = 'o'
	Write = 'w' // as Bind, but writable
	Mount = 'm' // a detached mount with descriptor Size; read-only unless Mode has a write bit
	Tmpfs = 't' // an empty file system of Size bytes
)

// An Entry is a file or mount in the root of a sandbox. Parents come before their contents.
type Entry struct {
	Kind byte
	Path string // absolute
	Data string
	Mode uint32
	Size int64
}

// A Layout describes the root of a sandbox.
type Layout struct {
	Hostname string
	Image    string // an unpacked root; "" means an empty one
	ImageFD  int    // descriptor of a detached mount of Image, used instead of the path; 0 if none
	Disk     int64  // maximum size of written data
	Nest     bool   // processes may create user namespaces, as a browser's sandbox does
	Share    uint64 // divisor of the kernel's limits for the user, who has other sandboxes; 0 means 1
	Entries  []Entry
}

// Encode encodes the layout for Setup.
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
