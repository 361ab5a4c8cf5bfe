package webarena

import (
	"bytes"
	"errors"
	"fmt"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/model"
)

// classifieds adds a site of offers with pictures to a world.
func (w *world) classifieds(t *testing.T) {
	t.Helper()
	pictures := map[string][]byte{"/cactus.png": encode(t, painting(60, 40, 1)),
		"/car.png": encode(t, painting(90, 60, 4))}
	const form = `<form method="post" action="/index.php?page=login"><input id="email" name="email"><input id="password" name="password" type="password"><button>Log in</button></form>`
	w.add(t, "classifieds", func(rw http.ResponseWriter, r *http.Request) {
		if p, ok := pictures[r.URL.Path]; ok {
			rw.Header().Set("Content-Type", "image/png")
			rw.Write(p)
			return
		}
		switch q := r.URL.Query().Get("page"); {
		case q == "reset":
			w.mu.Lock()
			w.resets = append(w.resets, r.FormValue("token"))
			w.mu.Unlock()
		case q == "login" && r.Method == http.MethodPost:
			if !w.login("classifieds", "email", "password", "/", rw, r) {
				page(rw, "Login", form)
			}
		case q == "login" && !w.in("classifieds", r):
			page(rw, "Login", form)
		case q == "item":
			page(rw, "Item", `<h2 class="price">270.00 $</h2><div class="item-photos"><img src="/`+
				r.URL.Query().Get("id")+`.png" alt="an offer"></div>`)
		default:
			page(rw, "Offers", `<a href="/index.php?page=item&id=cactus">Cactus</a> <a href="/index.php?page=item&id=car">Car</a><form><label>Photo <input type="file" onchange="document.title = this.files[0].name"></label></form>`)
		}
	})
}

const (
	cheaper = `{"task_id":0,"sites":["classifieds"],"start_url":"__CLASSIFIEDS__","intent":"Find this plant.","image":["own/cactus.png","__CLASSIFIEDS__/car.png"],"require_reset":true,"eval":{"eval_types":["url_match","program_html","page_image_query"],
		"reference_url":"__CLASSIFIEDS__/index.php?page=item&id=cactus","url_note":"EXACT","program_html":[{"url":"last","locator":"func:get_query_text(__page__, '.price')","required_contents":{"must_include":["270.00"]}}],
		"page_image_query":[{"eval_image_url":"last","eval_image_class":".item-photos","eval_fuzzy_image_match":"own/cactus.png"}]}}`
	plant = `{"task_id":1,"sites":["classifieds"],"start_url":"__CLASSIFIEDS__","intent":"Show a plant.","image":null,"eval":{"eval_types":["page_image_query"],
		"page_image_query":[{"eval_image_url":"last","eval_image_class":".item-photos","eval_vqa":[{"question":"Is this a plant? yes or no","answer":"yes"}]}]}}`
	told = `{"task_id":2,"sites":["classifieds"],"start_url":"__CLASSIFIEDS__","intent":"What does it cost?","image":"own/cactus.png","eval":{"eval_types":["string_match"],"reference_answers":{"required_values":["> 200","<= 270"]}}}`
)

