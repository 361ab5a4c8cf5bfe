package obs_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/browsergym/obs"
	"github.com/evalrun/evalrun/browsergym/recordings"
	"github.com/evalrun/evalrun/browsergym/recordings/recordingstest"
)

// BenchmarkTexts renders the texts that an agent usually reads from the browser's decoded answers.
func BenchmarkTexts(b *testing.B) {
	files, err := recordings.Files(recordingstest.Dir(b), "recordings", "miniwob")
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"recordings/frames", "recordings/big", "miniwob/email-inbox.1"} {
		var v recordings.View
		err := recordings.Read(files[name], func(*recordings.Header) error { return nil },
			func(o *recordings.Observation) (err error) {
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

// BenchmarkHTML reads and prints a page of lists, tables and addresses.
func BenchmarkHTML(b *testing.B) {
	var page strings.Builder
	page.WriteString("<html bid=\"0\"><body bid=\"1\">")
	for i := range 2000 {
		fmt.Fprintf(&page, "<div bid=\"%d\" class=\"item  product\"><a "+
			"href=\"/list?page=%[1]d&region=us&amp;order=asc\">Pear &amp; apple %[1]d</a><ul><li>one<li>two</ul>"+
			"<table><tr><td>%[1]d<td>3.50 €</table><input type=\"text\" value=\"x\"><p>text <b>bold</b> text\n</div>\n",
			i)
	}
	b.SetBytes(int64(page.Len()))
	b.ReportAllocs()
	for b.Loop() {
		obs.PruneHTML(page.String())
	}
}
