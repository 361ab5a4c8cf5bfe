package tasks

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // time zone names are valid on every machine

	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/runtime/egress"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Browser configures a task that is done in a browser.
type Browser struct {
	// site pages or addresses, each in its own tab, the last one active; default index.html
	Start Texts `json:"start,omitempty"`
	Site  Site  `json:"site,omitempty"` // pages that come with the task
	// "miniwob": the page provides goal and reward itself
	Contract string   `json:"contract,omitempty"`
	Viewport Viewport `json:"viewport,omitzero"` // default 1280x720, under the contract 332x214
	// device pixels per CSS pixel; default 1, under the contract 1.5 unless viewport is set
	Scale float64 `json:"scale,omitempty"`
	Steps int     `json:"steps,omitempty"` // maximum number of steps; default 30
	Seed  *uint32 `json:"seed,omitempty"`  // default: derived from the task and the repeat
	// subsets of actions; default: chat, infeas, bid, coord, nav, tab
	Actions  Texts  `json:"actions,omitempty"`
	Locale   string `json:"locale,omitempty"` // default: the browser's
	TimeZone string `json:"timezone,omitempty"`
}

// A Site maps paths to pages, as task files do. A plain string names a directory beside the task
// file.
type Site map[string]Item

// Success maps names to expressions. A plain string is a single unnamed expression.
type Success map[string]string

// A Viewport is written as 1280x720.
type Viewport struct{ Width, Height int }

const (
	contractMiniWoB = "miniwob"
	defaultSteps    = 30
	plainSuccess    = "success" // name of an unnamed expression
)

var defaultActions = []string{"chat", "infeas", "bid", "coord", "nav", "tab"}

func (s *Site) Set(from string) error    { *s = Site{".": {From: from}}; return nil }
func (s *Success) Set(text string) error { *s = Success{plainSuccess: text}; return nil }

func (v *Viewport) Set(text string) (err error)  { *v, err = parseViewport(text); return err }
func (v *Viewport) UnmarshalJSON(b []byte) error { return set(b, v) }

func (v Viewport) MarshalJSON() ([]byte, error) {
	return json.Marshal(fmt.Sprintf("%dx%d", v.Width, v.Height))
}

func parseViewport(s string) (Viewport, error) {
	w, h, ok := strings.Cut(s, "x")
	width, err1 := strconv.Atoi(w)
	height, err2 := strconv.Atoi(h)
	if !ok || err1 != nil || err2 != nil || min(width, height) < 50 || max(width, height) > 10_000 {
		return Viewport{}, fmt.Errorf("viewport %q; want width and height, such as 1280x720", s)
	}
	return Viewport{width, height}, nil
}

// starts returns the pages that the task opens first.
func (b *Browser) starts() []string {
	if len(b.Start) == 0 {
		return []string{"index.html"}
	}
	return b.Start
}

// remote reports whether a start page is an address rather than a page of the site.
func remote(start string) bool { return strings.Contains(start, "://") }

// file returns the site file that a start page refers to.
func file(start string) string {
	name, _, _ := strings.Cut(start, "#")
	name, _, _ = strings.Cut(name, "?")
	if strings.HasSuffix(name, "/") || name == "" {
		name += "index.html"
	}
	return strings.TrimPrefix(name, "/")
}

var localeName = regexp.MustCompile(`^[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|[0-9]{3}))?$`)

