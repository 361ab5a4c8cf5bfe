package obs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// A Property holds what is known of a marked element besides the trees.
type Property struct {
	Visibility float64     `json:"visibility"` // visible share of its area in the viewport, 0 to 1
	Box        *[4]float64 `json:"bbox"`       // x, y, width, height in pixels of the screenshot; nil if it has no box
	Clickable  bool        `json:"clickable"`
	Marked     bool        `json:"set_of_marks"` // part of the set of marks
}

// Properties holds the properties of all marked elements by bid, in document order. The zero value
// is empty; nil means that they are not known.
type Properties struct {
	bids []string
	m    map[string]Property
}

// Get returns the properties of an element.
func (p *Properties) Get(bid string) (Property, bool) {
	if p == nil {
		return Property{}, false
	}
	x, ok := p.m[bid]
	return x, ok
}

// Bids returns the elements' bids in order.
func (p *Properties) Bids() []string {
	if p == nil {
		return nil
	}
	return p.bids
}

// Set sets the properties of an element. An element that exists keeps its position.
func (p *Properties) Set(bid string, x Property) {
	if p.m == nil {
		p.m = map[string]Property{}
	}
	if _, ok := p.m[bid]; !ok {
		p.bids = append(p.bids, bid)
	}
	p.m[bid] = x
}

// MarshalJSON encodes an object in order.
func (p *Properties) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, bid := range p.Bids() {
		if i > 0 {
			b = append(b, ',')
		}
		k, err := json.Marshal(bid)
		if err != nil {
			return nil, err
		}
		v, err := json.Marshal(p.m[bid])
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, k...), ':'), v...)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON decodes an object and keeps its order.
func (p *Properties) UnmarshalJSON(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	t, err := d.Token()
	if err != nil {
		return err
	}
	if t != json.Delim('{') {
		return fmt.Errorf("properties of elements: an object was expected, not %v", t)
	}
	*p = Properties{}
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return err
		}
		var x Property
		if err := d.Decode(&x); err != nil {
			return err
		}
		p.Set(k.(string), x)
	}
	return nil
}

// PropertiesOf extracts the properties from a cleaned snapshot. scale is the number of screenshot
// pixels per CSS pixel. Boxes are relative to the viewport. It also returns the bids that occur
// more than once; for those the last element counts.
func PropertiesOf(s *Snapshot, scale float64) (p *Properties, twice []string) {
	p = &Properties{}
	if len(s.Documents) == 0 {
		return p, nil
	}
	type entry struct {
		doc  int
		x, y float64 // its origin in the viewport
	}
	ids := struct{ bid, visibility, marks int }{-1, -1, -1}
	for i, t := range s.Strings {
		switch t {
		case "bid":
			ids.bid = i
		case "browsergym_visibility_ratio":
			ids.visibility = i
		case "browsergym_set_of_marks":
			ids.marks = i
		}
	}
	seen := make([]bool, len(s.Documents))
	queue := []entry{{0, -s.Documents[0].ScrollOffsetX, -s.Documents[0].ScrollOffsetY}}
	for len(queue) > 0 { // level by level
		e := queue[0]
		queue = queue[1:]
		if seen[e.doc] {
			continue
		}
		seen[e.doc] = true
		doc := &s.Documents[e.doc]
		n := len(doc.Nodes.Attributes)
		boxes := make([]*[4]float64, n)
		laidOut := map[int][]float64{} // layout of the first node of an owner
		owners := map[int]bool{}
		for _, o := range doc.Nodes.ContentDocumentIndex.Index {
			owners[o] = true
		}
		for i, node := range doc.Layout.NodeIndex {
			if node < 0 || node >= n || i >= len(doc.Layout.Bounds) || len(doc.Layout.Bounds[i]) < 4 {
				continue
			}
			b := doc.Layout.Bounds[i]
			if owners[node] && laidOut[node] == nil {
				laidOut[node] = b
			}
			if i >= len(doc.Layout.ClientRects) || len(doc.Layout.ClientRects[i]) == 0 {
				boxes[node] = nil
				continue
			}
			boxes[node] = &[4]float64{b[0] + e.x, b[1] + e.y, b[2], b[3]}
		}
		for i, owner := range doc.Nodes.ContentDocumentIndex.Index {
			child := at(doc.Nodes.ContentDocumentIndex.Value, i)
			if child < 0 || child >= len(s.Documents) {
				continue
			}
			x, y := 0.0, 0.0
			if b := laidOut[owner]; b != nil {
				x, y = e.x+b[0], e.y+b[1]
			}
			c := &s.Documents[child]
			queue = append(queue, entry{child, x - c.ScrollOffsetX, y - c.ScrollOffsetY})
		}
		clickable := make([]bool, n)
		for _, i := range doc.Nodes.IsClickable.Index {
			if i >= 0 && i < n {
				clickable[i] = true
			}
		}
		for i, list := range doc.Nodes.Attributes {
			bid := ""
			x := Property{Clickable: clickable[i]}
			for k := 0; k+1 < len(list); k += 2 {
				switch list[k] {
				case -1:
				case ids.bid:
					bid = s.text(list[k+1])
				case ids.visibility:
					x.Visibility, _ = strconv.ParseFloat(s.text(list[k+1]), 64)
				case ids.marks:
					x.Marked = s.text(list[k+1]) == "1"
				}
			}
			if bid == "" {
				continue
			}
			if b := boxes[i]; b != nil {
				x.Box = &[4]float64{b[0] * scale, b[1] * scale, b[2] * scale, b[3] * scale}
			}
			if _, ok := p.Get(bid); ok {
				twice = append(twice, bid)
			}
			p.Set(bid, x)
		}
	}
	return p, twice
}
