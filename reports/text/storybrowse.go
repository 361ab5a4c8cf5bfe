package text

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/harness/record"
)

// reward describes the reward of the action that led to an observation.
func (t *storyWriter) reward(e *event.Event) string {
	i := slices.IndexFunc(t.rewards, func(r record.Reward) bool { return r.Action == e.Cause })
	if i < 0 || e.Body.Class() != event.Observation {
		return ""
	}
	r := t.rewards[i]
	t.rewards = slices.Delete(t.rewards, i, i+1)
	var info struct {
		Cumulative *float64 `json:"cumulative"`
		Raw        *float64 `json:"raw_reward"`
	}
	text := t.st.dim("reward " + number(r.Reward))
	if r.Reward != nil && *r.Reward > 0 {
		text = t.st.good("reward " + number(r.Reward))
	}
	if json.Unmarshal(r.Info, &info) != nil || info.Cumulative == nil && info.Raw == nil {
		if len(r.Info) > 0 {
			text += t.st.dim(" · " + cut(line(string(r.Info)), 200))
		}
		return text
	}
	if info.Cumulative != nil {
		text += t.st.dim(", so far " + number(info.Cumulative))
	}
	if info.Raw != nil {
		text += t.st.dim(", raw " + number(info.Raw))
	}
	return text
}

// browsed describes a browser's state in one line.
func (t *storyWriter) browsed(b *event.Browsed, reward string) string {
	facts := []string{"→ " + line(cut(b.URL, 200))}
	if b.Active >= 0 && b.Active < len(b.Pages) && b.Pages[b.Active].Title != "" {
		facts = append(facts, quote(cut(b.Pages[b.Active].Title, 80)))
	}
	if n := len(b.Pages); n > 1 {
		facts = append(facts, fmt.Sprintf("page %d of %d", b.Active+1, n))
	}
	facts = append(facts, words("focus", b.Focused)...)
	if b.Step > 0 {
		facts = append(facts, fmt.Sprintf("step %d", b.Step))
	}
	if reward != "" {
		facts = append(facts, reward)
	}
	if b.Done {
		facts = append(facts, t.st.bold("over"))
	}
	return strings.Join(facts, " · ")
}

// seenIn prints the remaining details of a browser observation, and where they are stored.
func (t *storyWriter) seenIn(b *event.Browsed) {
	if b.Error != "" {
		t.f("%s%s\n", indent, t.st.bad("the action failed"))
		t.body(b.Error, fewLines)
	}
	for _, m := range b.Chat {
		t.f("%s%s\n", indent, t.st.dim(line(m.Role)+" says"))
		t.body(m.Text, fewLines)
	}
	shown := b.Log
	if !t.st.Full {
		shown = shown[:min(len(shown), fewLines)]
	}
	for _, l := range shown {
		t.f("%s%s %s\n", indent, t.st.warn(line(l.Kind)), cut(line(l.Text), 200))
	}
	if more := len(b.Log) - len(shown) + b.LogDropped; more > 0 {
		t.f("%s%s\n", indent, t.st.dim(fmt.Sprintf("… and %s of the page's log", plural(more, "more line"))))
	}
	for _, d := range b.Downloads {
		t.f("%sdownload %s, %s, %s\n", indent, line(d.Name), line(d.State), bytesOf(d.Size))
		t.kept("file", d.Blob)
	}
	if !t.page {
		t.kept("screenshot", b.Screenshot)
		t.kept("marks", b.Marks)
	}
	t.kept("ax", b.AX)
	t.kept("dom", b.DOM)
	t.kept("properties", b.Properties)
}

func (t *storyWriter) kept(what string, b *event.Blob) {
	if b != nil {
		t.f("%s%s\n", indent, t.st.dim(fmt.Sprintf("[%s, %s: blobs/%s]", what, bytesOf(b.Size), blobPath(b.SHA256))))
	}
}
