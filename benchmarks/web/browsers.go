package web

import (
	"errors"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/browsers"
)

// Browsers are what a run lends to benchmarks that play in browsers. The zero value is enough to
// look at their tasks.
type Browsers struct {
	Pool   *browsers.Pool
	Pace   browsergym.Pace
	Record Record
	// Missing says why there is no browser to start; "": there is one, or nobody has looked.
	Missing string
}

// ErrNoBrowsers: tasks are looked at, and none can be played.
var ErrNoBrowsers = errors.New("there are no browsers to play in")

// Needs are those of a task that is played in a browser and needs nothing else. Where there is no
// browser it is skipped.
func (b Browsers) Needs() benchmarks.Needs {
	return benchmarks.Needs{Browser: b.Missing == "", Skip: b.Missing}
}

// Configure sets the run's browsers in c: the opener of contexts, the pace and what is recorded.
func (b Browsers) Configure(c *Config, w browsers.AccessOptions) error {
	if b.Pool == nil {
		return ErrNoBrowsers
	}
	c.Browser, c.Pace, c.Record = b.Pool.For(w), b.Pace, b.Record
	return nil
}

// BrowsersOf are the browsers that a run lends; the zero value where it lends none.
func BrowsersOf(s benchmarks.Setup) Browsers {
	b, _ := s.Browsers.(Browsers)
	return b
}
