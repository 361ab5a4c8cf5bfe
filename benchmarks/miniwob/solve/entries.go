package solve

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// entries are the tasks that need text input.
var entries = map[string]script{
	"enter-text":         func(p *player) error { return p.enter(p.name()) },
	"enter-text-dynamic": func(p *player) error { return p.enter(p.name()) },
	"enter-text-2":       enterCase,
	"enter-password":     enterTwice,
	"enter-date":         enterDate,
	"enter-time":         enterTime,
	"login-user":         login,
	"login-user-popup":   login,
	"simple-arithmetic":  arithmetic,
	"simple-algebra":     algebra,
	"visual-addition": func(p *player) error {
		return p.enter(strconv.Itoa(len(p.page.all(class("addition-block")))))
	},
	"find-word":    findWord,
	"read-table":   readTable,
	"read-table-2": readTables,
	"copy-paste":   func(p *player) error { return p.copied(p.page.one(tag("textarea"))) },
	"copy-paste-2": copyNth,
	"scroll-text":  lastWord,
	"text-transform": func(p *player) error {
		return p.enter(strings.ReplaceAll(p.page.one(id("captcha")).words(), " ", ""))
	},
	"form-sequence-2":   radioAndText,
	"multi-orderings":   movies,
	"multi-layouts":     movies,
	"guess-number":      guess,
	"choose-list":       chooseList,
	"click-scroll-list": scrollList,
	"use-spinner":       spinner,
}

// enter fills the first visible field and submits.
func (p *player) enter(text string) error {
	if err := p.fill(p.page.one(tag("input"), seen), text); err != nil {
		return err
	}
	return p.submit()
}

func enterCase(p *player) error {
	switch {
	case strings.Contains(p.goal, "lower case"):
		return p.enter(strings.ToLower(p.name()))
	case strings.Contains(p.goal, "upper case"):
		return p.enter(strings.ToUpper(p.name()))
	}
	return fmt.Errorf("the goal %q is of an unknown kind", p.goal)
}

func enterTwice(p *player) error {
	for _, field := range []string{"password", "verify"} {
		if err := p.fill(p.page.one(id(field)), p.name()); err != nil {
			return err
		}
	}
	return p.submit()
}

func enterDate(p *player) error {
	m, err := p.find(`Enter (\d\d)/(\d\d)/(\d{4}) as`)
	if err != nil {
		return err
	}
	return p.enter(m[2] + "-" + m[0] + "-" + m[1])
}

func enterTime(p *player) error {
	m, err := p.find(`Enter (\d+:\d\d)\s*([AP]M) as`)
	if err != nil {
		return err
	}
	t, err := time.Parse("3:04PM", m[0]+m[1])
	if err != nil {
		return err
	}
	return p.enter(t.Format("15:04"))
}

// login dismisses a pop-up if one appears.
func login(p *player) error {
	q := p.quoted()
	if len(q) != 2 {
		return fmt.Errorf("the goal %q is of an unknown kind", p.goal)
	}
	for i, field := range []string{"username", "password"} {
		if err := p.fill(p.page.one(id(field)), q[i]); err != nil {
			return err
		}
		if n := p.page.one(id("popup-cancel")); n != nil {
			if err := p.click(n); err != nil {
				return err
			}
			// the pop-up took the focus before any text was entered
			if err := p.fill(p.page.one(id(field)), q[i]); err != nil {
				return err
			}
		}
	}
	return p.press(id("subbtn"))
}

func arithmetic(p *player) error {
	f := strings.Fields(p.page.one(id("math-problem")).words())
	if len(f) < 3 {
		return fmt.Errorf("there is no problem to solve")
	}
	a, _ := strconv.Atoi(f[0])
	b, _ := strconv.Atoi(f[2])
	r := map[string]int{"+": a + b, "-": a - b, "x": a * b}[f[1]]
	return p.enter(strconv.Itoa(r))
}

func algebra(p *player) error {
	f := strings.Fields(p.page.one(id("math-problem")).words())
	if len(f) < 5 {
		return fmt.Errorf("there is no problem to solve")
	}
	sum, _ := strconv.Atoi(f[4])
	a, _ := strconv.Atoi(f[0])
	b, _ := strconv.Atoi(f[2])
	x := 0
	switch {
	case f[1] == "+":
		x = sum - a - b // one of the terms is x, which parses as 0
	case f[0] == "x":
		x = sum + b
	default:
		x = a - sum
	}
	return p.enter(strconv.Itoa(x))
}

func findWord(p *player) error {
	m, err := p.find(`Find the (\d+)\w+ word`)
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(m[0])
	words := strings.Fields(p.page.one(id("area")).one(tag("p")).words())
	if n < 1 || n > len(words) {
		return fmt.Errorf("there are only %d words", len(words))
	}
	return p.enter(strings.Trim(words[n-1], ".,"))
}

