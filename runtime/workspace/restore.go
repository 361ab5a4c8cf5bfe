package workspace

import (
	"errors"
	"iter"

	"github.com/evalrun/evalrun/agent/event"
)

// Restore sets the state of a workspace that another process has used, from that process's log. It
// is called before the first Step. The result acted reports whether the sandbox was used.
//
// The sandbox itself knows the commands by their actions' IDs, so Step of an action that was not
// answered does not execute it again. This is not so for edits, and what the editor needs to undo
// them was in the memory of that process: after an edit, or a call of a tool of a set, Restore fails.
func (w *Workspace) Restore(events iter.Seq2[event.Event, error]) (acted bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restored = true
	open := map[int64]event.Body{}
	for e, err := range events {
		if err != nil {
			return acted, err
		}
		switch e.Body.(type) {
		case event.ToolCall:
			return acted, errTools
		case event.Run, event.Read, event.Edit, event.Glob, event.Grep:
			acted = true
			open[e.ID] = e.Body
			continue
		}
		if e.Body.Class() != event.Observation {
			continue
		}
		act := open[e.Cause]
		delete(open, e.Cause)
		switch b := e.Body.(type) {
		case event.Edited:
			if !b.Error && b.Of == (event.Edit{}).Kind() {
				return acted, errEdited
			}
		case event.RunResult:
			if run, ok := act.(event.Run); ok {
				w.ran(e.Actor, run, b)
			}
		}
	}
	for _, b := range open {
		switch b.(type) {
		case event.Edit, event.Write:
			return acted, errEdited
		}
	}
	return acted, nil
}

var errTools = errors.New("a tool was called that may not run twice")

var errEdited = errors.New("a file was edited, and what can undo that is gone, or it was not finished")

// ran restores what the result of one command says. The caller holds mu.
func (w *Workspace) ran(actor string, run event.Run, res event.RunResult) {
	if _, ok := w.dirs[actor]; res.Dir != "" && (ok || res.Dir != w.options.Dir) {
		w.dirs[actor] = res.Dir
	}
	switch {
	case !run.Session:
	case res.Suffix == "": // every call of a persistent shell has one
		w.shellless = true
	default:
		w.shells[actor] = true
	}
}

// searches reports whether it is not known which shell the earlier process has found.
func (w *Workspace) searches() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.restored && w.shell == ""
}
