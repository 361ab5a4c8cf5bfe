package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalrun/evalrun/browsergym/obs"
	"golang.org/x/sync/errgroup"
)

// Packages for the reference's texts. BrowserGym accepts any lxml below 6; this is the last one,
// with libxml2 2.13.
var pythonPackages = []string{"lxml==5.4.0", "beautifulsoup4"}

const referencePackage = "browsergym-core==0.14.3" // without its dependencies for browsers

//go:embed reference.py
var referenceProgram string

// A sample is a page with the reference's output.
type sample struct {
	Kind  string `json:"kind"`
	HTML  string `json:"html"`
	DOM   string `json:"dom"`
	Prune string `json:"prune"`
}

// differential compares the texts of many pages with those of the reference, which runs in a
// separate Python process.
func (o *options) differential(ctx context.Context, c *tally) error {
	python, err := o.python(ctx)
	if err != nil {
		return err
	}
	ref, err := newReference(ctx, python)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s; seed %d\n", ref.version, o.seed)
	d := &differ{c: c, o: o, ref: ref, refused: map[string]int{}, shown: map[string]int{}}
	err = d.all(ctx)
	if e := ref.close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	for why, n := range d.refused {
		fmt.Fprintf(c.out, "%6d pages are refused by the reference: %s\n", n, why)
	}
	if o.sample != "" {
		return d.writeSample()
	}
	return nil
}

// python returns the Python of a virtual environment with the reference, which it creates if
// necessary.
func (o *options) python(ctx context.Context) (string, error) {
	python, err := filepath.Abs(filepath.Join(o.venv, "bin", "python"))
	if err != nil {
		return "", err
	}
	run := func(name string, arg ...string) error {
		cmd := exec.CommandContext(ctx, name, arg...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd, err, out)
		}
		return nil
	}
	if run(python, "-c", "import lxml.etree, bs4; from importlib.metadata import version as v; assert (v('lxml'), "+
		"v('browsergym-core')) == ('5.4.0', '0.14.3')") == nil {
		return python, nil
	}
	pip := []string{"-m", "pip", "install", "-q", "--disable-pip-version-check"}
	if err := run("python3", "-m", "venv", o.venv); err != nil {
		return "", err
	}
	if err := run(python, append(pip, pythonPackages...)...); err != nil {
		return "", err
	}
	return python, run(python, append(pip, "--no-deps", referencePackage)...)
}

// A reference is a Python process that generates texts.
type reference struct {
	version string
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	stderr  bytes.Buffer
}

func newReference(ctx context.Context, python string) (*reference, error) {
	r := &reference{cmd: exec.CommandContext(ctx, python, "-c", referenceProgram)}
	r.cmd.Stderr = &r.stderr
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = bufio.NewReaderSize(out, 1<<20)
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	if r.version, err = r.read(); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *reference) close() error {
	r.in.Close()
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("the reference: %w\n%s", err, r.stderr.Bytes())
	}
	return nil
}

func (r *reference) write(s string) error {
	_, err := fmt.Fprintf(r.in, "%08x%s", len(s), s)
	return err
}

func (r *reference) read() (string, error) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(r.out, head); err != nil {
		return "", fmt.Errorf("the reference's answer: %w\n%s", err, r.stderr.Bytes())
	}
	n, err := strconv.ParseUint(string(head), 16, 32)
	if err != nil {
		return "", err
	}
	raw := make([]byte, n)
	_, err = io.ReadFull(r.out, raw)
	return string(raw), err
}

// A page is one case.
type page struct{ kind, html string }

// texts are the results for one page, the DOM text and the pruned one: each is "=" followed by the
// text, or "!" followed by the name of an error.
type texts [2]string

var textKinds = [2]string{"dom", "prune"}

func ours(html string) (t texts) {
	var s obs.Snapshot
	s.Strings = []string{html, "#text"}
	s.Documents = make([]obs.Document, 1)
	n := &s.Documents[0].Nodes
	n.NodeType, n.NodeName, n.NodeValue, n.ParentIndex = []int{3, 3}, []int{1, 1}, []int{-1, 0}, []int{-1, 0}
	dom, err := obs.DOMText(&s, nil, obs.Options{})
	if err != nil {
		panic(err) // none of the options can cause an error
	}
	return texts{"=" + dom, "=" + obs.PruneHTML(html)}
}

func (r *reference) readTexts() (t texts, err error) {
	for i := range t {
		if t[i], err = r.read(); err != nil {
			break
		}
	}
	return t, err
}

func (r *reference) theirs(html string) (texts, error) {
	if err := r.write(html); err != nil {
		return texts{}, err
	}
	return r.readTexts()
}

