package image

import (
	"bytes"
	"sync"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// tailBytes of a failed build's output go with its error.
const tailBytes = 64 << 10

// output keeps the beginning and the end of what a build prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
	all *sandbox.Cut
	end bytes.Buffer
	cut *sandbox.Cut

	over bool // the end is flushed
}

func newOutput(limit int64) *output {
	o := &output{}
	o.all = sandbox.NewCut(&o.buf, limit)
	o.cut = sandbox.NewCut(&o.end, tailBytes) // its last half is what counts
	return o
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cut.Write(p)
	return o.all.Write(p)
}

// whole is the log, to be asked for once, when the build is over.
func (o *output) whole() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all.Flush()
	return o.buf.Bytes()
}

// tail is the part that goes with an error; nothing is written any more.
func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		o.over = true
		o.cut.Flush()
	}
	return o.end.String()
}
