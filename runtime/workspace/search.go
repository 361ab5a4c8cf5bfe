package workspace

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Results of a search that are shown.
const (
	maxGlob = 200
	maxGrep = 100
)

// glob executes an action of kind "glob".
func (w *Workspace) glob(ctx context.Context, actor string, g event.Glob) (event.Body, error) {
	return w.search(ctx, actor, event.Found{Of: g.Kind(), Path: g.Path},
		sandbox.FileOp{Op: sandbox.FileGlob, Search: &sandbox.Search{Pattern: g.Pattern, Max: maxGlob}})
}

// grep executes an action of kind "grep".
func (w *Workspace) grep(ctx context.Context, actor string, g event.Grep) (event.Body, error) {
	return w.search(ctx, actor, event.Found{Of: g.Kind(), Path: g.Path},
		sandbox.FileOp{Op: sandbox.FileGrep, Search: &sandbox.Search{Pattern: g.Pattern, Files: g.Include,
			IgnoreCase: g.IgnoreCase, Max: maxGrep}})
}

// search carries out a search and describes what it has found.
func (w *Workspace) search(ctx context.Context, actor string, found event.Found, op sandbox.FileOp,
) (event.Body, error) {
	var why event.Body
	var err error
	if found.Path, why, err = w.absolute(ctx, actor, found.Path); why != nil || err != nil {
		return why, err
	}
	op.Path = found.Path
	res, why, err := w.fileOp(ctx, actor, op)
	if why != nil || err != nil {
		return why, err
	}
	if res.Error {
		found.Text, found.Error = res.Text, true
		return found, nil
	}
	lines := make([]string, len(res.Hits))
	for i, h := range res.Hits {
		lines[i] = hitLine(h)
	}
	text, shown := fit(lines, int(w.options.Limit))
	found.Text, found.Hits, found.More = text, shown, res.More || shown < len(lines)
	switch {
	case found.More:
		found.Text += fmt.Sprintf("[the first %d; there are more: search a smaller folder, or for less]\n", shown)
	case shown == 0:
		found.Text = "Nothing was found in " + found.Path +
			". Hidden files, and those that ignore files name, are not searched.\n"
	}
	if res.Text != "" {
		found.Text += "[" + res.Text + "]\n"
	}
	return found, nil
}

// hitLine returns a hit as grep -n prints it.
func hitLine(h sandbox.Hit) string {
	if h.Line == 0 {
		return clean([]byte(h.Path))
	}
	return clean(fmt.Appendf(nil, "%s:%d:%s", h.Path, h.Line, h.Text))
}

// fit joins the lines that fit into a limit.
func fit(lines []string, limit int) (text string, n int) {
	var b strings.Builder
	for _, line := range lines {
		if b.Len()+len(line)+1 > limit {
			break
		}
		b.WriteString(line)
		b.WriteByte('\n')
		n++
	}
	return b.String(), n
}

// absolute returns the path that an actor means: a relative one is below its directory.
func (w *Workspace) absolute(ctx context.Context, actor, name string) (abs string, why event.Body, err error) {
	if path.IsAbs(name) {
		return path.Clean(name), nil, nil
	}
	dir := w.Dir(actor)
	if dir == "" { // that of the sandbox, which a command knows
		res, err := w.Step(ctx, event.Event{ID: -1, Actor: actor, Body: event.Run{Args: []string{"pwd"}}})
		if err != nil {
			return "", nil, err
		}
		r, ok := res.(event.RunResult)
		if dir = strings.TrimSuffix(r.Output, "\n"); !ok || r.Code != 0 || !path.IsAbs(dir) {
			return "", event.Error{Code: "invalid_call",
				Text: "the current directory is not known; give an absolute path"}, nil
		}
	}
	return path.Join(dir, name), nil, nil
}
