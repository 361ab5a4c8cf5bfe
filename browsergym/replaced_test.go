package browsergym_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// A page that has replaced what it can of the browser's own functions is seen, and acted on, as one
// that has not.
func TestReplacedFunctions(t *testing.T) {
	b := launch(t)
	script, err := os.ReadFile("testdata/replace.js")
	if err != nil {
		t.Fatal(err)
	}
	const groups = 12
	clean := replaced(t, b, "", 0)
	replace := func(mode string, group, groups int) {
		t.Run(fmt.Sprintf("%s %d of %d", mode, group, groups), func(t *testing.T) {
			call := fmt.Sprintf("%s(%q, %d, %d)", strings.TrimSpace(string(script)), mode, group, groups)
			seen := replaced(t, b, call, 10)
			for i := range clean {
				if d := cmp.Diff(clean[i], seen[i]); d != "" {
					t.Fatalf("step %d:\n%s", i, d)
				}
			}
		})
	}
	replace("hooks", 0, 1)
	for _, mode := range []string{"throws", "nothing", "gone"} {
		replace(mode, 0, 1)
		for i := range groups {
			if !testing.Short() {
				replace(mode, i, groups)
			}
		}
	}
}

// replaced plays a page that runs a script, which has to replace at least so many properties in the
// page and in its frame, and returns what was seen.
func replaced(t *testing.T, b *cdp.Browser, script string, least int) (seen []string) {
	t.Helper()
	var mu sync.Mutex
	var counts []int
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/replace.js":
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, script)
		case "/replaced":
			n, _ := strconv.Atoi(r.URL.RawQuery)
			mu.Lock()
			counts = append(counts, n)
			mu.Unlock()
		default:
			http.ServeFile(w, r, "testdata/replaced.html")
		}
	}))
	defer func() { s.CloseClientConnections(); s.Close() }()
	e := play(t, browsergym.Options{Browser: b}, func(uint32) browsergym.Task {
		return &visit{browsergym.Openended{URL: s.URL + "/", Goal: browsergym.Text("look")}}
	})
	see := func(o *browsergym.Observation) {
		properties, err := json.MarshalIndent(o.Properties, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, strings.ReplaceAll(strings.Join([]string{
			o.Titles[0], o.Focused, o.LastError, axText(t, o), text(t, o), string(properties),
			strings.Join(o.Warnings, "\n"),
		}, "\n"), s.URL, "http://site"))
	}
	o := reset(t, e, 0)
	see(o)
	bid := map[string]string{}
	for line := range strings.Lines(axText(t, o)) {
		if before, after, ok := strings.Cut(line, "] "); ok {
			name, _, _ := strings.Cut(strings.TrimSpace(after), ",")
			bid[name] = strings.TrimSpace(before)[1:]
		}
	}
	for _, a := range []struct{ call, on string }{
		{"fill('%s', 'Bob')", "textbox 'Name'"}, {"click('%s')", "checkbox 'Agree'"},
		{"select_option('%s', 'blue')", "combobox ''"},
		{"hover('%s')", "button 'framed'"}, {"press('%s', 'Control+a')", "textbox 'Name'"},
		{"click('%s')", "button 'inside'"}, {"noop(10)", ""},
	} {
		call := a.call
		if a.on != "" {
			for name, id := range bid {
				if strings.HasPrefix(name, a.on) {
					call = fmt.Sprintf(a.call, id)
				}
			}
		}
		see(step(t, e, call).Observation)
	}
	mu.Lock()
	defer mu.Unlock()
	if least > 0 && (len(counts) != 2 || counts[0] < least || counts[1] < least) {
		t.Errorf("properties replaced in the page and its frame: %v", counts)
	}
	return seen
}

// Inputs that are named after what a form can do hide it, and so do pictures of the document's.
func TestHiddenFunctions(t *testing.T) {
	e, o, _ := open(t, browsergym.Options{},
		`<title>hidden</title><form><button type="button" onclick="this.firstChild.data = 'pressed'">press</button></form><div id="d"></div>
		<script>
			const names = new Set();
			for (const type of [Document, HTMLFormElement, HTMLElement, Element, Node, EventTarget, Object]) Object.getOwnPropertyNames(type.prototype).forEach(n => names.add(n));
			const form = document.forms[0], add = form.append.bind(form), put = d.append.bind(d), make = document.createElement.bind(document);
			for (const n of names) {
				const i = make('input'), p = make('img');
				i.type = 'hidden';
				i.name = p.name = n;
				add(i);
				put(p);
			}
		</script>`)
	if n := len(o.Properties.Bids()); n < 500 {
		t.Errorf("%d elements have bids", n)
	}
	if o = step(t, e, "mouse_click(20, 20)").Observation; o.Titles[0] != "hidden" ||
		!strings.Contains(axText(t, o), "button 'pressed'") {
		t.Errorf("pressed: %q, error %q\n%.500s", o.Titles, o.LastError, axText(t, o))
	}
}

// A document that is written anew shows its handlers and values as before.
func TestWrittenDocument(t *testing.T) {
	_, o, _ := open(t, browsergym.Options{}, `<script>onload = () => {
		document.open();
		document.write('<title>written</title><div onclick="go()" style="height: 30px">handled</div><input aria-label="in"><script>document.querySelector("input").value = "typed"</' + 'script>');
		document.close();
	}</script>`)
	marked, err := json.Marshal(o.Properties)
	if s := text(t, o); err != nil || !strings.Contains(s, `value="typed"`) ||
		strings.Count(string(marked), `"set_of_marks":true`) != 2 {
		t.Errorf("%s\n%s", s, marked)
	}
}
