package image

import (
	"bytes"
	"sync"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// tailBytes of a failed build's output are added to its error.
const tailBytes = 64 << 10

// output keeps the first and the last part of a build's output.
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
	o.cut = sandbox.NewCut(&o.end, tailBytes) // the last half of tailBytes is used
	return o
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cut.Write(p)
	return o.all.Write(p)
}

// whole returns the log. It may be called once, after the build.
func (o *output) whole() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all.Flush()
	return o.buf.Bytes()
}

// tail returns the part for an error. Nothing may be written afterwards.
func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		o.over = true
		o.cut.Flush()
	}
	return o.end.String()
}
