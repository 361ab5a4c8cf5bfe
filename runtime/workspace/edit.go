package workspace

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

const (
	maxUndo      = 10       // changes of a file that can be taken back
	maxUndoBytes = 64 << 20 // of all files
)

// An undo is what takes a change back.
type undo struct {
	path string // as the agent has named it
	real string // without links
	gone bool
	sandbox.Change
}

// An editor knows what was before the changes of its files, the oldest first.
type editor struct {
	mu      sync.Mutex
	changes []undo
}

// push adds a change. The oldest ones are forgotten.
func (e *editor) push(u undo) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.changes = append(e.changes, u)
	same, size := 0, 0
	for i := len(e.changes) - 1; i >= 0; i-- {
		if e.changes[i].path == u.path {
			same++
		}
		if size += len(e.changes[i].Before); size > maxUndoBytes {
			e.changes = slices.Delete(e.changes, 0, i+1)
			break
		}
		if same > maxUndo { // at most one is too much
			e.changes = slices.Delete(e.changes, i, i+1)
			break
		}
	}
}

// pop returns the newest change of a file and removes it.
func (e *editor) pop(name string) (u undo, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := len(e.changes) - 1; i >= 0; i-- {
		if u = e.changes[i]; u.path == name {
			e.changes = slices.Delete(e.changes, i, i+1)
			return u, true
		}
	}
	return undo{}, false
}

// view executes an action of kind "read".
func (w *Workspace) view(ctx context.Context, actor string, r event.Read) (event.Body, error) {
	op := sandbox.FileOp{Op: sandbox.FileView, Path: r.Path, Lines: r.Lines}
	if r.Plain {
		var why event.Body
		var err error
		if op.Path, why, err = w.absolute(ctx, actor, r.Path); why != nil || err != nil {
			return why, err
		}
		op.Op = sandbox.FileRead
	}
	res, why, err := w.fileOp(ctx, actor, op)
	if why != nil || err != nil {
		return why, err
	}
	v := event.Viewed{Path: op.Path, Text: res.Text, Error: res.Error}
	switch {
	case r.Plain && !res.Error:
		v.LineCount, v.Truncated = max(res.LineCount, 0), res.Chars > utf8.RuneCountInString(res.Text)
	case len(res.Data) > 0 && !res.Error:
		return w.keep(ctx, v, res)
	}
	return v, nil
}

// write executes an action of kind "write".
func (w *Workspace) write(ctx context.Context, actor string, r event.Write) (event.Body, error) {
	name, why, err := w.absolute(ctx, actor, r.Path)
	if why != nil || err != nil {
		return why, err
	}
	res, why, err := w.fileOp(ctx, actor, sandbox.FileOp{Op: sandbox.FileWrite, Path: name, Text: r.Text, Lines: r.Lines})
	if why != nil || err != nil {
		return why, err
	}
	return event.Edited{Of: r.Kind(), Path: name, Text: res.Text, Error: res.Error, New: res.Gone}, nil
}

// edit executes an action of kind "edit".
func (w *Workspace) edit(ctx context.Context, actor string, r event.Edit) (event.Body, error) {
	op := sandbox.FileOp{Op: r.Command, Path: r.Path, Old: r.Old, Text: r.Text, Line: r.Line}
	var last undo
	switch r.Command {
	case event.EditCreate, event.EditReplace, event.EditInsert:
	case event.EditUndo:
		// Of two actors that undo at the same time, each takes another change back.
		var ok bool
		if last, ok = w.editor.pop(r.Path); !ok {
			return event.Edited{Of: r.Kind(), Path: r.Path, Text: "there is no change of " + r.Path + " to undo", Error: true}, nil
		}
		op = sandbox.FileOp{Op: sandbox.FileRestore, Path: last.real,
			Change: last.Change, Gone: last.gone}
	default:
		return event.Error{Code: "invalid_call", Text: "there is no command " + clean([]byte(r.Command)) +
			" of the editor; it has create, str_replace, insert and undo_edit"}, nil
	}
	res, why, err := w.fileOp(ctx, actor, op)
	if why != nil || err != nil {
		if r.Command == event.EditUndo {
			w.editor.push(last) // it may not have been undone
		}
		return why, err
	}
	switch {
	case r.Command != event.EditUndo && !res.Error:
		real := res.Real
		if !path.IsAbs(real) || len(real) > 4096 { // the sandbox may not keep to it
			real = r.Path
		}
		w.editor.push(undo{r.Path, real, res.Gone, res.Change})
	case r.Command == event.EditUndo && res.Error:
		w.editor.push(last)
	}
	return event.Edited{Of: r.Kind(), Path: r.Path, Text: res.Text, Error: res.Error, New: res.Gone}, nil
}

// fileOp carries out an operation in the sandbox. why is the observation if the sandbox cannot.
func (w *Workspace) fileOp(ctx context.Context, actor string, op sandbox.FileOp) (res sandbox.FileResult,
	why event.Body, err error) {
	if len(op.Path) > 4096 || strings.ContainsRune(op.Path, 0) {
		return res, event.Error{Code: "invalid_call", Text: "a path has at most 4096 bytes, and no NUL byte"}, nil
	}
	sb, err := w.get(ctx)
	if err != nil {
		return res, nil, err
	}
	op.User, op.Dir = w.options.User, w.Dir(actor)
	f, ok := sandbox.As[sandbox.Filer](sb)
	if !ok {
		return res, event.Error{Code: "unsupported", Text: "this sandbox has no editor; use the shell"}, nil
	}
	res, err = f.FileOp(ctx, op)
	var failed *sandbox.Error
	var no *sandbox.Unsupported
	switch {
	case errors.As(err, &failed) && (failed.Inside || failed.BadRequest) && !errors.Is(err, sandbox.ErrGone):
		return res, event.Error{Code: "internal", Text: brief(failed.Err)}, nil
	case errors.As(err, &no):
		return res, event.Error{Code: "unsupported", Text: brief(no)}, nil
	}
	const most = 4*sandbox.MaxRead + 4<<10 // the sandbox may not keep to it
	res.Text = clean([]byte(res.Text[:min(len(res.Text), most)]))
	res.Hits = res.Hits[:min(len(res.Hits), sandbox.MaxHits)]
	return res, nil, err
}
