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
	_ "time/tzdata" // the same names are right on every machine

	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/runtime/egress"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Browser says what a task in a browser begins with.
type Browser struct {
	// pages of the site or addresses, each in a tab of its own, the last one in front; default
	// index.html
	Start    Texts    `json:"start,omitempty"`
	Site     Site     `json:"site,omitempty"`     // pages that come with the task
	Contract string   `json:"contract,omitempty"` // "miniwob": the page says the goal and the reward itself
	Viewport Viewport `json:"viewport,omitzero"`  // default 1280x720, under the contract 332x214
	// pixels of a screenshot for one of CSS; default 1, under the contract 1.5 unless viewport is
	// set
	Scale    float64 `json:"scale,omitempty"`
	Steps    int     `json:"steps,omitempty"`   // after so many the episode ends; default 30
	Seed     *uint32 `json:"seed,omitempty"`    // default: one of the task's own, another for each repeat
	Actions  Texts   `json:"actions,omitempty"` // subsets of actions; default: chat, infeas, bid, coord, nav, tab
	Locale   string  `json:"locale,omitempty"`  // default: the browser's
	TimeZone string  `json:"timezone,omitempty"`
}

// A Site is path → page, as files are; a plain text is a folder beside the file of tasks.
type Site map[string]Item

// Success is name → expression. A plain text is one without a name.
type Success map[string]string

// A Viewport, as 1280x720.
type Viewport struct{ Width, Height int }

const (
	contractMiniWoB = "miniwob"
	defaultSteps    = 30
	plainSuccess    = "success" // the name of an expression that has none
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

// starts are the pages that the task begins with.
func (b *Browser) starts() []string {
	if len(b.Start) == 0 {
		return []string{"index.html"}
	}
	return b.Start
}

// remote reports whether a start page is an address rather than a page of the site.
func remote(start string) bool { return strings.Contains(start, "://") }

// file is the site's file that a start page names.
func file(start string) string {
	name, _, _ := strings.Cut(start, "#")
	name, _, _ = strings.Cut(name, "?")
	if strings.HasSuffix(name, "/") || name == "" {
		name += "index.html"
	}
	return strings.TrimPrefix(name, "/")
}

var localeName = regexp.MustCompile(`^[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|[0-9]{3}))?$`)

// validate returns what is wrong with a task in a browser, its instruction and grade apart.
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
	// A browser that does not know one goes on without it.
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

// reachable says why an address is none that a page may be opened at.
func reachable(address string, p egress.Policy) error {
	u, err := web.Address(address)
	if err != nil {
		return err
	}
	host := strings.ToLower(strings.TrimRight(u.Hostname(), "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") { // for browsers that is a number, not a name
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

// graded returns what is wrong with the grade and the oracle of a stage in a browser.
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

// network is the policy that the task names.
func (t *Task) network() sandbox.Network { return t.spec().Network }

// origins are those of the start pages that are not the site's: "https://example.org".
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

// origin is an address' scheme, host and port; "" where there is none to trust.
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
