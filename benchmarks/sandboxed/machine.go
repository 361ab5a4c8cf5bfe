package sandboxed

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks/filetree"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// WorkingDir asks a machine where its commands begin; "/" if it gives no absolute path.
func WorkingDir(ctx context.Context, sb sandbox.Sandbox) (string, error) {
	var out strings.Builder
	x, err := sb.Exec(ctx, sandbox.Command{Args: []string{"/bin/sh", "-c", "pwd"}, Stdout: &out, Limit: 8 << 10,
		FullLimit: -1})
	if err != nil {
		return "", err
	}
	if dir := strings.TrimSuffix(out.String(), "\n"); x.Code == 0 && path.IsAbs(dir) {
		return dir, nil
	}
	return "/", nil
}

// MakeOpen creates folders with mode 0777. The modes of their parents stay as they are.
func MakeOpen(ctx context.Context, sb sandbox.Sandbox, dirs ...string) error {
	trees := map[string]*filetree.Tree{} // by parent
	for _, d := range dirs {
		parent, base := path.Split(path.Clean(d))
		if trees[parent] == nil {
			trees[parent] = filetree.New()
		}
		trees[parent].Add(base, &filetree.Node{Mode: fs.ModeDir | 0o777})
	}
	for _, parent := range slices.Sorted(maps.Keys(trees)) {
		if err := sb.Put(ctx, parent, trees[parent]); err != nil {
			return err
		}
	}
	return nil
}

// Cause returns a sandbox's error without the sandbox's ID, which differs between two gradings of
// the same evidence. Other errors are returned as they are.
func Cause(err error) error {
	if e := (*sandbox.Error)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// Note appends an [event.Info] of the environment to the log, with data as JSON unless it is nil.
func Note(ctx context.Context, log event.Log, what, text string, data any) error {
	info := event.Info{What: what, Text: text}
	if data != nil {
		raw, err := json.Marshal(data)
		if err != nil {
			return err
		}
		info.Data = raw
	}
	_, err := log.Append(ctx, event.New(event.FromEnvironment, info))
	return err
}
