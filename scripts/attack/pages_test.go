package attack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/harness/record"
)

// A page is a hostile one: what its script does on load, or when it is clicked, and what the agent
// does there.
type page struct{ name, load, click, act string }

// hostilePages are played side by side. Most wait for a click, so that it is the agent under whose
// hands they break.
var hostilePages = []page{
	{name: "loop", click: `for (;;);`},
	{name: "loop in a timer", click: `setTimeout(() => { for (;;); }, 300)`},
	{name: "loop of microtasks", click: `const f = () => Promise.resolve().then(f); f()`},
	{name: "slow animation frames", load: `const f = () => { const t = Date.now(); while (Date.now() < t + 500); requestAnimationFrame(f) }; f()`},
	{name: "loop on mouse moves", click: `onmousemove = () => { for (;;); }`},
	{name: "loop of DOM mutations", click: `new MutationObserver(() => document.body.append('x')).observe(document, {subtree: true, childList: true}); document.body.append('x')`},
	{name: "slow regular expression", click: `/(a+)+$/.test('a'.repeat(40) + 'b')`},
	{name: "endless recursion", click: `(function f() { try { f() } finally { f() } })()`},
	{name: "getter that loops", click: `customElements.define('x-x', class extends HTMLElement { get value() { for (;;); } }); document.body.append(document.createElement('x-x'))`},
	{name: "getter that throws", load: `customElements.define('x-y', class extends HTMLElement { get value() { throw 1 } get checked() { throw 2 } }); document.body.append(document.createElement('x-y'))`},
	{name: "endless alerts", click: `for (;;) alert('more')`},
	{name: "endless confirms and prompts", click: `for (;;) { confirm('x'); prompt('y') }`},
	{name: "print dialogs", click: `for (let i = 0; i < 1000; i++) print()`},
	{name: "beforeunload dialog", click: `onbeforeunload = e => { e.preventDefault(); return 'stay' }`,
		act: "goto('http://127.0.0.1/')"},
	{name: "loop in pagehide", click: `onpagehide = () => { for (;;); }`, act: "goto('http://127.0.0.1/?next')"},
	{name: "endless synchronous requests",
		click: `const r = new XMLHttpRequest(); r.open('GET', '/' + 'x'.repeat(1e6), false); for (;;) try { r.send() } catch {}`},
	{name: "popups", click: `setInterval(() => open('about:blank'), 1)`},
	{name: "popups of popups", click: `const f = w => { const n = w.open('about:blank'); if (n) n.setTimeout(() => f(n), 1); }; setInterval(() => f(window), 5)`},
	{name: "popup that loops", click: `const w = open('about:blank'); w.setTimeout(() => { for (;;); }, 200)`},
	{name: "popups opened and closed", click: `setInterval(() => { const w = open('about:blank'); if (w) w.close() }, 5)`},
	{name: "tiny windows", click: `setInterval(() => open('about:blank', '', 'width=1,height=1'), 5)`},
	{name: "page closes itself", click: `close()`, act: "tab_close()"},
	{name: "console flood", click: `setInterval(() => { for (let i = 0; i < 5000; i++) console.log('x'.repeat(1000)) }, 1)`},
	{name: "console of large objects", click: `const o = Array.from({length: 1e5}, (_, i) => ({i})); setInterval(() => { for (let i = 0; i < 100; i++) console.log(o, o) }, 1)`},
	{name: "console flood from a worker",
		click: `new Worker(URL.createObjectURL(new Blob(['for (;;) console.log("x".repeat(1000))'])))`},
	{name: "exceptions", click: `setInterval(() => { throw new Error('x'.repeat(10000)) }, 0); for (let i = 0; i < 1000; i++) setInterval(() => { throw i }, 0)`},
	{name: "promise rejections", click: `setInterval(() => { for (let i = 0; i < 1000; i++) Promise.reject(new Error('x')) }, 1)`},
	{name: "focus events", click: `setInterval(() => { for (let i = 0; i < 2000; i++) dispatchEvent(new Event('focus')) }, 1)`},
	{name: "requests", click: `setInterval(() => { for (let i = 0; i < 50; i++) fetch('/none' + Math.random()).catch(() => 0) }, 1)`},
	{name: "images", click: `setInterval(() => { for (let i = 0; i < 50; i++) new Image().src = '/none' + Math.random() }, 1)`},
	{name: "requests to refused addresses",
		click: `setInterval(() => { for (let i = 0; i < 20; i++) fetch('http://10.0.0.1/' + i).catch(() => 0) }, 1)`},
	{name: "event sources", click: `for (let i = 0; i < 500; i++) new EventSource('/none' + i)`},
	{name: "WebSockets", click: `setInterval(() => { for (let i = 0; i < 20; i++) new WebSocket('ws://127.0.0.1/' + i) }, 5)`},
	{name: "memory: arrays", click: `const a = []; setInterval(() => { for (let i = 0; i < 50; i++) a.push(new Array(1e5).fill(a.length + 0.5)) }, 1)`},
	{name: "memory: buffers", click: `const a = []; setInterval(() => { try { a.push(new Uint8Array(64 << 20).fill(1)) } catch {} }, 5)`},
	{name: "memory: strings", click: `let s = 'x'; const a = []; setInterval(() => { s = s.length < 1 << 27 ? s + s : s; a.push(s + a.length); for (const t of a) t.charCodeAt(5) }, 20)`},
	{name: "blobs", click: `const a = []; setInterval(() => { try { a.push(new Blob([new Uint8Array(32 << 20)])) } catch {} }, 5)`},
	{name: "Cache storage", click: `caches.open('x').then(c => { let i = 0; setInterval(() => c.put('/' + i++, new Response(new Uint8Array(8 << 20))).catch(() => 0), 5) })`},
	{name: "IndexedDB records", click: `const r = indexedDB.open('x'); r.onupgradeneeded = () => r.result.createObjectStore('s'); r.onsuccess = () => { let i = 0; setInterval(() => { try { r.result.transaction('s', 'readwrite').objectStore('s').put(new Uint8Array(8 << 20), i++) } catch {} }, 5) }`},
	{name: "history", click: `setInterval(() => { try { history.pushState('x'.repeat(1 << 20), '', '#' + Math.random()) } catch {} }, 1)`},
	{name: "cookies", click: `for (let i = 0; i < 10000; i++) document.cookie = 'c' + i + '=' + 'x'.repeat(3000)`},
	{name: "256 MiB window name", click: `window.name = 'x'.repeat(1 << 28)`},
	{name: "128 MiB title", click: `document.title = 'x'.repeat(1 << 27)`},
	{name: "2 MiB address", click: `history.replaceState(0, '', '?' + 'x'.repeat(2 << 20))`},
	{name: "messages", click: `const c = new MessageChannel(); c.port1.onmessage = e => { c.port2.postMessage(e.data); c.port2.postMessage(e.data) }; c.port2.postMessage('x'.repeat(1000))`},
	{name: "channels", click: `const a = new BroadcastChannel('x'), b = new BroadcastChannel('x'); b.onmessage = e => { b.postMessage(1); b.postMessage(1) }; a.onmessage = () => { a.postMessage(1); a.postMessage(1) }; a.postMessage(1)`},
	{name: "workers", click: `setInterval(() => new Worker(URL.createObjectURL(new Blob(['for (;;);']))), 50)`},
	{name: "busy worker", click: `for (let i = 0; i < 8; i++) new Worker(URL.createObjectURL(new Blob(['for (;;) postMessage(new Array(1000).fill(1))'])))`},
	{name: "service worker that never answers",
		click: `navigator.serviceWorker.register('/worker.js').then(() => navigator.serviceWorker.ready)`,
		act:   "noop(1500)\ngoto('http://127.0.0.1/never')"},
	{name: "3,000 frames", click: `for (let i = 0; i < 3000; i++) { const f = document.createElement('iframe'); f.srcdoc = '<p>' + i; document.body.append(f) }`},
	{name: "50,000 frames", click: `for (let i = 0; i < 50000; i++) document.body.append(document.createElement('iframe'))`},
	{name: "nested frames", click: `let d = document; for (let i = 0; i < 300; i++) { const f = d.createElement('iframe'); (d.body || d.documentElement).append(f); if (!f.contentDocument) break; d = f.contentDocument; d.body.append('deep') }`},
	{name: "frames added and removed", click: `setInterval(() => { const f = document.createElement('iframe'); f.srcdoc = '<b>x</b>'; document.body.append(f); setTimeout(() => f.remove(), 3) }, 1)`},
	{name: "loop in a frame", click: `document.body.append(Object.assign(document.createElement('iframe'), {srcdoc: '<script>setTimeout(() => { for (;;); }, 200)</' + 'script>'}))`},
	{name: "frame that contains its page",
		click: `setInterval(() => document.body.append(Object.assign(document.createElement('iframe'), {src: '/?' + Math.random()})), 20)`},
	{name: "100,000 elements", click: `document.body.insertAdjacentHTML('beforeend', '<p>x</p>'.repeat(100000))`},
	{name: "deeply nested elements", click: `let e = document.body; for (let i = 0; i < 20000; i++) e = e.appendChild(document.createElement('div'))`},
	{name: "shadow roots", click: `for (let i = 0; i < 20000; i++) { const e = document.createElement('div'); e.attachShadow({mode: 'open'}).innerHTML = '<b>x</b>'; document.body.append(e) }`},
	{name: "100,000 attributes", click: `for (let i = 0; i < 100000; i++) document.body.setAttribute('a' + i, 'x'.repeat(100))`},
	{name: "a gigabyte of text", click: `const x = 'x'.repeat(1 << 24); for (let i = 0; i < 64; i++) document.body.append(x + i)`},
	{name: "50,000 slow style rules", click: `document.head.append(Object.assign(document.createElement('style'), {textContent: Array.from({length: 50000}, (_, i) => '.a' + i + ' * * :not(:has(b)) {color: red}').join('')})); document.body.insertAdjacentHTML('beforeend', '<p class=a1><i><b>x'.repeat(5000))`},
	{name: "canvases", click: `setInterval(() => { const c = document.body.appendChild(document.createElement('canvas')); c.width = c.height = 8000; c.getContext('2d').fillRect(0, 0, 8000, 8000) }, 20)`},
	{name: "animations", click: `for (let i = 0; i < 5000; i++) { const e = document.createElement('div'); e.textContent = 'x'; document.body.append(e); e.animate([{filter: 'blur(0)'}, {filter: 'blur(50px)'}], {duration: 100, iterations: Infinity}) }`},
	{name: "large SVG image", click: `document.body.insertAdjacentHTML('beforeend', '<svg width="30000" height="30000"><filter id="f"><feTurbulence baseFrequency="0.01" numOctaves="50"/></filter><rect width="30000" height="30000" filter="url(#f)"/></svg>')`},
	{name: "page scrolls by itself", load: `document.body.style.height = '1e6px'; setInterval(() => scrollBy(0, Math.random() * 1000 - 500), 1)`},
	{name: "endless navigation", click: `setTimeout(() => location = '/?' + Math.random(), 30)`},
	{name: "document rewritten in a loop",
		load: `setTimeout(() => setInterval(() => { document.open(); document.write('<p>x'); document.close() }, 5), 300)`},
	{name: "page sets bids", click: `document.body.insertAdjacentHTML('beforeend', '<p bid="0">x')`},
	{name: "page copies bids", click: `setInterval(() => { const e = document.querySelector('[bid]'); if (e && document.all.length < 500) document.body.append(e.cloneNode()) }, 1)`},
	{name: "page replaces observers", load: `window.MutationObserver = window.IntersectionObserver = class { observe() {} disconnect() {} }`},
	{name: "page replaces built-in functions",
		load: `for (const n of Object.getOwnPropertyNames(window)) { try { const p = window[n].prototype; for (const k of Object.getOwnPropertyNames(p)) try { p[k] = () => { throw 1 } } catch {} } catch {} }`},
	{name: "downloads", click: `setInterval(() => { const a = document.createElement('a'); a.download = 'x'; a.href = URL.createObjectURL(new Blob(['x'.repeat(1 << 20)])); a.click() }, 5)`},
	{name: "full screen and pointer lock",
		click: `setInterval(() => { document.documentElement.requestFullscreen().catch(() => 0); document.body.requestPointerLock() }, 5)`},
}

