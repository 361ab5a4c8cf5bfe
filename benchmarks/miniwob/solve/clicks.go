package solve

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// clicks are the tasks that need only clicks.
var clicks = map[string]script{
	"click-test": func(p *player) error { return p.press(tag("button")) },
	"click-test-2": func(p *player) error {
		return p.uncovered(p.page.one(tag("button"), says("one")), tag("button"))
	},
	"click-test-transfer": func(p *player) error {
		return p.uncovered(p.page.one(tag("button"), says("one")), tag("button"))
	},
	"click-button":          func(p *player) error { return p.press(tag("button"), exactly(p.name())) },
	"unicode-test":          func(p *player) error { return p.press(tag("button"), exactly(p.name())) },
	"click-button-sequence": clickBoth,
	"click-link":            func(p *player) error { return p.press(class("alink"), exactly(p.name())) },
	"click-dialog": func(p *player) error {
		return p.press(tag("button"), class("ui-dialog-titlebar-close"))
	},
	"click-dialog-2":              clickDialog,
	"click-color":                 clickColor,
	"click-shades":                clickShades,
	"click-widget":                func(p *player) error { return p.press(attr("data-type", p.name())) },
	"click-option":                clickOption,
	"click-checkboxes":            clickBoxes,
	"click-checkboxes-transfer":   clickBoxes,
	"click-tab":                   clickTab,
	"click-tab-2":                 clickTabs,
	"click-tab-2-easy":            clickTabs,
	"click-tab-2-medium":          clickTabs,
	"click-tab-2-hard":            clickTabs,
	"click-collapsible":           clickSection,
	"click-collapsible-nodelay":   clickSection,
	"click-collapsible-2":         clickSections,
	"click-collapsible-2-nodelay": clickSections,
	"focus-text":                  func(p *player) error { return p.press(tag("input")) },
	"focus-text-2":                func(p *player) error { return p.nth(tag("input")) },
	"grid-coordinate":             clickGrid,
	"identify-shape":              identify,
	"navigate-tree":               navigate,
	"buy-ticket":                  buyTicket,
	"odd-or-even":                 oddOrEven,
	"generate-number":             generate,
}

// exactly holds for an element whose text equals s.
func exactly(s string) func(*node) bool { return func(n *node) bool { return n.words() == s } }

// uncovered clicks an element at a point that no other such element covers.
func (p *player) uncovered(n *node, others func(*node) bool) error {
	x, y, err := p.middle(n)
	if err != nil {
		return err
	}
	b := n.prop.Box
	free := func(x, y float64) bool {
		for _, o := range p.page.all(others) {
			if c := o.prop.Box; o != n && c != nil && x >= c[0]-2 && x <= c[0]+c[2]+2 && y >= c[1]-2 &&
				y <= c[1]+c[3]+2 {
				return false
			}
		}
		return true
	}
	for _, at := range [][2]float64{{.5, .5}, {.1, .1}, {.9, .1}, {.1, .9}, {.9, .9}} {
		if px, py := b[0]+at[0]*b[2], b[1]+at[1]*b[3]; free(px, py) {
			x, y = px, py
			break
		}
	}
	return p.do("mouse_click", x, y)
}

// nth clicks the one of several elements that the goal names by number: 1st, 2nd …
func (p *player) nth(is func(*node) bool) error {
	m, err := p.find(`(\d+)(?:st|nd|rd|th)`)
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(m[0])
	all := p.page.all(is)
	if n < 1 || n > len(all) {
		return fmt.Errorf("%q: there are %d", p.goal, len(all))
	}
	return p.click(all[n-1])
}

func clickBoth(p *player) error {
	for _, name := range []string{"one", "two"} {
		// one button may cover the other
		if err := p.uncovered(p.page.one(tag("button"), says(name)), tag("button")); err != nil {
			return err
		}
	}
	return nil
}

func clickDialog(p *player) error {
	if p.name() == "x" {
		return p.press(tag("button"), class("ui-dialog-titlebar-close"))
	}
	return p.press(tag("button"), exactly(p.name()))
}

func clickColor(p *player) error {
	m, err := p.find(`Click on the (\w+) colored box`)
	if err != nil {
		return err
	}
	return p.press(attr("data-color", m[0]))
}

func clickShades(p *player) error {
	m, err := p.find(`shades of (\w+) and`)
	if err != nil {
		return err
	}
	for _, n := range p.page.all(attr("data-color", m[0])) {
		if err := p.point(n); err != nil { // bids stay, but clicking takes a border's width
			return err
		}
	}
	return p.submit()
}

func clickOption(p *player) error {
	m, err := p.find(`Select (.+) and click Submit`)
	if err != nil {
		return err
	}
	label := p.page.one(tag("label"), exactly(m[0]))
	if label == nil {
		return fmt.Errorf("there is no option %q", m[0])
	}
	if err := p.click(label.one(tag("input"))); err != nil {
		return err
	}
	return p.submit()
}

func clickBoxes(p *player) error {
	m, err := p.find(`Select (.+) and click Submit`)
	if err != nil {
		return err
	}
	wanted := strings.Split(m[0], ", ")
	for _, label := range p.page.all(tag("label")) {
		if slices.Contains(wanted, label.words()) {
			if err := p.click(label.one(tag("input"))); err != nil {
				return err
			}
		}
	}
	return p.submit()
}

func clickTab(p *player) error {
	m, err := p.find(`Click on (Tab #\d+)`)
	if err != nil {
		return err
	}
	return p.press(tag("a"), exactly(m[0]))
}