// cell returns the value next to a key in a table.
func (p *player) cell(key string) string {
	for _, td := range p.page.all(tag("td", "th")) {
		if td.words() == key {
			if v := td.next(); v != nil {
				return v.words()
			}
		}
	}
	return ""
}

func readTable(p *player) error {
	m, err := p.find(`value of (.+) into`)
	if err != nil {
		return err
	}
	return p.enter(p.cell(m[0]))
}

func readTables(p *player) error {
	for i, label := range p.page.all(tag("label")) {
		if err := p.fill(p.page.one(id("tt"+strconv.Itoa(i+1))), p.cell(label.attr["data-key"])); err != nil {
			return err
		}
	}
	return p.submit()
}

// copied enters the value of a field.
func (p *player) copied(from *node) error {
	if from == nil {
		return fmt.Errorf("there is nothing to copy")
	}
	return p.enter(from.attr["value"])
}

func copyNth(p *player) error {
	m, err := p.find(`the (\d)\w\w text area`)
	if err != nil {
		return err
	}
	return p.copied(p.page.one(id("text-" + m[0])))
}

func lastWord(p *player) error {
	words := strings.Fields(p.page.one(tag("textarea")).attr["value"])
	if len(words) == 0 {
		return fmt.Errorf("there is no text")
	}
	return p.enter(strings.TrimRight(words[len(words)-1], ".,"))
}

func radioAndText(p *player) error {
	m, err := p.find(`Check the (\d)\w\w radio button and enter the number "(-?\d+)" into the (\d)\w\w textbox`)
	if err != nil {
		return err
	}
	if err := p.press(tag("input"), attr("type", "radio"), attr("value", m[0])); err != nil {
		return err
	}
	if err := p.fill(p.page.one(id("input-"+m[2])), m[1]); err != nil {
		return err
	}
	return p.submit()
}

// movies fills in three fields, which it identifies by the text before, above or after them.
func movies(p *player) error {
	m, err := p.find(`Search for (.+) movies directed by (.+) from year (\d+)`)
	if err != nil {
		return err
	}
	values := []struct{ key, text string }{{"genre", m[0]}, {"director", m[1]}, {"year", m[2]}, {"released", m[2]}}
	var fields []*node
	for _, n := range p.page.all(tag("input"), seen) {
		if t := n.attr["type"]; t == "" || t == "text" {
			fields = append(fields, n)
		}
	}
	for _, n := range fields {
		about := ""
		for up := n.up; up != nil && about == ""; up = up.up {
			about = strings.ToLower(up.words() + n.attr["placeholder"])
		}
		for _, v := range values {
			if strings.Contains(about, v.key) {
				if err := p.fill(n, v.text); err != nil {
					return err
				}
				break
			}
		}
	}
	return p.click(p.page.one(func(n *node) bool {
		return n.tag != "" && len(n.all()) == 0 && (says("submit")(n) || says("search")(n) || says("go")(n))
	}, seen))
}

// guess uses binary search.
func guess(p *player) error {
	low, high := 0, 9
	for low <= high {
		n := (low + high) / 2
		if err := p.enter(strconv.Itoa(n)); err != nil {
			return err
		}
		if x := p.page.one(id("lower")); x != nil && seen(x) {
			high = n - 1
		} else {
			low = n + 1
		}
	}
	return nil
}

// chooseList types the beginning of the entry, because there is no action for lists.
func chooseList(p *player) error {
	m, err := p.find(`Select (.+) from the list`)
	if err != nil {
		return err
	}
	list := p.page.one(tag("select"))
	if err := p.click(list); err != nil {
		return err
	}
	if err := p.do("keyboard_type", m[0]); err != nil {
		return err
	}
	if err := p.do("keyboard_press", "Enter"); err != nil {
		return err
	}
	return p.submit()
}

func scrollList(p *player) error {
	m, err := p.find(`Select (.+) from the scroll list`)
	if err != nil {
		return err
	}
	for i, name := range strings.Split(m[0], ", ") {
		n := p.page.one(tag("option"), exactly(name))
		if n == nil {
			return fmt.Errorf("the list has no %q", name)
		}
		keys := "[]"
		if i > 0 {
			keys = "['Control']"
		}
		if err := p.step("click(" + pyrepr.Repr(pyrepr.Str(n.attr["bid"])) + ", 'left', " + keys + ")"); err != nil {
			return err
		}
	}
	return p.submit()
}

func spinner(p *player) error {
	m, err := p.find(`Select (-?\d+) with the spinner`)
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(m[0])
	button := "ui-spinner-up"
	if n < 0 {
		n, button = -n, "ui-spinner-down"
	}
	if n > 9 { // otherwise it would take one step more than an episode has
		x, y, err := p.middle(p.page.one(class(button)))
		if err == nil {
			err = p.do("mouse_dblclick", x, y)
		}
		if err != nil {
			return err
		}
		n -= 2
	}
	for range n {
		if err := p.press(class(button)); err != nil {
			return err
		}
	}
	return p.submit()
}
