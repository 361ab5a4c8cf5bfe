package progress

import (
	"slices"

	"github.com/evalrun/evalrun/harness/record"
)

// notMade is used to count images that could not be built or pulled among the failures.
const notMade record.Status = "failed"

// A making is an image that is being built or pulled.
type making struct{ key, text string }

// Display limits.
const (
	maxMaking  = 72 // characters per text
	maxMakings = 50
)

// Making shows what is being pulled or built, such as "building image for web-1: step 3/7". A later
// call with the same key replaces the text; an empty text removes it. Making removes control
// characters from the text and truncates it.
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

// Begun records the start of a unit of work that is not a trial. It must be followed by Made.
func (r *Reporter) Begun() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.c.running++
}

// Made records the result of a unit of work, and returns how many are finished.
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

// Cut truncates text to n characters.
func Cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
