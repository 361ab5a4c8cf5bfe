package pyrepr

import "math"

// A Value is the Python value of a literal: Str, Int, Float, Bool, None, List, Tuple or Dict.
type Value interface {
	// Append appends the value's repr.
	Append(b []byte) []byte
	// Type returns the name of its type: "str", "int" …
	Type() string
}

type (
	Str   string
	Int   string // decimal digits of any length, with a sign if negative
	Float float64
	Bool  bool
	None  struct{}
	List  []Value
	Tuple []Value
	Dict  []Pair
)

// A Pair is an entry of a Dict. Duplicate keys are kept.
type Pair struct {
	Key   string
	Value Value
}

// Repr returns Python's repr(v).
func Repr(v Value) string { return string(v.Append(nil)) }

func (v Str) Append(b []byte) []byte { return AppendRepr(b, string(v)) }
func (v Int) Append(b []byte) []byte { return append(b, v...) }
func (None) Append(b []byte) []byte  { return append(b, "None"...) }
func (Str) Type() string             { return "str" }
func (Int) Type() string             { return "int" }
func (Float) Type() string           { return "float" }
func (Bool) Type() string            { return "bool" }
func (None) Type() string            { return "NoneType" }
func (List) Type() string            { return "list" }
func (Tuple) Type() string           { return "tuple" }
func (Dict) Type() string            { return "dict" }

func (v Float) Append(b []byte) []byte {
	switch f := float64(v); {
	case math.IsNaN(f):
		return append(b, "nan"...)
	case math.IsInf(f, 1):
		return append(b, "inf"...)
	case math.IsInf(f, -1):
		return append(b, "-inf"...)
	default:
		return AppendFloat(b, f)
	}
}

func (v Bool) Append(b []byte) []byte {
	if v {
		return append(b, "True"...)
	}
	return append(b, "False"...)
}

func (v List) Append(b []byte) []byte { return append(appendItems(append(b, '['), v), ']') }

func (v Tuple) Append(b []byte) []byte {
	b = appendItems(append(b, '('), v)
	if len(v) == 1 {
		b = append(b, ',')
	}
	return append(b, ')')
}

func (v Dict) Append(b []byte) []byte {
	b = append(b, '{')
	for i, p := range v {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(AppendRepr(b, p.Key), ": "...)
		b = p.Value.Append(b)
	}
	return append(b, '}')
}

func appendItems(b []byte, list []Value) []byte {
	for i, v := range list {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = v.Append(b)
	}
	return b
}
