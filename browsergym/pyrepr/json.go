package pyrepr

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// FromJSON reads JSON as Python's json.loads does: numbers without a point or exponent are ints,
// objects keep their order.
func FromJSON(raw []byte) (Value, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := fromJSON(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("json: more than one value")
	}
	return v, nil
}

func fromJSON(d *json.Decoder, depth int) (Value, error) {
	if depth > 900 { // about the limit of Python
		return nil, errors.New("json: too deep")
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case string:
		return Str(t), nil
	case bool:
		return Bool(t), nil
	case json.Number:
		if strings.ContainsAny(string(t), ".eE") {
			f, _ := t.Float64() // infinite if too large
			return Float(f), nil
		}
		if t == "-0" {
			t = "0"
		}
		return Int(t), nil
	case json.Delim:
		list, dict := List{}, Dict{}
		for d.More() {
			var key Value
			if t == '{' {
				if key, err = fromJSON(d, depth+1); err != nil {
					return nil, err
				}
			}
			v, err := fromJSON(d, depth+1)
			if err != nil {
				return nil, err
			}
			if t == '{' {
				dict = append(dict, Pair{string(key.(Str)), v})
			} else {
				list = append(list, v)
			}
		}
		if _, err := d.Token(); err != nil {
			return nil, err
		}
		if t == '{' {
			return dict, nil
		}
		return list, nil
	}
	return None{}, nil
}