func visual(t *testing.T, w *world, options map[string]any) *Benchmark {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "own"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "own", "cactus.png"), encode(t, painting(60, 40, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if options == nil {
		options = map[string]any{}
	}
	options["images"] = dir
	return bench(t, Visual, Sites{"classifieds": w.sites["classifieds"]}, options, cheaper, plant, told)
}

func TestVisualSessions(t *testing.T) {
	see := func(word string) map[string]func(*model.Request) (string, error) {
		return map[string]func(*model.Request) (string, error){roleCaptioner: func(r *model.Request) (string, error) {
			if len(r.Messages) != 1 || len(r.Messages[0].Parts) != 2 || r.Messages[0].Parts[0].Blob == nil ||
				r.Messages[0].Parts[1].Text != "Q: Is this a plant? yes or no A:" {
				return "", fmt.Errorf("asked %+v", r.Messages)
			}
			return word, nil
		}}
	}
	for _, tt := range []struct {
		name, id, link string
		models         map[string]func(*model.Request) (string, error)
		answer         string
		want           float64
	}{
		{"the same picture", "0", "Cactus", nil, "", 1},
		{"another picture", "0", "Car", nil, "", 0},
		{"seen", "1", "Cactus", see("Yes, a cactus"), "", 1},
		{"not seen", "1", "Car", see("no"), "", 0},
		{"a value", "2", "Cactus", nil, "270", 1},
		{"another value", "2", "Cactus", nil, "271", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.classifieds(t)
			g := begin(t, visual(t, w, nil), tt.id, tt.models)
			g.must("click('"+g.bid(tt.link)+"')", "noop()")
			if got, r, err := g.end(tt.answer); err != nil || got != tt.want {
				t.Errorf("score %v, %v, %v; %s", got, r, err, g.last.Info)
			}
			if g.host.asked > 1 {
				t.Errorf("the captioner was asked %d times about one picture", g.host.asked)
			}
		})
	}
}

// A goal's pictures are blobs, and files that can be uploaded; others cannot. Classifieds reset
// themselves where a task asks for it.
func TestVisualGoal(t *testing.T) {
	w := newWorld(t)
	w.classifieds(t)
	g := begin(t, visual(t, w, map[string]any{"reset": map[string]string{"token": "TOKEN"}}), "0", nil)
	if len(w.resets) != 1 || w.resets[0] != "secret of TOKEN" {
		t.Errorf("resets %q", w.resets)
	}
	var pictures [][]byte
	for _, p := range g.goal.Parts {
		if p.Blob == nil {
			continue
		}
		r, err := g.host.log.OpenBlob(t.Context(), *p.Blob)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := b.ReadFrom(r); err != nil {
			t.Fatal(err)
		}
		r.Close()
		pictures = append(pictures, b.Bytes())
	}
	if len(pictures) != 2 {
		t.Fatalf("goal %+v", g.goal)
	}
	for i, want := range []int{60, 90} {
		if c, err := png.DecodeConfig(bytes.NewReader(pictures[i])); err != nil || c.Width != want {
			t.Errorf("picture %d: %+v, %v", i, c, err)
		}
	}
	_, rest, ok := strings.Cut(g.goal.Text(), "as the file ")
	file, _, _ := strings.Cut(rest, ", ")
	file, _, _ = strings.Cut(file, ".png.")
	file = strings.TrimSuffix(file, ".png") + ".png"
	if !ok {
		t.Fatalf("goal %q", g.goal.Text())
	}
	g.must("upload_file('" + g.bid("Photo") + "', '" + file + "')")
	if g.seen.Error != "" || !strings.Contains(fmt.Sprint(g.seen.Pages), "input_image_0.png") {
		t.Errorf("uploading %s: %q, %v", file, g.seen.Error, g.seen.Pages)
	}
	g.must("upload_file('" + g.bid("Photo") + "', '/etc/passwd')")
	if !strings.Contains(g.seen.Error, "no such file") {
		t.Errorf("a file of this machine: %q", g.seen.Error)
	}
	if err := g.ep.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the goal's files are still there: %v", err)
	}
}

// A folder is its files, one behind the other, and numbers go on.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"test_b.raw.json": "[" + told + "]",
		"test_a.raw.json": "[" + cheaper + "," + plant + "]", "other.json": "[1]"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	src, err := Open(Visual, dir)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for x, err := range src.Tasks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, x.ID)
	}
	if strings.Join(ids, " ") != "0 1 4" {
		t.Errorf("IDs %q", ids)
	}
	if _, err := Open(Visual, t.TempDir()); err == nil || !strings.Contains(err.Error(), "no test_*.raw.json") {
		t.Errorf("an empty folder: %v", err)
	}
}
