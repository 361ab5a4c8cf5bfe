package memory

import (
	"strings"

	"github.com/evalrun/evalrun/agent/event"
)

// browsed is an observation of a browser that is still shown.
type browsed struct {
	at     int          // index of its message
	before []event.Part // parts of the message before it
	action event.Body
	body   event.Browsed
	done   bool // already rendered
}

// see adds an observation of a browser. Because it is long, it is shown only until newer ones have
// come.
func (c *Conversation) see(b browsed) {
	c.seen = append(c.seen, b)
	recent := c.Recent
	if recent == 0 {
		recent = 1
	}
	if recent < 0 || len(c.seen) <= recent {
		return
	}
	old := c.seen[0]
	c.seen = c.seen[1:]
	c.msgs[old.at].Parts = append(old.before[:len(old.before):len(old.before)],
		event.Part{Text: "Visited URL " + line(old.body.URL) + "\nContent omitted"})
}

// Render calls show to render each browser observation that will be shown and has not been rendered
// yet. Without Render, the model is told only the browser's address.
func (c *Conversation) Render(show func(action event.Body, b event.Browsed) ([]event.Part, error)) error {
	for i := range c.seen {
		b := &c.seen[i]
		if b.done {
			continue
		}
		parts, err := show(b.action, b.body)
		if err != nil {
			return err
		}
		limit := c.max()
		out := b.before[:len(b.before):len(b.before)]
		for _, p := range parts {
			if p.Blob == nil {
				p.Text = Cut(p.Text, limit)
				limit = max(limit-len(p.Text), 0)
			}
			out = append(out, p)
		}
		c.msgs[b.at].Parts, b.done = out, true
	}
	return nil
}

// browsedText describes an observation of a browser without the contents of its blobs.
func browsedText(b event.Browsed) string {
	s := "The browser is at " + line(b.URL) + "."
	if b.Error != "" {
		s += "\nThe action failed: " + b.Error
	}
	return s
}

func line(s string) string { return strings.Join(strings.Fields(s), " ") }
