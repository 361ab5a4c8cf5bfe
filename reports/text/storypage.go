package text

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"
)

//go:embed storypage.html
var storyPageText string

var storyPage = template.Must(template.New("story").Parse(storyPageText))

// Size limits for a page: of one picture, of all pictures, of the text of one entry, and of all
// texts.
const (
	maxPicture  = 16 << 20
	maxPictures = 512 << 20
	maxPart     = 1 << 20
	maxParts    = 64 << 20
)

// A pageStep is a browser action, as a row of the page's table.
type pageStep struct {
	Anchor                  string
	Attempt                 int
	N                       int
	Action, Reward, SoFar   string
	URL, Error              string
	Good, Failed, Over, New bool
}

// A pagePart is the text of one journal entry.
type pagePart struct {
	Anchor, Kind, Text string

	seen  []pageBlob
	album *album
}

// A pageBlob is a stored picture.
type pageBlob struct {
	what string
	blob *event.Blob
}

// pictures returns the pictures of an observation.
func pictures(b event.Body) (seen []pageBlob) {
	add := func(what string, b *event.Blob) {
		if b != nil {
			seen = append(seen, pageBlob{what, b})
		}
	}
	parts := func(parts []event.Part) {
		for _, p := range parts[:min(len(parts), 100)] {
			add("picture", p.Blob)
		}
	}
	switch b := b.(type) {
	case event.Browsed:
		add("screenshot", b.Screenshot)
		add("marks", b.Marks)
	case event.CellResult:
		parts(b.Parts)
	case event.ToolResult:
		parts(b.Parts)
	}
	return seen
}

// Pictures reads the entry's pictures. It is called while the page is written, so that they are
// never all in memory.
func (p pagePart) Pictures() []pagePicture {
	var all []pagePicture
	for _, s := range p.seen {
		all = append(all, p.album.picture(s.what, s.blob))
	}
	return all
}

type pagePicture struct {
	What, Gone string
	Source     template.URL
}

// StoryPage writes the content of [Story] as a self-contained HTML page: goal, steps with their
// rewards, and each observation with its pictures. open returns a stored picture or text by
// its SHA-256. The page runs no scripts and loads nothing, and escapes everything that pages and models
// have said.
func StoryPage(w io.Writer, plan *record.Plan, trial string, entries iter.Seq2[record.Entry, error],
	open func(sum string) (io.ReadCloser, error)) error {
	var buf firstBytes
	t := &storyWriter{printer: printer{w: &buf}, st: Style{Full: true}, trial: trial, page: true, open: open}
	t.head(plan)
	title, about, _ := strings.Cut(strings.TrimSpace(buf.String()), "\n")
	data := struct {
		Title, About, Goal, Verdict string
		Good                        bool
		Steps                       []pageStep
		Parts                       []pagePart
	}{Title: title, About: about}
	stored := &album{open: open, left: maxPictures}
	left, untold := maxParts, 0
	var grade ledger.Grade
	var damaged error
	for e, err := range entries {
		if err != nil {
			damaged = errors.Join(damaged, err)
			continue
		}
		if e.Trial != trial {
			continue
		}
		if left <= 0 && e.Kind == record.KindEvent {
			untold++
			continue
		}
		part := pagePart{Kind: e.Kind}
		switch e.Kind {
		case record.KindEvent:
			if ev, err := event.Default.Decode(e.Data); err == nil {
				part.seen, part.album = pictures(ev.Body), stored
				if b, ok := ev.Body.(event.Browsed); ok {
					part.Kind, part.Anchor = "seen", fmt.Sprintf("a%d-e%d", e.Attempt, ev.ID)
					if b.Step > 0 {
						step := t.pageStep(&ev, &b)
						step.Anchor, step.Attempt = part.Anchor, e.Attempt
						step.New = len(data.Steps) > 0 && data.Steps[len(data.Steps)-1].Attempt != e.Attempt
						data.Steps = append(data.Steps, step)
					}
				}
			}
		case record.KindStage:
			var s record.Stage
			if json.Unmarshal(e.Data, &s) == nil && s.Goal != "" {
				data.Goal = cut(Clean(s.Goal), maxPart)
			}
		case record.KindVerdict:
			var v record.Verdict
			if json.Unmarshal(e.Data, &v) == nil && v.Final {
				grade = ledger.GradeOf(&v)
				data.Verdict, data.Good = headlineOf(&grade)
			}
		case record.KindAmend:
			var a record.Amend
			if json.Unmarshal(e.Data, &a) == nil && data.Verdict != "" {
				grade.Amend(&a)
				data.Verdict, data.Good = headlineOf(&grade)
			}
		}
		buf.Reset()
		t.entry(&e)
		if part.Text = strings.Trim(buf.String(), "\n"); part.Text == "" && part.seen == nil {
			continue
		}
		if left <= 0 {
			untold++
			continue
		}
		left -= len(part.Text) + 200
		data.Parts = append(data.Parts, part)
	}
	switch {
	case !t.seen:
		data.Parts = append(data.Parts, pagePart{Text: "no attempt has begun yet"})
	case damaged != nil:
		data.Parts = append(data.Parts, pagePart{Text: "warning: " + line(damaged.Error())})
	}
	if untold > 0 {
		data.Parts = append(data.Parts, pagePart{
			Text: fmt.Sprintf("… and %s: more than a page takes; evalrun show --trial %s --full tells all",
				plural(untold, "more part"), trial)})
	}
	return storyPage.Execute(w, data)
}

