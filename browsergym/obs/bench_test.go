package obs_test

import (
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/browsergym/obs"
	"github.com/evalrun/evalrun/browsergym/recordings"
)

// BenchmarkTexts renders the texts that an agent usually reads from the browser's decoded answers.
func BenchmarkTexts(b *testing.B) {
	files, err := recordings.Files(recordings.Dir(b), "recordings", "miniwob")
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"recordings/frames", "recordings/big", "miniwob/email-inbox.1"} {
		var v recordings.View
		err := recordings.Read(files[name], func(*recordings.Header) error { return nil }, func(o *recordings.Observation) (err error) {
			if v.DOM == nil && o.Answered() {
				v, err = o.View()
			}
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		ax := obs.DefaultAX()
		ax.Visible, ax.Clickable = true, true
		var dom string
		b.Run(filepath.Base(name)+"/ax", func(b *testing.B) {
			for b.Loop() {
				if _, err := obs.AXText(v.AX, v.Properties, ax); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(filepath.Base(name)+"/dom", func(b *testing.B) {
			for b.Loop() {
				dom, _ = obs.DOMText(v.DOM, v.Properties, ax.Options)
			}
		})
		b.Run(filepath.Base(name)+"/pruned", func(b *testing.B) {
			for b.Loop() {
				obs.PruneHTML(dom)
			}
		})
	}
}
