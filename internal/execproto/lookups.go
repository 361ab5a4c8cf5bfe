package execproto

// What happened to a name that a traced command has looked up. A name may have several of them.
const (
	Found    = 1 << iota // something stood there
	Missing              // nothing did
	Listed               // a directory whose entries were read
	Executed             // a program
	Picked               // an entry of a listed directory that is, or contains, what was used
)

// Limits of what a traced command's tracer keeps.
const (
	MaxLookups     = 500_000
	MaxLookupBytes = 64 << 20
)

// A Lookup is a name with what happened to it.
type Lookup struct {
	Name string
	What uint64
}

// Encode appends l. The lookups of a command are sent as bytes on its stream, and end with one that
// has no What. Its Name is the reason why some may lack; "": none does.
func (l *Lookup) Encode(e *Enc) {
	e.Uint(l.What)
	e.String(l.Name)
}

// Lookup decodes a Lookup.
func (d *Dec) Lookup() Lookup {
	what := d.Uint()
	return Lookup{Name: d.String(), What: what}
}