// clickTabs finds the tab that contains the link.
func clickTabs(p *player) error {
	link := p.page.one(class("alink"), exactly(p.name()))
	if link == nil { // the page creates the link when its tab is selected
		return p.press(tag("a"), exactly("Tab #2"))
	}
	panel := link.up
	for panel.up != nil && !class("ui-tabs-panel")(panel) {
		panel = panel.up
	}
	if !seen(link) {
		if err := p.press(tag("a"), attr("href", "#"+panel.attr["id"])); err != nil {
			return err
		}
	}
	return p.press(class("alink"), exactly(p.name()))
}

func clickSection(p *player) error {
	if err := p.press(tag("h3")); err != nil {
		return err
	}
	return p.submit()
}

func clickSections(p *player) error {
	link := p.page.one(class("alink"), exactly(p.name()))
	if link == nil {
		return fmt.Errorf("there is no link %q", p.name())
	}
	if err := p.press(tag("h3"), attr("aria-controls", link.up.attr["id"])); err != nil {
		return err
	}
	for range 6 { // the section unfolds gradually
		if link = p.page.one(class("alink"), exactly(p.name())); link == nil || link.prop.Visibility == 1 {
			break
		}
		if err := p.do("noop", 300); err != nil {
			return err
		}
	}
	return p.click(link)
}

func clickGrid(p *player) error {
	m, err := p.find(`coordinate \((-?\d+),(-?\d+)\)`)
	if err != nil {
		return err
	}
	// SVG content has no bids: the grid spans -2 to 2, 30 pixels apart
	svg := p.page.one(tag("svg"))
	if svg == nil || svg.prop.Box == nil {
		return fmt.Errorf("there is no grid")
	}
	x, _ := strconv.Atoi(m[0])
	y, _ := strconv.Atoi(m[1])
	b := svg.prop.Box
	return p.do("mouse_click", b[0]+float64(75+30*x)*b[2]/150, b[1]+float64(75-30*y)*b[3]/150)
}

// identify recognizes the figure by its SVG content.
func identify(p *player) error {
	svg := p.page.one(tag("svg"))
	if svg == nil {
		return fmt.Errorf("there is no figure")
	}
	kind := map[string]string{"rect": "rectangle", "circle": "circle", "polygon": "triangle"}
	for _, n := range svg.all() {
		switch w := n.words(); {
		case kind[n.tag] != "":
			return p.press(attr("data-type", kind[n.tag]))
		case n.tag == "text" && strings.Trim(w, "0123456789") == "":
			return p.press(attr("data-type", "digit"))
		case n.tag == "text":
			return p.press(attr("data-type", "letter"))
		}
	}
	return fmt.Errorf("the figure is unknown")
}

// navigate opens folders from the outside in until the named element is visible.
func navigate(p *player) error {
	for range 6 {
		n := p.page.one(tag("span"), exactly(p.name()))
		if n == nil {
			return fmt.Errorf("nothing is called %q", p.name())
		}
		if seen(n) {
			return p.click(n)
		}
		var closed *node // the outermost visible one
		for up := n.up; up != nil; up = up.up {
			if class("expandable")(up) {
				if f := up.one(tag("span")); f != nil && seen(f) {
					closed = f
				}
			}
		}
		if err := p.click(closed); err != nil {
			return err
		}
	}
	return nil
}

func buyTicket(p *player) error {
	value := func(f *node) int {
		text := f.one(class("time-duration")).attr["data-duration"]
		if strings.Contains(p.goal, "cost") {
			text = f.one(tag("button")).attr["data-price"]
		}
		n, _ := strconv.Atoi(text)
		if strings.Contains(p.goal, "longest") || strings.Contains(p.goal, "most") {
			return -n
		}
		return n
	}
	var best *node
	for _, f := range p.page.all(class("flight")) {
		if best == nil || value(f) < value(best) {
			best = f
		}
	}
	if best == nil {
		return fmt.Errorf("there are no tickets")
	}
	return p.click(best.one(tag("button")))
}

func oddOrEven(p *player) error {
	for _, row := range p.page.all(class("row")) {
		n, err := strconv.Atoi(row.one(class("display-number")).words())
		if err != nil {
			return err
		}
		kind := "even"
		if n%2 != 0 {
			kind = "odd"
		}
		if err := p.click(row.one(tag("button"), class(kind))); err != nil {
			return err
		}
	}
	return p.press(tag("button"), id("submit"))
}

// generate requests numbers until one fits; it may run out of steps.
func generate(p *player) error {
	fits := func(n int) bool {
		switch {
		case strings.Contains(p.goal, "even"):
			return n%2 == 0
		case strings.Contains(p.goal, "odd"):
			return n%2 != 0
		}
		for _, x := range []struct {
			pattern string
			ok      func(a int) bool
		}{{`less than (-?\d+)`, func(a int) bool { return n < a }},
			{`greater than (-?\d+)`, func(a int) bool { return n > a }}} {
			if m, err := p.find(x.pattern); err == nil {
				a, _ := strconv.Atoi(m[0])
				return x.ok(a)
			}
		}
		return false
	}
	for range 9 {
		if err := p.press(id("generate")); err != nil {
			return err
		}
		if n, err := strconv.Atoi(p.page.one(id("display-number")).words()); err == nil && fits(n) {
			break
		}
	}
	return p.press(id("submit"))
}
