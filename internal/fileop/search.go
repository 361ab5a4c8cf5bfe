package fileop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/search"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// searchLimit is how long a search may take. What it has found until then is its result.
const searchLimit = 30 * time.Second

func (r request) search() (res sandbox.FileResult, err error) {
	if r.Search == nil || r.Search.Pattern == "" {
		return res, errors.New("there is no pattern")
	}
	if strings.ContainsRune(r.Search.Pattern+r.Search.Files, 0) {
		return res, errors.New("a pattern has no NUL byte")
	}
	late := fmt.Errorf("the search took more than %v and was ended; search a smaller folder", searchLimit)
	ctx, cancel := context.WithTimeoutCause(context.Background(), searchLimit, late)
	defer cancel()
	do := search.Grep
	if r.Op == sandbox.FileGlob {
		do = search.Glob
	}
	found, err := do(ctx, r.Path, *r.Search)
	if err != nil && (err != late || len(found.Hits) == 0) {
		return res, err
	}
	res.Hits, res.More = found.Hits, found.More || err != nil
	for i := range res.Hits {
		res.Hits[i].Path = clean(res.Hits[i].Path)
	}
	if err != nil {
		res.Text = err.Error()
	}
	if n := found.Unreadable; n > 0 {
		res.Text = strings.TrimPrefix(res.Text+fmt.Sprintf("\n%d files or folders could not be read", n), "\n")
	}
	return res, nil
}