// headlineOf describes a grade, and says whether it is a good one.
func headlineOf(g *ledger.Grade) (text string, good bool) {
	parts := words("", string(g.Status), "", strings.ReplaceAll(string(g.End), "_", " "))
	if g.Status == record.Scored {
		parts, good = append(parts, "reward "+number(g.Reward)), g.Reward != nil && *g.Reward > 0
	}
	if c := g.Confirmation; c != nil {
		parts = append(parts, words("second opinion:", strings.ReplaceAll(c.State, "_", " "))...)
		good = good && c.State != record.Unconfirmed
	}
	return strings.Join(append(parts, words("flags", strings.Join(g.Flags, ", "))...), " · "), good
}

// pageStep builds a step from the observation after it and from its reward, which was recorded
// before the observation.
func (t *storyWriter) pageStep(e *event.Event, b *event.Browsed) pageStep {
	first, _, _ := strings.Cut(b.Error, "\n")
	s := pageStep{N: b.Step, Action: cut(Clean(b.Action), 2000), URL: line(cut(b.URL, 200)),
		Error: line(cut(first, 300)), Failed: b.Error != "", Over: b.Done}
	i := slices.IndexFunc(t.rewards, func(r record.Reward) bool { return r.Action == e.Cause })
	if i < 0 {
		return s
	}
	r := t.rewards[i]
	var info struct {
		Cumulative *float64 `json:"cumulative"`
	}
	s.Reward, s.Good = number(r.Reward), r.Reward != nil && *r.Reward > 0
	if json.Unmarshal(r.Info, &info) == nil && info.Cumulative != nil {
		s.SoFar = number(info.Cumulative)
	}
	return s
}

// firstBytes keeps the beginning of what is written and counts the remaining bytes.
type firstBytes struct {
	bytes.Buffer
	more int
}

func (b *firstBytes) Write(p []byte) (int, error) {
	n := min(len(p), max(0, maxPart-b.Len()))
	b.Buffer.Write(p[:n])
	b.more += len(p) - n
	return len(p), nil
}

func (b *firstBytes) Reset() {
	b.Buffer.Reset()
	b.more = 0
}

func (b *firstBytes) String() string {
	s := b.Buffer.String()
	if b.more > 0 {
		s = strings.ToValidUTF8(s, "") + fmt.Sprintf("\n… %s more", bytesOf(int64(b.more)))
	}
	return s
}

// An album opens stored pictures for a page by their SHA-256, up to a total size.
type album struct {
	open func(sum string) (io.ReadCloser, error)
	left int64
}

// picture returns a stored picture as a part of the page.
func (a *album) picture(what string, b *event.Blob) pagePicture {
	gone := func(why string) pagePicture { return pagePicture{What: what, Gone: why} }
	switch {
	case !slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, b.Type) || b.Size > maxPicture:
		return gone(fmt.Sprintf("%s of type %s is not shown", bytesOf(b.Size), line(cut(b.Type, 100))))
	case a.left <= 0:
		return gone("the page has as many pictures as it takes; this one is blobs/" + blobPath(cut(b.SHA256, 64)))
	}
	r, err := a.open(b.SHA256)
	if err != nil {
		return gone(line(err.Error()))
	}
	defer r.Close()
	raw, err := io.ReadAll(io.LimitReader(r, maxPicture+1))
	switch {
	case err != nil:
		return gone(line(err.Error()))
	case len(raw) > maxPicture, http.DetectContentType(raw) != b.Type:
		return gone("what is kept is not what was noted: not shown")
	}
	a.left -= int64(len(raw))
	return pagePicture{What: what, Source: template.URL("data:" + b.Type + ";base64," +
		base64.StdEncoding.EncodeToString(raw))}
}
