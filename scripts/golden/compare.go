package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/obs"
	"github.com/evalrun/evalrun/browsergym/recordings"
)

// compare compares every field of a result with the recorded one. docs/fidelity.md lists what is
// omitted or normalized.
func compare(s *recordings.Site, sets *recordings.Texts, r *browsergym.Result,
	want *recordings.Observation) (all []difference, err error) {
	o := r.Observation
	add := func(field, got, want string) {
		all = append(all, difference{field, s.Theirs(got), s.Theirs(want)})
	}
	say := func(field string, got, want any) {
		g, gerr := json.Marshal(got)
		w, werr := json.Marshal(want)
		if gerr != nil || werr != nil {
			err = fmt.Errorf("%s: %v, %v", field, gerr, werr)
		}
		add(field, string(g), string(w))
	}
	// the warning's wording is our own
	beforeWarning := func(s string) string { s, _, _ = strings.Cut(s, "WARNING: "); return s }
	say("goal", beforeWarning(o.Goal), beforeWarning(want.Goal))
	say("goal_object", append([]browsergym.Item{}, o.GoalObject...), append([]browsergym.Item{}, want.GoalObject...))
	chat := slices.Clone(o.Chat)
	for i := range chat {
		chat[i].Time = 0
	}
	say("chat", chat, want.Chat)
	say("urls", o.URLs, want.URLs)
	say("titles", o.Titles, want.Titles)
	say("active page", o.Active, want.Active)
	say("url", o.URL, want.URL)
	say("focused bid", o.Focused, want.Focused)
	say("last action", o.LastAction, want.LastAction)
	got1, got2, _ := strings.Cut(o.LastError, "\n")
	want1, want2, _ := strings.Cut(want.LastError, "\n")
	// the line is one of generated code
	if strings.HasPrefix(want1, "SyntaxError: keyword argument repeated") {
		got1, _, _ = strings.Cut(got1, ", line")
		want1, _, _ = strings.Cut(want1, ", line")
	}
	say("error", got1, want1)
	if want2 != "" || got2 != "" {
		say("call log", got2, want2)
	}
	if want.Kind == "step" {
		say("reward, end", []any{r.Reward, r.Terminated, r.Truncated, r.Info.Timeout},
			[]any{want.Reward, want.Terminated, want.Truncated, want.Timeout})
	}
	say("task info", timeless(r.Info.Task, want.TaskInfo), want.TaskInfo)
	for _, d := range properties(o.Properties, &want.Properties) {
		add(d.field, d.got, d.want)
	}
	for name, text := range want.Texts {
		kind, got, err := sets.Render(name, recordings.View{DOM: o.DOM, AX: o.AX, Properties: o.Properties})
		if err != nil {
			return nil, err
		}
		add("text "+kind, got, text)
	}
	return all, err
}

// timeless returns a task's info without the reward if it depends on time, and without keys that
// the reference does not have.
func timeless(got, want map[string]any) map[string]any {
	const timed = "REWARD_GLOBAL"
	got = maps.Clone(got)
	delete(got, browsergym.Reloaded)
	g, ok1 := got[timed].(float64)
	w, ok2 := want[timed].(float64)
	if ok1 && ok2 && g > 0 && w > 0 {
		got[timed] = w
	}
	return got
}

// properties compares the properties of marked elements.
func properties(got, want *obs.Properties) (all []difference) {
	list := func(p *obs.Properties, of func(obs.Property) any) string {
		var b strings.Builder
		for _, bid := range p.Bids() {
			x, _ := p.Get(bid)
			v, _ := json.Marshal(of(x))
			fmt.Fprintf(&b, "%s %s\n", bid, v)
		}
		return b.String()
	}
	for _, f := range []struct {
		name string
		of   func(obs.Property) any
	}{
		{"bids", func(obs.Property) any { return "" }},
		{"visibility", func(p obs.Property) any { return p.Visibility }},
		{"boxes", func(p obs.Property) any { return p.Box }},
		{"clickable", func(p obs.Property) any { return p.Clickable }},
		{"set of marks", func(p obs.Property) any { return p.Marked }},
	} {
		all = append(all, difference{f.name, list(got, f.of), list(want, f.of)})
	}
	return all
}
