package obs_test

import (
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/browsergym/obs"
)

// BenchmarkTexts renders the texts that an agent usually reads from the browser's decoded answers.
func BenchmarkTexts(b *testing.B) {
	dir := goldens(b)
	for _, name := range []string{"recordings/frames", "recordings/big", "miniwob/email-inbox.1"} {
		var o *observation
		files, _ := filepath.Glob(filepath.Join(dir, name+"*.jsonl.gz"))
		if len(files) == 0 {
			continue
		}
		each(b, files[0], func(x *observation) {
			if o == nil && x.Raw != nil {
				o = x
			}
		})
		s := &o.Raw.Snapshot
		s.Clean()
		p, _ := obs.PropertiesOf(s, o.Scale)
		frames := map[int]string{}
		for _, d := range o.Raw.Describe {
			frames[d.Backend] = d.Frame
		}
		tree := obs.Merge(o.Raw.AXTrees, func(b int) string { return frames[b] })
		ax := obs.DefaultAX()
		ax.Visible, ax.Clickable = true, true
		var dom string
		b.Run(filepath.Base(name)+"/ax", func(b *testing.B) {
			for b.Loop() {
				if _, err := obs.AXText(tree, p, ax); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(filepath.Base(name)+"/dom", func(b *testing.B) {
			for b.Loop() {
				dom, _ = obs.DOMText(s, p, ax.Options)
			}
		})
		b.Run(filepath.Base(name)+"/pruned", func(b *testing.B) {
			for b.Loop() {
				obs.PruneHTML(dom)
			}
		})
	}
}
