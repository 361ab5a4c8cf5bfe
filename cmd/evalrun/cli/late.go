package cli

import (
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/progress"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/runtime/image"
)

// late is a progress reporter that is created once the amount of work is known.
type late struct {
	a *app
	r atomic.Pointer[progress.Reporter]
	// waiting is the run's progress.Options.Waiting.
	waiting func() string
	// finishing says what the running trials are waiting for, or "" if unknown.
	finishing func() string

	mu        sync.Mutex
	announced map[string]time.Time // images in progress while there is no reporter yet
}

// shows starts the progress display, in a mode of package progress.
func (l *late) shows(mode, what string, total, done int) {
	if l.a.quiet {
		mode = progress.None
	}
	l.r.Store(progress.New(progress.Options{Mode: mode, Terminal: l.a.ErrTTY, Color: l.a.color, What: what,
		Total: total, Done: done, W: l.a.Stderr, Width: errColumns, Waiting: l.waiting}))
}

// earlier adds the results of the run's earlier processes.
func (l *late) earlier(e launch.Earlier) {
	if r := l.r.Load(); r != nil {
		r.Earlier(e.Scored, e.Sum, e.Cost, e.Known, e.Hidden)
	}
}

// errColumns returns the width of the terminal at stderr, or 0 if it is not a terminal.
func errColumns() int {
	w, _, err := term.GetSize(2)
	if err != nil {
		return 0
	}
	return w
}

func (l *late) observe(p harness.Progress) {
	if r := l.r.Load(); r != nil {
		r.Observe(p)
	}
}

func (l *late) close() {
	if r := l.r.Load(); r != nil {
		r.Close()
	}
}

// drain records that no more trials are started, and returns how many are still running.
func (l *late) drain() int {
	if r := l.r.Load(); r != nil {
		return r.Drain()
	}
	return 0
}

// begun and made count work other than trials; see [progress.Reporter].
func (l *late) begun() {
	if r := l.r.Load(); r != nil {
		r.Begun()
	}
}

func (l *late) made(ok bool) int {
	if r := l.r.Load(); r != nil {
		return r.Made(ok)
	}
	return 0
}

// announce prints text, or a JSON line with facts, but only while progress is shown.
func (l *late) announce(what string, facts map[string]any, text string) {
	switch r := l.r.Load(); {
	case r == nil || r.Mode == progress.None:
	case l.a.lines:
		l.a.notify(what, facts, "%s", text)
	default:
		r.Say(text)
	}
}

// say prints text through the reporter. It returns false if there is none.
func (l *late) say(text string) bool {
	r := l.r.Load()
	if r == nil || r.Mode == progress.None {
		return false
	}
	r.Say(text)
	return true
}

// making receives the progress of images. While there is no reporter, it prints a line when an
// image starts, and then every ten seconds.
func (l *late) making(p image.Progress) {
	key, text := p.Doing+p.Ref, ""
	if !p.Done {
		text = makingText(p)
	}
	if r := l.r.Load(); r != nil {
		r.Making(key, text)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if p.Done || now.Sub(l.announced[key]) < 10*time.Second {
		return
	}
	if l.announced == nil {
		l.announced = map[string]time.Time{}
	}
	l.announced[key] = now
	l.a.notify("image", map[string]any{"image": p.Name, "doing": p.Doing}, "%s",
		progress.Cut(progress.Clean(text), 100))
}

// makingText describes an image's progress briefly: "building image for web-1: step 3/7".
func makingText(p image.Progress) string {
	name := progress.Clean(p.Name)
	// maximum length of a name; its end is more informative, and step and size need space
	const most = 32
	if r := []rune(name); len(r) > most {
		name = "…" + string(r[len(r)-most+1:])
	}
	if p.Doing == "pull" {
		switch {
		case p.Total > 0:
			return fmt.Sprintf("pulling image %s: %s of %s", name, bytesOf(p.Current), bytesOf(p.Total))
		case p.Current > 0:
			return fmt.Sprintf("pulling image %s: %s", name, bytesOf(p.Current))
		}
		return "pulling image " + name
	}
	text := "building image"
	if name != "" {
		text += " for " + name
	}
	if m := stepForm.FindStringSubmatch(p.Step); m != nil {
		text += ": step " + m[1] + "/" + m[2]
	}
	return text
}

// stepForm matches the step number in builder output: "[2/7] RUN make", "[build 2/7] RUN make",
// "Step 2/7 : RUN make".
var stepForm = regexp.MustCompile(`^(?:\[(?:[^][ ]{1,64} +)?|Step )([0-9]{1,4})/([0-9]{1,4})(?:\]| :)`)