// validate returns the errors of a browser task, except those of its instruction and grade.
func (b *Browser) validate(t *Task) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("browser: "+format, args...)) }
	if len(t.Stages) > 0 || t.Files != nil || t.Setup != "" || t.Leave {
		bad("the task has no machine, and one stage, so stages, files, setup and leave do not go with it; pages " +
			"belong into browser.site")
	}
	errs = append(errs, items("browser.site", b.Site)...)
	if b.Contract != "" && b.Contract != contractMiniWoB {
		bad("contract %q; known is %s", b.Contract, contractMiniWoB)
	}
	if b.Scale != 0 && (b.Scale < 0.25 || b.Scale > 4) {
		bad("scale %v; want one from 0.25 to 4", b.Scale)
	}
	if b.Steps < 0 {
		bad("steps are below 0")
	}
	// A browser silently ignores a locale that it does not know.
	if b.Locale != "" && !localeName.MatchString(b.Locale) {
		bad("locale %q; want one such as de or de-DE", b.Locale)
	}
	if _, err := time.LoadLocation(b.TimeZone); err != nil || b.TimeZone == "Local" {
		bad("timezone %q is none; want one such as Europe/Berlin", b.TimeZone)
	}
	if b.Actions != nil && len(b.Actions) == 0 {
		bad("actions: the list is empty; leave the key out for the default")
	}
	if err := action.Known(b.subsets()); err != nil {
		bad("actions: %w", err)
	}
	policy, err := egress.Parse(t.network())
	if err != nil {
		bad("network: %w", err)
	}
	for _, s := range b.starts() {
		switch {
		case !remote(s) && b.Site == nil:
			bad("start %q is a page of the site, and there is no site; an address begins with https:// or http://", s)
		case !remote(s) && !fs.ValidPath(file(s)):
			bad("start %q leaves the site", s)
		case remote(s):
			if err := reachable(s, policy); err != nil {
				bad("start %q: %w", s, err)
			}
		}
	}
	if b.Contract == contractMiniWoB {
		if s := b.starts(); len(s) != 1 || remote(s[0]) || path.Ext(s[0]) != ".html" {
			bad("under the contract %s there is one start, a page NAME.html of the site", contractMiniWoB)
		}
	}
	return errs
}

// reachable returns an error if a page must not be opened at the address.
func reachable(address string, p egress.Policy) error {
	u, err := web.Address(address)
	if err != nil {
		return err
	}
	host := strings.ToLower(strings.TrimRight(u.Hostname(), "."))
	// the policy needs a number: browsers resolve localhost themselves
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		host = "127.0.0.1"
	}
	why := p.Name(host)
	if a, err := netip.ParseAddr(host); err == nil {
		why = p.Addr(a)
	}
	if why != "" {
		return fmt.Errorf("the task's network does not lead there (%s); name it: network: [%s]", why, host)
	}
	return nil
}

func (b *Browser) subsets() []string {
	if len(b.Actions) == 0 {
		return defaultActions
	}
	return b.Actions
}

// graded returns the errors in the grade and the oracle of a browser stage.
func (s *Stage) graded(b *Browser) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	g := s.Grade
	if g.Function != nil || g.Script != "" || g.Files != nil || g.Collect != nil || g.Shared {
		bad("grade: function, script, files, collect and shared need a machine; in a browser there are success, " +
			"url and answer")
	}
	switch {
	case b.Contract == contractMiniWoB:
		if s.Instruction != "" || s.Answer != nil || len(g.Answer) > 0 || g.Success != nil || g.URL != "" || g.Partial {
			bad("under the contract %s the page says the goal and the reward: leave out instruction, answer and grade",
				contractMiniWoB)
		}
	case strings.TrimSpace(s.Instruction) == "":
		bad("no instruction")
		fallthrough
	default:
		if g.Success == nil && g.URL == "" && len(g.Answer) == 0 {
			bad("it is not graded; want grade.success, grade.url or answer")
		}
	}
	if len(s.Answer) > 0 {
		bad("answer stands beside a grade with an answer of its own: keep one")
	}
	for _, name := range sorted(g.Success) {
		if strings.TrimSpace(g.Success[name]) == "" {
			bad("grade.success: %q is empty", name)
		}
	}
	if _, err := regexp.Compile(g.URL); err != nil {
		bad("grade.url: %w", err)
	}
	errs = append(errs, g.answers()...)
	if o := s.Oracle; o != nil {
		if o.Script != "" {
			bad("oracle: there is no machine for a script; want {actions: […], answer: …}")
		}
		if set, err := action.New(action.Options{Subsets: b.subsets()}); err == nil {
			for i, a := range o.Actions {
				if err := o.sound(a, set); err != nil {
					bad("oracle.actions: %d: %w", i+1, err)
				}
			}
		}
		for _, name := range sorted(o.Take) {
			if err := o.soundTake(name); err != nil {
				bad("oracle.take: %s: %w", name, err)
			}
		}
	}
	return errs
}

// network returns the network policy that the task declares.
func (t *Task) network() sandbox.Network { return t.spec().Network }

// origins returns the origins of the start pages that are not part of the site, such as
// "https://example.org".
func (b *Browser) origins() []string {
	var out []string
	for _, s := range b.starts() {
		if remote(s) {
			if o := origin(s); !slices.Contains(out, o) {
				out = append(out, o)
			}
		}
	}
	return out
}

// origin returns scheme, host and port of an address, or "" if it has no trustworthy origin.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return strings.ToLower(u.Scheme + "://" + u.Hostname() + ":" + port)
}
