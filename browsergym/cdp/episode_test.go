package cdp_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/pyrepr"
	"github.com/evalrun/evalrun/browsergym/recordings"
	"github.com/evalrun/evalrun/browsergym/recordings/recordingstest"
)

// player does recorded actions on pages, as far as they are well-formed: what is wrong with
// arguments is not this package's business.
type player struct {
	c     *cdp.Context
	page  *cdp.Page
	force bool
}

var errNotOurs = errors.New("not this package's business")

func (pl *player) play(ctx context.Context, text string) error {
	calls, err := action.Parse(text, false)
	if err != nil || len(calls) == 0 {
		return errNotOurs
	}
	for _, c := range calls {
		if err := pl.call(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (pl *player) call(ctx context.Context, c action.Call) (err error) {
	defer func() {
		if r := recover(); r != nil { // an argument of another type, or none
			err = errNotOurs
		}
	}()
	args := append([]pyrepr.Value(nil), c.Args...)
	for _, n := range c.Named {
		args = append(args, n.Value)
	}
	str := func(i int) string { return string(args[i].(pyrepr.Str)) }
	num := func(i int) float64 {
		switch v := args[i].(type) {
		case pyrepr.Int:
			f, _ := strconv.ParseFloat(string(v), 64)
			return f
		case pyrepr.Float:
			return float64(v)
		}
		panic("no number")
	}
	list := func(i int) []string {
		if s, ok := args[i].(pyrepr.Str); ok {
			return []string{string(s)}
		}
		all := []string{}
		for _, v := range args[i].(pyrepr.List) {
			all = append(all, string(v.(pyrepr.Str)))
		}
		return all
	}
	button := func(i int) string {
		if i >= len(args) {
			return "left"
		}
		if b := str(i); b == "left" || b == "middle" || b == "right" {
			return b
		}
		panic("no button")
	}
	find := func(i int) *cdp.Element {
		var e *cdp.Element
		if e, err = pl.page.Find(ctx, str(i)); err != nil {
			return nil
		}
		return e
	}
	forced := func(act func(force bool) error) error {
		err := act(false)
		if pl.force && cdp.Timeout(err) {
			return act(true)
		}
		return err
	}
	p := pl.page
	switch c.Name {
	case "noop":
		ms := 1000.0
		if len(args) > 0 {
			ms = num(0)
		}
		time.Sleep(time.Duration(ms * 1e6))
		return nil
	case "click", "dblclick":
		if len(args) == 2 {
			if l, ok := args[1].(pyrepr.List); ok { // named, without a button
				args = []pyrepr.Value{args[0], pyrepr.Str("left"), l}
			}
		}
		o := cdp.Click{Button: button(1), Double: c.Name == "dblclick"}
		if len(args) > 2 {
			o.Modifiers = list(2)
		}
		for _, m := range o.Modifiers {
			if !strings.Contains("|Alt|Control|ControlOrMeta|Meta|Shift|", "|"+m+"|") {
				return errNotOurs
			}
		}
		if len(args) > 3 {
			return errNotOurs
		}
		e := find(0)
		if e == nil {
			return err
		}
		return forced(func(f bool) error { o.Force = f; return e.Click(ctx, o) })
	case "hover":
		if e := find(0); e != nil && len(args) == 1 {
			return forced(func(f bool) error { return e.Hover(ctx, f) })
		}
	case "fill":
		value := str(1)
		e := find(0)
		if e == nil {
			return err
		}
		if len(args) > 2 && bool(args[2].(pyrepr.Bool)) {
			if err := e.Clear(ctx); err != nil {
				return err
			}
			r := []rune(value)
			if len(r) > 1 {
				if err := e.Fill(ctx, string(r[:len(r)-1]), false); err != nil {
					return err
				}
			}
			return e.Type(ctx, string(r[len(r)-1:]))
		}
		return forced(func(f bool) error { return e.Fill(ctx, value, f) })
	case "clear":
		if e := find(0); e != nil {
			return e.Clear(ctx)
		}
	case "focus":
		if e := find(0); e != nil {
			return e.Focus(ctx)
		}
	case "press":
		keys := str(1)
		if e := find(0); e != nil {
			return e.Press(ctx, keys)
		}
	case "select_option":
		l := list(1)
		if e := find(0); e != nil {
			return forced(func(f bool) error { return e.SelectOption(ctx, l, f) })
		}
	case "drag_and_drop":
		_ = str(1)
		from := find(0)
		if from == nil {
			return err
		}
		if err := from.Hover(ctx, false); err != nil {
			return err
		}
		if err := p.MouseDown(ctx, "left"); err != nil {
			return err
		}
		to := find(1)
		if to == nil {
			return err
		}
		if err := to.Hover(ctx, false); err != nil {
			return err
		}
		return p.MouseUp(ctx, "left")
	case "upload_file":
		l := list(1)
		e := find(0)
		if e == nil {
			return err
		}
		return p.Upload(ctx, l, func(ctx context.Context) error { return e.Click(ctx, cdp.Click{}) })
	case "mouse_upload_file":
		return p.Upload(ctx, list(2), func(ctx context.Context) error {
			return p.MouseClick(ctx, num(0), num(1), "left", false)
		})
	case "scroll":
		return p.Wheel(ctx, num(0), num(1))
	case "scroll_at":
		dx, dy := num(2), num(3)
		if err := p.MouseMove(ctx, num(0), num(1)); err != nil {
			return err
		}
		return p.Wheel(ctx, dx, dy)
	case "mouse_move":
		return p.MouseMove(ctx, num(0), num(1))
	case "mouse_click", "mouse_dblclick":
		x, y := num(0), num(1)
		return p.MouseClick(ctx, x, y, button(2), c.Name == "mouse_dblclick")
	case "mouse_down", "mouse_up":
		x, y, b := num(0), num(1), button(2)
		if err := p.MouseMove(ctx, x, y); err != nil {
			return err
		}
		if c.Name == "mouse_up" {
			return p.MouseUp(ctx, b)
		}
		return p.MouseDown(ctx, b)
	case "mouse_drag_and_drop":
		x, y := num(2), num(3)
		if err := p.MouseMove(ctx, num(0), num(1)); err != nil {
			return err
		}
		if err := p.MouseDown(ctx, "left"); err != nil {
			return err
		}
		if err := p.MouseMove(ctx, x, y); err != nil {
			return err
		}
		return p.MouseUp(ctx, "left")
	case "keyboard_press":
		return p.KeyPress(ctx, str(0))
	case "keyboard_down":
		return p.KeyDown(ctx, str(0))
	case "keyboard_up":
		return p.KeyUp(ctx, str(0))
	case "keyboard_type":
		return p.TypeText(ctx, str(0))
	case "keyboard_insert_text":
		return p.InsertText(ctx, str(0))
	case "goto":
		if len(args) == 1 {
			return p.Goto(ctx, str(0))
		}
		return errNotOurs
	case "go_back", "go_forward":
		if len(args) > 0 {
			return errNotOurs
		}
		if c.Name == "go_back" {
			return p.Back(ctx)
		}
		return p.Forward(ctx)
	case "new_tab":
		if len(args) > 0 {
			return errNotOurs
		}
		if pl.page, err = pl.c.NewPage(ctx); err != nil {
			return err
		}
		return pl.page.Report(ctx)
	case "tab_close":
		if err := p.Close(ctx); err != nil {
			return err
		}
		all := pl.c.Pages()
		if len(all) == 0 {
			pl.page, err = pl.c.NewPage(ctx)
		} else {
			pl.page = all[len(all)-1]
		}
		if err != nil {
			return err
		}
		return pl.page.Report(ctx)
	case "tab_focus":
		i, all := int(num(0)), pl.c.Pages()
		if _, ok := args[0].(pyrepr.Int); !ok {
			return errNotOurs
		}
		if i < 0 {
			i += len(all)
		}
		if i < 0 || i >= len(all) {
			return errNotOurs
		}
		pl.page = all[i]
		if err := pl.page.BringToFront(ctx); err != nil {
			return err
		}
		return pl.page.Report(ctx)
	default:
		return errNotOurs
	}
	if err == nil {
		err = errNotOurs
	}
	return err
}

// awaitFrames waits until a page has drawn some frames: a browser scrolls some frames after the mouse
// wheel, and on a busy machine a frame may take longer than any pause. A page that cannot draw is
// not waited for.
func awaitFrames(ctx context.Context, p *cdp.Page) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	p.Evaluate(ctx, `new Promise(done => {
		let left = 5;
		const next = () => left-- ? requestAnimationFrame(next) : done();
		next();
	})`, nil)
}

var attempts = regexp.MustCompile(`(?s)\n  - retrying .*`)

// TestGoldenEpisodes plays recorded actions and compares what is seen after each. Which ones is a
// pattern of EVALRUN_TEST_EPISODES, and how long to wait after each action EVALRUN_TEST_DELAY (the
// reference waits 500 ms).
func TestGoldenEpisodes(t *testing.T) {
	dir := recordingstest.Dir(t)
	b := launch(t)
	s := newSite(t, dir)
	names, delay := regexp.MustCompile(`^(events|forms|editable|dnd|shadow|frames)$`), 60*time.Millisecond
	if v := os.Getenv("EVALRUN_TEST_EPISODES"); v != "" {
		names = regexp.MustCompile(v)
	}
	if v := os.Getenv("EVALRUN_TEST_DELAY"); v != "" {
		var err error
		if delay, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	if err := recordings.Uploads(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "recordings", "*.jsonl.gz"))
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jsonl.gz")
		if !names.MatchString(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, all := recording(t, file)
			if len(all) < 2 {
				t.SkipNow()
			}
			o := contextOptions(h)
			o.Downloads, o.UploadFrom = t.TempDir(), []string{recordings.UploadFolder}
			c, err := b.NewContext(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.Background())
			pl := &player{c: c, force: h.Set.Force}
			if pl.page, err = c.NewPage(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := pl.page.Goto(t.Context(), s.Ours(h.Start)); err != nil {
				t.Fatal(err)
			}
			if err := pl.page.WaitIdle(t.Context(), time.Second, true, nil); err != nil {
				t.Fatal(err)
			}
			same := 0
			for i := range all {
				want := all[i]
				var failure error
				if i > 0 {
					failure = pl.play(t.Context(), s.Ours(want.Action))
					time.Sleep(delay)
					awaitFrames(t.Context(), pl.page)
					if err := c.Sync(t.Context(), 3*time.Second); err != nil {
						t.Fatal(err)
					}
					if err := c.WaitDOM(t.Context(), 3*time.Second); err != nil {
						t.Fatal(err)
					}
				}
				var diffs []string
				if failure != errNotOurs {
					got := ""
					if failure != nil {
						got = s.Theirs(failure.Error())
					}
					if got, want := attempts.ReplaceAllString(got, ""),
						attempts.ReplaceAllString(want.LastError, ""); got != want {
						diffs = append(diffs, fmt.Sprintf("error:\n got  %q\n want %q", got, want))
					}
				}
				if pl.page, err = c.Active(t.Context()); err != nil {
					t.Fatal(err)
				}
				seen, err := pl.page.Observe(t.Context(), cdp.ObserveOptions{AllTags: h.Tags == "all"})
				if err != nil {
					t.Fatalf("%d %s: %v", i, want.Action, err)
				}
				var urls []string
				active := -1
				for k, p := range c.Pages() {
					urls = append(urls, s.Theirs(p.URL()))
					if p == pl.page {
						active = k
					}
				}
				if fmt.Sprint(urls, active) != fmt.Sprint(want.URLs, want.Active) {
					diffs = append(diffs,
						fmt.Sprintf("pages %v %d, recorded %v %d", urls, active, want.URLs, want.Active))
				}
				diffs = append(diffs, compare(s, seen, want)...)
				if _, err := pl.page.Screenshot(t.Context(), 1); err != nil {
					t.Errorf("%d %s: %v", i, want.Action, err)
				}
				real := 0
				for _, d := range diffs {
					if unstable(t.Name(), d) {
						t.Logf("known to be unstable: %d %s: %s", i, want.Action, d)
						continue
					}
					if real++; i > same+2 {
						continue // what follows from the first ones
					}
					t.Errorf("%d %s: %s", i, want.Action, d)
				}
				if real == 0 {
					same++
				}
			}
			t.Logf("%d of %d observations equal", same, len(all))
		})
	}
}