// hostileIntro is how docs/hostile-pages.md begins.
const hostileIntro = `# Hostile pages

This page shows what happens when web pages attack the browser that an agent uses: endless loops, floods of popups and messages, memory, dialogs,
downloads. Use it to see which pages can cost a score or time. [browser-safety.md](browser-safety.md) lists the protections behind it.

    EVALRUN_TEST_LOCAL=1 EVALRUN_TEST_BROWSER=1 go test ./scripts/attack -run TestHostilePages -update

This command runs the pages and writes their results here. It needs a browser and what the local sandbox needs (check with evalrun doctor).

The test runs four trials at a time, with harmless pages between the hostile ones. An action has a limit of 30 s. The test requires that each hostile
page gets a score, whatever it is, that each harmless page gets the full score, and that no step takes much longer than its limit. Scores of
slow pages depend on the machine and its load.

| column | meaning |
|---|---|
| longest step | time of the longest step, with its observation |
| result | status, outcome, reward, error class and flags of the trial. page_failed: the page hung or failed, and the episode ended with 0; expression_threw: the page broke the expression that grades it, which counts 0; no_reward: the browser was lost, also when the page was alone in it |
| attempts | more than 1: the browser was lost or held up, and the trial ran again in a browser of its own |
| harmless pages | those that ran at the same time, and how many of them got the full score |

| page | longest step | result | attempts | harmless pages |
|---|---|---|---|---|
`

