package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// Canonical returns v as JSON with sorted keys, no white space and numbers as written. It omits
// object members with a zero value (null, false, 0, "", empty arrays and objects), so that adding
// an option with a default changes no identity.
func Canonical(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var x any
	if err := dec.Decode(&x); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	if err := canonical(&buf, x); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func canonical(buf *bytes.Buffer, x any) error {
	switch x := x.(type) {
	case map[string]any:
		keys := make([]string, 0, len(x))
		for k, v := range x {
			if !zero(v) {
				keys = append(keys, k)
			}
		}
		slices.Sort(keys)
		buf.WriteByte('{')
		for i, k := range keys {
			if i > 0 {
				buf.WriteByte(',')
			}
			if err := canonical(buf, k); err != nil {
				return err
			}
			buf.WriteByte(':')
			if err := canonical(buf, x[k]); err != nil {
				return err
			}
		}
		buf.WriteByte('}')
	case []any:
		buf.WriteByte('[')
		for i, v := range x {
			if i > 0 {
				buf.WriteByte(',')
			}
			if err := canonical(buf, v); err != nil {
				return err
			}
		}
		buf.WriteByte(']')
	case string, bool, nil, json.Number:
		enc := json.NewEncoder(buf)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(x); err != nil {
			return err
		}
		buf.Truncate(buf.Len() - 1) // remove the newline that Encode appends
	default:
		return fmt.Errorf("canonical: unexpected %T", x)
	}
	return nil
}

// zero reports whether a member with value x is omitted. An object with only such members is
// omitted, too.
func zero(x any) bool {
	switch x := x.(type) {
	case nil:
		return true
	case bool:
		return !x
	case string:
		return x == ""
	case json.Number:
		f, err := x.Float64()
		return err == nil && f == 0
	case []any:
		return len(x) == 0
	case map[string]any:
		for _, v := range x {
			if !zero(v) {
				return false
			}
		}
		return true
	}
	return false
}
