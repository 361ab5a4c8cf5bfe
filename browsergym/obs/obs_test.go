package obs_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/browsergym/obs"
)

func TestPruneHTML(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"a < b", "<p>\n a &lt; b\n</p>\n"},
		{`<html><body><div bid="1"><span bid="2">x</span></div></body></html>`, "x\n"},
		{`<html><body><div bid="1"></div><!-- gone --><p bid="2" id="k">y<br/>z</p></body></html>`,
			"<p bid=\"2\" id=\"k\">\n y\n z\n</p>\n"},
		{`<html><body><p><div>x</div></p></body></html>`, "<p>\n</p>\n<div>\n x\n</div>\n"},
		{`<html><body><b title='say "hi"' class="  a   b ">&amp;&nope;</b></body></html>`,
			"<b class=\"a b\" title='say \"hi\"'>\n &amp;&amp;nope;\n</b>\n"},
	} {
		if got := obs.PruneHTML(tt.in); got != tt.want {
			t.Errorf("%q:\n got  %q\n want %q", tt.in, got, tt.want)
		}
	}
}

// What contradicts itself, or goes deeper than anybody reads, comes to an end.
func TestHostileTrees(t *testing.T) {
	circle := &obs.AXTree{}
	if err := json.Unmarshal([]byte(`{"nodes":[{"nodeId":"1","role":{"value":"a"},"name":{"value":"x"},"childIds":["2","1","9"]},
		{"nodeId":"2","role":{"value":"b"},"name":{"value":"y"},"childIds":["1","2"]}]}`), circle); err != nil {
		t.Fatal(err)
	}
	if got, err := obs.AXText(circle, nil, obs.DefaultAX()); err != nil || got != "a 'x'\n\tb 'y'" {
		t.Errorf("a circle: %q, %v", got, err)
	}
	if got := obs.PruneHTML(strings.Repeat("<b>", 200_000) + "x"); !strings.Contains(got, "x") {
		t.Error("a deep page lost its text")
	}
	s := &obs.Snapshot{Strings: []string{"HTML"}, Documents: make([]obs.Document, 1)}
	d := &s.Documents[0]
	d.Nodes.NodeType, d.Nodes.NodeName, d.Nodes.ParentIndex = []int{9, 1, 1}, []int{7, 0, -5}, []int{-1, 0, 99}
	d.Nodes.Attributes = [][]int{{1}, {0, 44, -1, 0}, {}}
	d.Nodes.ContentDocumentIndex.Index, d.Nodes.ContentDocumentIndex.Value = []int{1, 2}, []int{0, 8}
	s.Clean()
	p, _ := obs.PropertiesOf(s, 1)
	if got, err := obs.DOMText(s, p, obs.Options{}); err != nil || !strings.Contains(got, "<html") {
		t.Errorf("a broken snapshot: %q, %v", got, err)
	}
	if _, err := obs.DOMText(s, nil, obs.Options{Visible: true}); err != obs.ErrNoProperties {
		t.Errorf("without properties: %v", err)
	}
}

func TestChromium125(t *testing.T) {
	tree := &obs.AXTree{}
	if err := json.Unmarshal([]byte(`{"nodes":[
		{"nodeId":"1","role":{"value":"RootWebArea"},"name":{"value":"K"},"properties":[{"name":"url","value":{"value":"http://x"}}],"childIds":["2","4","5","6"]},
		{"nodeId":"2","role":{"value":"StaticText"},"name":{"value":"t"},"childIds":["3"]},
		{"nodeId":"3","role":{"value":"InlineTextBox"},"name":{"value":"t"}},
		{"nodeId":"4","role":{"value":"form"},"name":{"value":""},"browsergym_id":"7"},
		{"nodeId":"5","role":{"value":"spinbutton"},"name":{"value":"Qty"},"value":{"value":2},"properties":[{"name":"valuetext","value":{"value":"2"}}]},
		{"nodeId":"6","role":{"value":"cell"},"name":{"value":"c"}}]}`), tree); err != nil {
		t.Fatal(err)
	}
	obs.Chromium125(tree, nil)
	want := "RootWebArea 'K'\n\tStaticText 't'\n\tspinbutton 'Qty' value=2, valuetext=''\n\tgridcell 'c'"
	if got, _ := obs.AXText(tree, nil, obs.DefaultAX()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func FuzzPruneHTML(f *testing.F) {
	f.Add(`<html><body><p a="1" b='2'>x</p></body></html>`)
	f.Add("</html>&lt;<::marker><script>a<b</script")
	f.Fuzz(func(t *testing.T, s string) {
		once := obs.PruneHTML(s)
		if n := len(once); n > 10_000+20*len(s)*(1+strings.Count(s, "<")) {
			t.Fatalf("%d bytes from %d", n, len(s))
		}
	})
}