// stepTime is what an action on a hostile page may take.
const stepTime = 30 * time.Second

// TestHostilePages plays hostile pages four at a time with innocent ones between them: each gets a
// score, no innocent one a lower one, and no step lasts much longer than it may. The table is
// docs/hostile-pages.md.
func TestHostilePages(t *testing.T) {
	if evalrun == "" || os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
		t.Skip("needs a browser and what the driver local needs; set EVALRUN_TEST_BROWSER=1 and EVALRUN_TEST_LOCAL=1")
	}
	pages := hostilePages
	if testing.Short() {
		pages = nil
		for i := 0; i < len(hostilePages); i += 9 {
			pages = append(pages, hostilePages[i])
		}
	}
	dir := t.TempDir()
	w := &work{dir: dir, tmp: filepath.Join(dir, "tmp"), verdicts: map[string]record.Verdict{}}
	if err := os.Mkdir(w.tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	var tasks, agent bytes.Buffer
	fmt.Fprintf(&tasks, "name: hostile\ntasks:\n")
	add := func(id, html, worker string, success string, acts ...string) {
		site := map[string]string{"index.html": html, "never": ""}
		if worker != "" {
			site["worker.js"] = worker
		}
		for name, text := range site {
			path := w.path(filepath.Join("sites", id, name))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintf(&tasks, "  - {id: %s, instruction: press it, browser: {site: sites/%s}, grade: {success: %q}}\n",
			id, id, success)
		fmt.Fprintf(&agent, "- task: %s\n  do:\n", id)
		for _, a := range acts {
			fmt.Fprintf(&agent, "    - browse: {code: %q, timeout: %v}\n", a, stepTime)
		}
	}
	// A hostile page is pressed twice: an episode is over with its success, and the first press
	// begins what the page and the agent do.
	const press = "document.querySelector('button').dataset.pressed === 'yes'"
	for i, p := range pages {
		if p.act == "" {
			p.act = "noop(500)"
		}
		html := fmt.Sprintf("<!DOCTYPE html><title>%s</title><body style='margin: 0'><button id='go' style='width: "+
			"100px; height: 40px'>press</button>\n"+
			"<script>go.addEventListener('click', () => { go.dataset.pressed = go.dataset.pressed ? 'yes' : 'once'; "+
			"setTimeout(() => { %s }, 10) });\n%s</script>", p.name, p.click, p.load)
		add(fmt.Sprintf("h%02d", i), html,
			"onfetch = e => { if (e.request.url.endsWith('never')) e.respondWith(new Promise(() => {})) }; "+
				"onactivate = e => e.waitUntil(clients.claim())",
			press, "noop(50)", "mouse_click(20, 20)", p.act, "noop(500)", "mouse_click(20, 20)", "noop(100)")
		if i%3 == 0 {
			add(fmt.Sprintf("n%02d", i),
				"<!DOCTYPE html><title>innocent</title><body style='margin: 0'><button style='width: 100px; "+
					"height: 40px' "+
					"onclick=\"this.dataset.pressed = 'yes'\">press</button>", "", press, "noop(3000)",
				"mouse_click(20, 20)", "noop(100)")
		}
	}
	for name, text := range map[string]string{"tasks.yaml": tasks.String(), "agent.yaml": agent.String()} {
		if err := os.WriteFile(w.path(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(evalrun, "run", "tasks:tasks.yaml", "--agent", "script:agent.yaml", "--workers", "4", "--set",
		"retries.attempts=4", "-o", w.path("run"), "--progress", "none")
	w.start(cmd, nil)
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%.3000s\n%.3000s", err, w.stdout.String(), w.stderr.String())
	}
	w.scan(t)
	lives, steps := readPages(t, w.path("run"))
	var rows strings.Builder
	for i, p := range pages {
		id := fmt.Sprintf("h%02d", i)
		got, why := w.trial(id)
		n, well := 0, 0
		for other, l := range lives {
			if mine := lives[id]; other[0] == 'n' && l.begun.Before(mine.ended) && mine.begun.Before(l.ended) {
				n++
				if g, _ := w.trial(other); strings.Contains(g, " 1") {
					well++
				}
			}
		}
		fmt.Fprintf(&rows, "| %s | %.1f s | %s | %d | %d of %d |\n", p.name, steps[id].Seconds(), got, lives[id].tries,
			well, n)
		if !strings.HasPrefix(got, "scored ") {
			t.Errorf("%s: %s: %s", p.name, got, why)
		}
		if steps[id] > stepTime+30*time.Second { // 10 s, and what a busy machine takes to write them down
			t.Errorf("%s: a step took %v", p.name, steps[id])
		}
	}
	for id := range lives {
		if got, why := w.trial(id); id[0] == 'n' && !strings.HasPrefix(got, "scored answered 1") {
			t.Errorf("innocent %s: %s: %s", id, got, why)
		}
	}
	t.Logf("\n%s", rows.String())
	if *update && !testing.Short() {
		text := hostileIntro + rows.String()
		if err := os.WriteFile("../../docs/hostile-pages.md", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A life is when a task's attempts began and ended.
type life struct {
	begun, ended time.Time
	tries        int
}

// readPages reads out of a run's journal when each task was played, and what its longest step took.
func readPages(t *testing.T, run string) (lives map[string]life, steps map[string]time.Duration) {
	t.Helper()
	lives, steps = map[string]life{}, map[string]time.Duration{}
	task := map[string]string{}
	acted := map[string]int64{} // by trial, attempt and event
	files, _ := filepath.Glob(filepath.Join(run, "journal/events/*.jsonl"))
	for _, f := range append([]string{filepath.Join(run, "journal/control.jsonl")}, files...) {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var l struct {
				E record.Entry `json:"e"`
			}
			if json.Unmarshal(line, &l) != nil {
				continue
			}
			switch e := l.E; e.Kind {
			case record.KindAttempt:
				var a record.Attempt
				if err := json.Unmarshal(e.Data, &a); err != nil {
					t.Fatal(err)
				}
				task[e.Trial] = a.Task
				x := lives[a.Task]
				if x.tries++; x.tries == 1 {
					x.begun = e.Time
				}
				lives[a.Task] = x
			case record.KindVerdict:
				x := lives[task[e.Trial]]
				x.ended = e.Time
				lives[task[e.Trial]] = x
			case record.KindEvent:
				var v struct {
					ID    int64  `json:"id"`
					Cause *int64 `json:"cause"`
					Mono  int64  `json:"mono_us"`
				}
				if err := json.Unmarshal(e.Data, &v); err != nil {
					t.Fatal(err)
				}
				key := func(id int64) string { return fmt.Sprint(e.Trial, e.Attempt, " ", id) }
				acted[key(v.ID)] = v.Mono
				if v.Cause != nil {
					d := time.Duration(v.Mono-acted[key(*v.Cause)]) * time.Microsecond
					steps[task[e.Trial]] = max(steps[task[e.Trial]], d)
				}
			}
		}
	}
	return lives, steps
}
