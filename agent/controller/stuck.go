package controller

import (
	"encoding/json"
	"fmt"
	"hash/maphash"

	"github.com/evalrun/evalrun/agent/event"
)

// Stuck configures the detection of agents that repeat themselves. The patterns are those of
// OpenHands, but contents are compared, so a command that prints something new each time does not
// match. A zero field means the default given below; a negative field disables its pattern.
type Stuck struct {
	Repeat    int // same action with the same observation; default 4
	Errors    int // same action answered with an error; default 3
	Alternate int // two alternating actions with the same observations, counted together; default 6
	Monologue int // same text without an action; default 3
	Wait      int // empty command, possibly a wait, with the same observation; default 10
}

func (s Stuck) withDefaults() Stuck {
	set := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	set(&s.Repeat, 4)
	set(&s.Errors, 3)
	set(&s.Alternate, 6)
	set(&s.Monologue, 3)
	set(&s.Wait, 10)
	return s
}

// A StuckError reports that the agent repeated itself and was stopped. It is the agent's failure.
type StuckError struct {
	Pattern string // repeat, errors, alternate or monologue
	Times   int
}

func (e *StuckError) Error() string {
	what := map[string]string{
		"repeat":    "the same action gave the same observation %d times in a row",
		"errors":    "the same action failed %d times in a row",
		"alternate": "the same two actions by turns, %d in all",
		"monologue": "the same words without an action %d times in a row",
	}[e.Pattern]
	return "stuck: " + fmt.Sprintf(what, e.Times)
}

// loops counts repetitions instead of keeping what it compares: n[k] says for how many of the
// latest pairs in a row the pair equals the one k+1 before it.
type loops struct {
	open   map[int64]pair // actions without an observation yet
	last   [2]pair        // newest first
	n      [2]int         // consecutive pairs equal to the one before; to the second before
	errs   int            // consecutive times that the same action was answered with an error
	words  uint64
	spoken int
}

// A pair holds the hashes of an action and its observation.
type pair struct {
	action, obs  uint64
	failed, wait bool
}

func (l *loops) action(e event.Event) {
	l.spoken = 0
	p := pair{action: hash(e.Body)}
	if r, ok := e.Body.(event.Run); ok && r.Command == "" && len(r.Args) == 0 {
		p.wait = true
	}
	if l.open == nil {
		l.open = map[int64]pair{}
	}
	l.open[e.ID] = p
}

func (l *loops) observation(e event.Event) {
	p, ok := l.open[e.Cause]
	if !ok {
		return
	}
	delete(l.open, e.Cause)
	p.obs = hash(e.Body)
	switch b := e.Body.(type) {
	case event.Error:
		p.failed = true
	case event.ToolResult:
		p.failed = b.Error
	case event.CellResult:
		p.failed = b.Error
	case event.Browsed:
		p.failed = b.Error != ""
	}
	for k := range l.n {
		if l.last[k] == p {
			l.n[k]++
		} else {
			l.n[k] = 0
		}
	}
	switch {
	case !p.failed:
		l.errs = 0
	case l.last[0].failed && l.last[0].action == p.action:
		l.errs++
	default:
		l.errs = 1
	}
	l.last[1], l.last[0] = l.last[0], p
}

func (l *loops) said(text string) {
	h := maphash.String(seed, text)
	if l.spoken == 0 || h != l.words {
		l.spoken = 0
	}
	l.words = h
	l.spoken++
}

// loop returns a StuckError if the agent repeats itself.
func (s *State) loop() error {
	l, max := &s.loops, s.stuck
	repeat := max.Repeat
	if l.last[0].wait {
		repeat = max.Wait
	}
	switch {
	case repeat > 0 && l.n[0]+1 >= repeat:
		return &StuckError{"repeat", l.n[0] + 1}
	case max.Errors > 0 && l.errs >= max.Errors:
		return &StuckError{"errors", l.errs}
	case max.Alternate > 0 && l.n[1] > 0 && l.n[0] == 0 && l.n[1]+2 >= max.Alternate:
		return &StuckError{"alternate", l.n[1] + 2}
	case max.Monologue > 0 && l.spoken >= max.Monologue:
		return &StuckError{"monologue", l.spoken}
	}
	return nil
}

var seed = maphash.MakeSeed()

// hash returns a hash of an event's content without the parts that differ each time.
func hash(b event.Body) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	write := func(s string) {
		h.WriteString(s)
		h.WriteByte(0)
	}
	write(b.Kind())
	if c, ok := b.(event.CellResult); ok {
		c.WallMS = 0
		b = c
	}
	switch b := b.(type) {
	case event.Run:
		write(b.Command)
		write(b.Dir)
		write(fmt.Sprint(b.Session, b.Input))
		for _, a := range b.Args {
			write(a)
		}
	case event.RunResult:
		write(fmt.Sprint(b.Code, b.Signal, b.TimedOut, b.OOM, b.OutBytes, b.ErrBytes))
		write(b.Output)
		write(b.Stderr)
	case event.Browsed: // without clocks, counters and pictures, which always change
		write(b.URL)
		write(b.Focused)
		write(b.Error)
		write(fmt.Sprint(b.Pages, b.Active, b.Done))
		if b.AX != nil {
			write(b.AX.SHA256)
		}
	default:
		raw, err := json.Marshal(b)
		if err != nil { // a body that cannot be encoded equals only itself
			return maphash.Comparable(seed, &b)
		}
		h.Write(raw)
	}
	return h.Sum64()
}
