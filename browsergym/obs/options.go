package obs

import (
	"errors"
	"strconv"
)

// Options are shared by [AXText] and [DOMText]. The zero value is BrowserGym's default, except for
// the fields of [AXOptions].
type Options struct {
	Visible, Clickable, Marked           bool // show these states of each element
	Center, Box                          bool // show each element's position
	Decimals                             int  // digits after the point of coordinates
	OnlyVisible, OnlyWithBid, OnlyMarked bool // leave out all other elements
	HideBidIfInvisible, HideBids         bool
}

// ErrNoProperties reports that an option needs [Properties] and there are none.
var ErrNoProperties = errors.New("extra_properties argument required")

func (o *Options) check(p *Properties) error {
	if p == nil && (o.Visible || o.Clickable || o.Marked || o.Center || o.Box || o.OnlyVisible || o.OnlyWithBid ||
		o.OnlyMarked || o.HideBidIfInvisible) {
		return ErrNoProperties
	}
	return nil
}

// visible is the minimum visibility of an element that counts as being in the viewport.
const visible = 0.5

// element reports whether an element is left out, and otherwise appends its attributes, each
// followed by sep.
func (o *Options) element(b []byte, p *Properties, bid, sep string) (_ []byte, skip bool) {
	if bid == "" {
		return b, o.OnlyWithBid || o.OnlyMarked
	}
	x, ok := p.Get(bid)
	if !ok {
		return b, false
	}
	seen := x.Visibility >= visible
	if o.OnlyVisible && !seen || o.OnlyMarked && !x.Marked {
		return b, true
	}
	if o.Box && x.Box != nil {
		b = append(b, `box="(`...)
		b = o.number(b, x.Box[0])
		b = append(b, ',')
		b = o.number(b, x.Box[1])
		b = append(b, ',')
		b = o.number(b, x.Box[0]+x.Box[2])
		b = append(b, ',')
		b = o.number(b, x.Box[1]+x.Box[3])
		b = append(append(b, `)"`...), sep...)
	}
	if o.Center && x.Box != nil {
		b = append(b, `center="(`...)
		b = o.number(b, x.Box[0]+x.Box[2]/2)
		b = append(b, ',')
		b = o.number(b, x.Box[1]+x.Box[3]/2)
		b = append(append(b, `)"`...), sep...)
	}
	if o.Clickable && x.Clickable {
		b = append(append(b, "clickable"...), sep...)
	}
	if o.Visible && seen {
		b = append(append(b, "visible"...), sep...)
	}
	if o.Marked && x.Marked {
		b = append(append(b, "som"...), sep...)
	}
	return b, false
}

func (o *Options) number(b []byte, f float64) []byte {
	return strconv.AppendFloat(b, f, 'f', o.Decimals, 64)
}

// hidden reports whether an element's bid is hidden.
func (o *Options) hidden(p *Properties, bid string) bool {
	if o.HideBids {
		return true
	}
	if !o.HideBidIfInvisible {
		return false
	}
	x, _ := p.Get(bid)
	return x.Visibility < visible
}