// A differ compares pages. Of each kind it reports the first few differences, with the smallest
// page that shows them.
type differ struct {
	c       *tally
	o       *options
	ref     *reference
	refused map[string]int
	shown   map[string]int
	samples []sample
	nth     map[string]int
}

const shownDifferences = 3

// run compares all pages that produce yields.
func (d *differ) run(ctx context.Context, produce func(yield func(page) bool)) error {
	var wrong []page
	sent := make(chan page, 256)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		defer close(sent)
		produce(func(p page) bool {
			// JSON cannot carry invalid UTF-8: each invalid byte becomes U+FFFD
			if !utf8.ValidString(p.html) {
				p.html = string([]rune(p.html))
			}
			select {
			case sent <- p:
				err = d.ref.write(p.html)
			case <-ctx.Done():
				err = ctx.Err()
			}
			return err == nil
		})
		return err
	})
	g.Go(func() error {
		for p := range sent {
			want, err := d.ref.readTexts()
			if err != nil {
				return err
			}
			if d.compare(p, want) {
				wrong = append(wrong, p)
			}
		}
		return ctx.Err()
	})
	if err := g.Wait(); err != nil {
		return err
	}
	for _, p := range wrong {
		if err := d.show(p); err != nil {
			return err
		}
	}
	return nil
}

// compare records the comparison of a page, and reports whether to show it.
func (d *differ) compare(p page, want texts) bool {
	got := ours(p.html)
	bad, whole := false, true
	for i, kind := range textKinds {
		if why, no := strings.CutPrefix(want[i], "!"); no {
			d.refused[why]++
			whole = false
			continue
		}
		field := p.kind + ", " + kind
		if got[i] != want[i] {
			bad = true
			d.c.count(field, false)
			continue
		}
		d.c.count(field, true)
	}
	if d.o.sample != "" && whole {
		d.keep(p, want)
	}
	if !bad || d.shown[p.kind] >= shownDifferences {
		return false
	}
	d.shown[p.kind]++
	return true
}

// count counts a field whose difference is shown elsewhere.
func (c *tally) count(field string, equal bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rows[field]
	if r == nil {
		r = &row{}
		c.rows[field] = r
	}
	r.n++
	if equal {
		r.equal++
	} else {
		c.unexplained++
	}
}

// longest is the maximum length of a page that is reduced, in characters.
const longest = 50_000

// show prints the smallest part of a page that still differs.
func (d *differ) show(p page) error {
	differs := func(html string) (int, texts, texts, error) {
		got := ours(html)
		want, err := d.ref.theirs(html)
		for i := range got {
			if strings.HasPrefix(want[i], "=") && got[i] != want[i] {
				return i, got, want, err
			}
		}
		return -1, got, want, err
	}
	html := []rune(p.html)
	size := len(html) / 2
	if len(html) > longest {
		size = 0
	}
	for size > 0 {
		cut := false
		for at := 0; at < len(html); {
			try := append(append([]rune{}, html[:at]...), html[min(len(html), at+size):]...)
			i, _, _, err := differs(string(try))
			if err != nil {
				return err
			}
			if i >= 0 {
				html, cut = try, true
			} else {
				at += size
			}
		}
		if !cut || size > len(html) {
			size = min(size/2, len(html))
		}
	}
	i, got, want, err := differs(string(html))
	if err != nil {
		return err
	}
	if i < 0 {
		return errors.New("a difference does not come again: " + strconv.Quote(p.html))
	}
	page := strconv.Quote(string(html[max(0, len(html)-longest/50):]))
	if len(html) > longest/50 {
		page = fmt.Sprintf("%d characters that end with %s", len(html), page)
	}
	fmt.Fprintf(d.c.out, "%s, %s: of\n  %s\n%s\n", p.kind, textKinds[i], page, firstDifference(got[i], want[i]))
	return nil
}

// keep adds a page to the sample: every nth short page of a kind.
func (d *differ) keep(p page, want texts) {
	if d.nth == nil {
		d.nth = map[string]int{}
	}
	n := sampleEvery[p.kind]
	if n == 0 || len(p.html)+len(want[0]) > 8000 {
		return
	}
	if d.nth[p.kind]++; (d.nth[p.kind]-1)%n == 0 {
		d.samples = append(d.samples, sample{p.kind, p.html, want[0][1:], want[1][1:]})
	}
}

func (d *differ) writeSample() error {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	e := json.NewEncoder(z)
	e.SetEscapeHTML(false)
	for _, s := range d.samples {
		if err := e.Encode(s); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(d.o.sample, b.Bytes(), 0o644)
}
