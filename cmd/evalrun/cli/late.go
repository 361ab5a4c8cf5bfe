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

// late is a reporter that is made when it is known how much is left to do.
type late struct {
	a *app
	r atomic.Pointer[progress.Reporter]
	// waiting is progress.Options.Waiting of a run.
	waiting func() string
	// finishing says what the trials that run wait for; nil: not known.
	finishing func() string

	mu        sync.Mutex
	announced map[string]time.Time // images on their way before there is a reporter
}

// shows begins to show, in a mode of package progress.
func (l *late) shows(mode, what string, total, done int) {
	if l.a.quiet {
		mode = progress.None
	}
	l.r.Store(progress.New(progress.Options{Mode: mode, Terminal: l.a.ErrTTY, Color: l.a.color, What: what,
		Total: total, Done: done, W: l.a.Stderr, Width: errColumns, Waiting: l.waiting}))
}

// earlier adds what earlier processes of the run have come to.
func (l *late) earlier(e launch.Earlier) {
	if r := l.r.Load(); r != nil {
		r.Earlier(e.Scored, e.Sum, e.Cost, e.Known, e.Hidden)
	}
}

// errColumns is the width of the terminal that stderr is; 0: it is none.
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

// drain is told that no more trials are begun, and says how many still run.
func (l *late) drain() int {
	if r := l.r.Load(); r != nil {
		return r.Drain()
	}
	return 0
}

// begun and made count work that is no trial's; see [progress.Reporter].
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

// announce is app.tell while progress is shown.
func (l *late) announce(what string, facts map[string]any, text string) {
	switch r := l.r.Load(); {
	case r == nil || r.Mode == progress.None:
	case l.a.lines:
		l.a.notify(what, facts, "%s", text)
	default:
		r.Say(text)
	}
}

// say reports whether there is a reporter that says it.
func (l *late) say(text string) bool {
	r := l.r.Load()
	if r == nil || r.Mode == progress.None {
		return false
	}
	r.Say(text)
	return true
}

// making is told which images are on their way. Before there is a reporter, a line says so when one
// begins and every ten seconds.
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
	l.a.notify("image", map[string]any{"image": p.Name, "doing": p.Doing}, "%s", progress.Cut(progress.Clean(text), 100))
}

// makingText is an image's progress in a few words: "building image for web-1: step 3/7".
func makingText(p image.Progress) string {
	name := progress.Clean(p.Name)
	const most = 32 // of a name, whose end tells more; steps and bytes must have their place
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

// stepForm finds a step's number in what builders say: "[2/7] RUN make", "[build 2/7] RUN make",
// "Step 2/7 : RUN make".
var stepForm = regexp.MustCompile(`^(?:\[(?:[^][ ]{1,64} +)?|Step )([0-9]{1,4})/([0-9]{1,4})(?:\]| :)`)
