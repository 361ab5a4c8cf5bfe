package solve

import (
	"fmt"
	"strconv"
	"strings"
)

// searches are tasks that require a search over several steps.
var searches = map[string]script{
	"phone-book":               phoneBook,
	"email-inbox-delete":       email,
	"email-inbox-important":    email,
	"email-inbox-noscroll":     email,
	"email-inbox-reply":        email,
	"email-inbox-star-reply":   email,
	"email-inbox-forward":      email,
	"email-inbox":              email,
	"use-autocomplete":         autocomplete,
	"use-autocomplete-nodelay": autocomplete,
	"choose-date-easy":         chooseDate,
	"choose-date-medium":       chooseDate,
	"find-greatest":            greatest,
}

func phoneBook(p *player) error {
	m, err := p.find(`Find (.+) in the contact book and click on their (.+)\.`)
	if err != nil {
		return err
	}
	kind := strings.Fields(m[1])[0]
	for range 9 {
		if n := p.page.one(class("name")); n != nil && n.words() == m[0] {
			return p.press(tag("a"), class(kind))
		}
		next := p.page.one(class("next"))
		if next == nil {
			return fmt.Errorf("the book has no next page")
		}
		if err := p.click(next.one(tag("a"))); err != nil {
			return err
		}
	}
	return nil
}

// email opens a mail and performs the requested action.
func email(p *player) error {
	m, err := p.find(`Find the email by (\w+) and (.+)`)
	if err != nil {
		return err
	}
	thread := p.page.one(class("email-thread"), func(n *node) bool {
		s := n.one(class("email-sender"))
		return s != nil && s.words() == m[0]
	})
	if thread == nil {
		return fmt.Errorf("%s has written no mail", m[0])
	}
	switch what := m[1]; {
	case strings.Contains(what, "trash"):
		return p.click(thread.one(class("trash")))
	case strings.Contains(what, "star"):
		return p.click(thread.one(class("star")))
	case strings.HasPrefix(what, "reply"):
		return p.write(thread, "email-reply", "reply-text", p.name(), "send-reply")
	case strings.HasPrefix(what, "forward"):
		f := strings.Fields(strings.TrimSuffix(what, "."))
		return p.write(thread, "email-forward", "forward-sender", f[len(f)-1], "send-forward")
	}
	return fmt.Errorf("%q is more than this script knows", p.goal)
}

func (p *player) write(thread *node, button, field, text, send string) error {
	if err := p.click(thread); err != nil {
		return err
	}
	if err := p.press(class(button)); err != nil {
		return err
	}
	n := p.page.one(class(field))
	if n == nil {
		n = p.page.one(id(field))
	}
	if n != nil && n.tag != "input" && n.tag != "textarea" {
		n = n.one(tag("input", "textarea"))
	}
	if err := p.fill(n, text); err != nil {
		return err
	}
	return p.press(id(send))
}

// autocomplete types the beginning and selects the suggestion with the requested ending.
func autocomplete(p *player) error {
	q := p.quoted()
	if len(q) == 0 {
		return fmt.Errorf("the goal %q is of an unknown kind", p.goal)
	}
	end := ""
	if len(q) > 1 {
		end = q[1]
	}
	if err := p.click(p.page.one(id("tags"))); err != nil {
		return err
	}
	if err := p.do("keyboard_type", q[0]); err != nil {
		return err
	}
	for range 3 {
		if n := p.page.one(class("ui-menu-item"), seen,
			func(n *node) bool {
				return strings.HasPrefix(n.words(), q[0]) &&
					strings.HasSuffix(n.words(), end)
			}); n != nil {
			if err := p.click(n); err != nil {
				return err
			}
			return p.submit()
		}
		if err := p.do("noop", 400); err != nil {
			return err
		}
	}
	return fmt.Errorf("nothing that fits was offered")
}

// chooseDate goes back month by month from December, where the calendar starts. Ten steps are
// enough only for dates close to the end of the year.
func chooseDate(p *player) error {
	m, err := p.find(`Select (\d\d)/(\d\d)/2016`)
	if err != nil {
		return err
	}
	month, _ := strconv.Atoi(m[0])
	day := strings.TrimLeft(m[1], "0")
	if err := p.click(p.page.one(id("datepicker"))); err != nil {
		return err
	}
	if p.page.one(class("ui-datepicker-prev"), seen) == nil { // it fades in slowly
		if err := p.do("noop", 400); err != nil {
			return err
		}
	}
	for i := 12; i > month; i-- {
		if err := p.press(class("ui-datepicker-prev")); err != nil {
			return err
		}
	}
	if err := p.press(tag("a"), class("ui-state-default"), exactly(day)); err != nil {
		return err
	}
	return p.submit()
}

func greatest(p *player) error {
	var best *node
	high := -1
	for _, c := range p.page.all(class("card")) {
		if n, err := strconv.Atoi(c.one(class("card-value")).words()); err == nil && n > high {
			best, high = c, n
		}
	}
	if err := p.click(best); err != nil {
		return err
	}
	return p.press(id("submit"))
}
