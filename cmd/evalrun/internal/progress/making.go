package progress

import (
	"slices"

	"github.com/evalrun/evalrun/harness/record"
)

// notMade counts, among failures, images that could not be made: of a reporter whose work they are.
const notMade record.Status = "failed"

// A making is an image on its way.
type making struct{ key, text string }

// So much of it is shown, and so many are.
const (
	maxMaking  = 72 // characters of one
	maxMakings = 50
)

// Making says what is being pulled or built now, such as "building image for web-1: step 3/7". A
// later call with the same key says it anew; an empty text says that it is over. What somebody else
// wrote is cleaned and cut here.
func (r *Reporter) Making(key, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.now, func(m making) bool { return m.key == key })
	text = Cut(Clean(text), maxMaking)
	switch {
	case text == "" && i >= 0:
		r.now = slices.Delete(r.now, i, i+1)
	case text == "":
	case i >= 0:
		r.now[i].text = text
	case len(r.now) < maxMakings:
		r.now = append(r.now, making{key, text})
	}
}

// Begun, and later Made, count one piece of work of a reporter that is not told of trials.
func (r *Reporter) Begun() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.c.running++
}

// Made says how it came out, and returns how many are through.
func (r *Reporter) Made(ok bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.c.running--
	r.c.done++
	r.c.fresh++
	if !ok {
		r.c.failed[notMade]++
	}
	return r.c.done
}

// Cut shortens text to n characters.
func Cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
