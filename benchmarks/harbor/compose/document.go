package compose

// A Value is a part of a YAML file with its place: nothing, a single value (as text), a list, or a
// mapping. For other files of tasks, which deserve the same caution as a compose file.
type Value struct{ n *node }

// A Key of a mapping.
type Key struct {
	Name  string
	Place string // file:line:column
	Value Value
}

// Document reads a YAML file of one document within the bounds of a compose file, without
// variables.
func Document(file string, text []byte) (Value, error) {
	n, err := parse(file, text, func(_, text string) (string, error) { return text, nil })
	return Value{n}, err
}

// Place is file:line:column.
func (v Value) Place() string { return v.n.place }

// Null reports whether there is nothing.
func (v Value) Null() bool { return v.n.kind == null }

// Text is a single value, however it is written.
func (v Value) Text() (string, bool) { return v.n.text, v.n.kind == scalar }

// List is the values of a list.
func (v Value) List() ([]Value, bool) {
	var out []Value
	for _, n := range v.n.items {
		out = append(out, Value{n})
	}
	return out, v.n.kind == list
}

// Keys is what a mapping holds, in the file's order.
func (v Value) Keys() ([]Key, bool) {
	var out []Key
	for _, f := range v.n.keys {
		out = append(out, Key{f.name, f.place, Value{f.value}})
	}
	return out, v.n.kind == mapping
}
