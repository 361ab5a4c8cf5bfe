package executor

import (
	"context"
	"path"
	"slices"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Lookups are the path names that a command and its descendants looked up until the command ended.
// They are absolute, cleaned (lexically), sorted and unique. A name that was looked up through links
// is there twice: as the program gave it, and with the links resolved. Names in a changed root
// (chroot) are those of the sandbox. Names below /proc, /sys and /dev are left out.
//
// Not lookups are names that are only made or removed: by mkdir, symlink, unlink, or as the target of
// link and rename.
type Lookups struct {
	// Found are names at which something stood, whether it could be used or not.
	Found []string
	// Missing are names at which nothing stood; perhaps their directories did not exist either. A
	// name that a program made when it opened it is both missing and found, and so is one that was
	// made or removed between two lookups.
	Missing []string
	// Listed are directories whose entries were read.
	Listed []string
	// Executed are programs, with the interpreters of scripts and the loaders of shared libraries.
	Executed []string
	// Picked are entries of listed directories: a process that had read the directory has then found
	// the entry, or something below it. So it may have chosen it by its name. Entries of directories
	// that were picked themselves do not count.
	Picked []string
	// Complete says that no name lacks. If some may, Why is the reason.
	Complete bool
	Why      string
}

// Trace runs a command like Exec, and returns what it and its descendants have looked up until it
// ended. It needs a sandbox that was created with Spec.Trace, else its error is an Unsupported. The
// command takes several times as long, and cannot trace others (strace, gdb). Nothing else differs
// for it. Lookups are not complete if it was killed by its Timeout, or was run before with the same
// ID. Their names come from the sandbox and are hostile, like its output.
func (c *Client) Trace(ctx context.Context, cmd sandbox.Command) (sandbox.Exit, Lookups, error) {
	var b []byte
	x, err := c.exec(ctx, cmd, execKind{lookups: &b})
	if err != nil {
		return x, Lookups{}, err
	}
	return x, decodeLookups(b), nil
}

// maxLookups limits the bytes of an answer: of each name a number and its length besides.
const maxLookups = execproto.MaxLookupBytes + 4*execproto.MaxLookups

func decodeLookups(b []byte) (l Lookups) {
	l.Why = "the tracer was ended"
	seen := 0
	for d := execproto.NewDec(b); d.More(); seen++ {
		n := d.Lookup()
		if seen > execproto.MaxLookups {
			l.Why = "too many names"
			break
		}
		if n.What == 0 {
			if d.Err() == nil {
				l.Complete, l.Why = n.Name == "", short(n.Name, 200)
			}
			break
		}
		if !path.IsAbs(n.Name) || path.Clean(n.Name) != n.Name {
			l.Why = "a name without a form"
			break
		}
		for what, to := range map[uint64]*[]string{execproto.Found: &l.Found, execproto.Missing: &l.Missing,
			execproto.Listed: &l.Listed, execproto.Executed: &l.Executed, execproto.Picked: &l.Picked} {
			if n.What&what != 0 {
				*to = append(*to, n.Name)
			}
		}
	}
	for _, names := range []*[]string{&l.Found, &l.Missing, &l.Listed, &l.Executed, &l.Picked} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	return l
}
