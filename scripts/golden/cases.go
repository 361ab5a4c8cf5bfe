package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// sampleEvery lists the kinds of pages; every nth page of a kind goes into the sample.
var sampleEvery = map[string]int{"corners": 1, "references": 80, "numbers": 20, "pairs": 700, "random": 500,
	"shops": 40}

// all compares every kind of page.
func (d *differ) all(ctx context.Context) error {
	names, err := d.ref.names()
	if err != nil {
		return err
	}
	real, err := d.o.realPages(ctx)
	if err != nil {
		return err
	}
	for _, x := range []struct {
		kind    string
		produce func(yield func(string) bool)
	}{
		{"corners", corners},
		{"references", func(yield func(string) bool) { references(names, yield) }},
		{"numbers", numbered},
		{"pairs", pairs},
		{"random", d.o.randomPages},
		{"shops", d.o.shopPages},
		{"chunks", d.o.chunkPages},
		{"real", real},
	} {
		if !d.o.only.MatchString(x.kind) {
			continue
		}
		err := d.run(ctx, func(yield func(page) bool) {
			x.produce(func(s string) bool { return yield(page{x.kind, s}) })
		})
		if err != nil {
			return fmt.Errorf("%s: %w", x.kind, err)
		}
	}
	return nil
}

// names returns the names of all HTML 5 character references, without semicolons.
func (r *reference) names() ([]string, error) {
	list, err := exec.Command(r.cmd.Path, "-c",
		"import html.entities as e; print(*sorted({n.rstrip(';') for n in e.html5}))").Output()
	return strings.Fields(string(list)), err
}

var followers = []string{"", " ", "x", "=", "1", "&", ";x", "é", "<", "\"", "'", "-", ".", "\x00", "\n", "/", ">"}

// references yields each name in text and in attributes, with and without its semicolon, and with
// various following characters.
func references(names []string, yield func(string) bool) {
	names = append(slices.Clone(names), "nope", "AMP", "Lt", "é", "amp5", "a-b", "a.b", "a:b", "_a", ":", "-",
		"x"+strings.Repeat("y", 200))
	for _, n := range names {
		var b strings.Builder
		for _, end := range []string{"", ";"} {
			for _, f := range followers {
				fmt.Fprintf(&b, "<p title=\"&%s%s%s\" lang='&%[1]s%[2]s' id=&%[1]s%[2]s>&%[1]s%[2]s%[3]s</p>", n, end,
					strings.ReplaceAll(f, `"`, ""))
			}
		}
		if !yield(b.String()) || !yield("&"+n) || !yield("&"+n+";") ||
			!yield(`<a href="/list?page=2&`+n+`=us&order=asc">t</a>`) {
			return
		}
	}
}

// numbered yields numeric references to all unusual characters.
func numbered(yield func(string) bool) {
	var all []string
	add := func(v uint64) {
		for _, f := range []string{"&#%d", "&#x%x", "&#X%X", "&#0%d"} {
			all = append(all, fmt.Sprintf(f, v))
		}
	}
	for v := range uint64(0x300) {
		add(v)
	}
	for _, v := range []uint64{0x2028, 0x3000, 0xd7ff, 0xd800, 0xdbff, 0xdc00, 0xdfff, 0xe000, 0xfdd0, 0xfdef, 0xfeff,
		0xfffd, 0xfffe, 0xffff, 0x10000, 0x1f600, 0x1fffe, 0x1ffff,
		0x10fffe, 0x10ffff, 0x110000, 0x110001, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, 0x100000041,
		0xffffffffffffffff} {
		add(v)
	}
	for v := uint64(0x400); v < 0x110000; v += 1021 {
		add(v)
	}
	all = append(all, "&#", "&#x", "&#X", "&#xg", "&#a", "&#-1", "&#+1", "&# 1", "&#;", "&#x;", "&#x0x41",
		"&#99999999999999999999999999", "&#x41g", "&#65g", "&##65")
	for part := range slices.Chunk(all, 8) {
		var b strings.Builder
		for _, r := range part {
			for _, end := range []string{"", ";", "x", " ", "<", ";;"} {
				fmt.Fprintf(&b, "<p title=\"a%s%sb\" id=%[1]s%[2]s>a%[1]s%[2]sb</p>", r, end)
			}
		}
		if !yield(b.String()) {
			return
		}
	}
}

// elements are the elements of HTML 4, HTML 5 and libxml2, and some unknown ones.
var elements = strings.Fields(`a abbr acronym address applet area article aside audio b base basefont bdi bdo bgsound big blink blockquote body br
	button canvas caption center cite code col colgroup command content data datalist dd del details dfn dialog dir div dl dt element em embed
	fieldset figcaption figure font footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html i iframe image img input ins isindex
	kbd keygen label layer legend li link listing main map mark marquee math menu menuitem meta meter multicol nav nextid nobr noembed noframes
	noscript object ol optgroup option output p param path picture plaintext portal pre progress q rb rp rt rtc ruby s samp script search section
	select shadow slot small source spacer span strike strong style sub summary sup svg table tbody td template textarea tfoot th thead time title
	tr track tt u ul var video wbr xmp x-card my:tag unknown`)

// pairs yields every element inside every element.
func pairs(yield func(string) bool) {
	for _, a := range elements {
		for _, b := range elements {
			if !yield(fmt.Sprintf("<div><%s>1<%s>2</%[2]s>3</%[1]s>4</div>5", a, b)) ||
				!yield(fmt.Sprintf("<%s><%s>t", a, b)) {
				return
			}
		}
	}
}

// corners yields hand-written cases for each rule.
func corners(yield func(string) bool) {
	blanks := strings.Repeat(" ", 1001)
	for _, s := range []string{
		"", " ", "x", "xy", "<", "&", "a<", "a&", "\x00", "\x00x", "<p>x", "a < b", "a<1", "<3", "<>", "< p>", "</",
		"</>", "</ p>x", "</p>", "</p>x", "<p></>x", "<p></ b>x", "<p></3>x",
		`<a href="/list?page=2&region=us&order=asc&section=4">t</a>`, "<!DOCTYPE html>x", "<!DOCTYPE html>xy",
		"<!DOCTYPE html><p>x", "<!doctype>", "<!DOCTYPE html SYSTEM 'a'>y<p>",
		`<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.01//EN" "http://www.w3.org/TR/html4/strict.dtd"><body> <p>x</p> </body>`, `<!DOCTYPE html PUBLIC 'a' 'b' x>y<p>`, `<!DOCTYPE a PUBLIC "ä">x<p>`,
		`<!DOCTYPE a SYSTEM "éa">x<p>`, "<!DOCTYPE a SYSTEM \"a\r\nb\">x<p>", "<!DOCTYPE a SYSTEM 'x",
		`<!DOCTYPE "x>y">z<p>`, "<!DOCTYPE ñandú>x<p>", "<!DOCTYPE a×b>x<p>", "<!DOCTYPE html PUBLIC>x<p>",
		"<!DOCTYPE html SYSTEM>x<p>",
		"<p>a<!doctype html>b", "<pre><!doctype html>b</pre>", "<!", "<!x", "<!xx>y", "<!xxxxxxxx>y", "<p><!x",
		"<p>a<!b>c", "<p><![CDATA[a>b]]>c", "<p><!CDATA[[a]]>c", "<!-- a --><p>", "<!-- a", "<p>x<!-- a",
		"<p>x<!-->y-->z",
		"<p>x<!--->y-->z", "<p>x<!---->y", "<p>x<!-- a --!>b-->c", "<p>x<!--!>b-->c", "<p>x<!----!>c",
		"<p>x<!-- a--b -- -->c", "<p>x<!--\n-->y<!-- \t-->", "<pre><!-- --></pre>", "<p>x<!--a\x00b\x01-->c",
		"<p>x<!--a-->\n<!--b-->",
		"<html></html>\n<!--a-->\n<!--b-->", "<html></html><!--a--><!--b-->x", "<html></html> x<p>y", "<html></html>x",
		"<html></html><?a b?>", "<html></html>\n\n", "<p>a</p></body></html>\n<p>b</p>", "<p>a</body>b</html>c",
		"<?xml version='1.0'?><p>x", "<?a?>x", "<?a>x", "<?>x<p>", "<?1 b>x", "<p><? php echo ?>x",
		"<p>a<?php echo 1 > 2 ?>b", "<p><?é b>c", "<p><?aé b>c", "<p><?a×b c>d", "<p><?a\x00b>c", "<p><?a b",
		"<p><?a  \n b>c",
		"<p a=1 a=2 A=3>", "<p a='1' b=\"2\" c=3 d e=>", "<p a = '1' b= 2>", "<p a=1/>x", "<p a/>x", "<p/>x", "<br/>x",
		"<br>x</br>y", "<p / a=1>", "<p /a>", "<p =a>", "<p \"a\" b>", "<p 1=2 b>", "<p a=\"x>y\">z", "<p a=\"x>y>z",
		"<p a='>x</p>'>y",
		"<p a=\"1\"b=\"2\">", "<p a=x\"y>", "<p a=<b>>c", "<p a='&#0;b'>", "<p a='x&#0;y&#65;'>", "<p a='\x01\uffff'>",
		"<p a=a\x00b=c>d", "<p\x00a=1>x", "<br\x00>x<p>y", "<p a='x\x00y'>z", "<p a='\r\n\t'>", "<p é=1 b=2>",
		"<p aé=1>", "<p .a=1 _b=2 :c=3 -d=4>",
		"<p class=' a\tb\u00a0c '>", "<p class=''>", "<td headers='a  b'>", "<a rel=' a b ' rev=' a '>",
		"<area rel=' a'>", "<output for=' a  b'>", "<label for=' a  b'>", "<iframe sandbox=' a'>", "<icon sizes=' a'>",
		"<object archive=' a'>",
		"<" + strings.Repeat("a", 99) + ">x", "<" + strings.Repeat("a", 100) + ">x",
		"<" + strings.Repeat("a", 101) + " b=1>x", "<p " + strings.Repeat("a", 150) + "=1>x",
		"</" + strings.Repeat("a", 150) + ">x", "<P CLASS=A>x</P>", "<MY:Tag>x</my:TAG>",
		"<meta charset=latin1>é", "<meta charset>",
		"<meta http-equiv=Content-Type content='text/html; charset=latin1'>é",
		"<meta http-equiv=content-type content='a;\n charset=x;charset=y'>",
		"<meta content='charset=x' http-equiv=refresh>",
		"<meta http-equiv=content-type content='x charset=y\ncharset=z'>", "<html a=1><html b=2>x</html>y</html>z",
		"<head><head>x</head>", "<body a=1><body b=2>x</body>y</body>z", "<body/>x", "<p><body/>x", "<p><html/>x</p>y",
		"<div><head/>y",
		"<body><p>x</html>y</body>z", "<title>a<b>c</title>", "<title>a</title>x<title>b</title>", "<link><p>x<link>",
		"<script>a<b>&amp;</b></script>x", "<script>a</scriptx>b</script>", "<script></b>a</script>b", "<script>a",
		"<script></", "<script><",
		"<script>x</SCRIPT >y", "<style>a</script>b</style>c", "<script>a\x00b\x01c</script>", "<script/>x",
		"<style></style>x", "<script><!-- </script> -->x", "<textarea><b>x</textarea>y", "<textarea>\nx</textarea>",
		"<plaintext>a<b>c", "<xmp><b>x</xmp>",
		"<noscript><p>x</noscript>", "<head><noscript><p>x", "<template><p>x</template>",
		"<svg><path d=''/><a>x</a></svg>", "<b><p>x</b>y</p>", "<a>x<table>y", "<p><table><tr><td>x<p>y</table>z",
		"<table><td>x<tr><th>y<tbody>z", "<ul><li>a<li>b<ul><li>c</ul><li>d</ul>",
		"<dl><dt>a<dd>b<dt>c", "<select><option>a<option>b<optgroup><option>c</select>", "<form><form>x</form>y",
		"<h1><h2>x</h1>y", "<div><p>x</div>y</p>", "<table></div></table>x", "<div><table><tr><td></div>x",
		"<p><div></p>x", "<td></tr>x", "<b><i>x</b>y</i>z",
		"<html> <p>x", "<html>" + blanks + "<p>x", "<html>" + blanks + "x", blanks + "<p>x",
		"<html><head>" + blanks + "</head>x", "<html>" + blanks + "&amp;", "<html> &amp;", "<html>\x00 <p>",
		"<html>" + blanks + "\x00<p>", "<head>x", "<html>x", "<html><!--a-->x",
		"<head> x</head>", "<html> \x01 <p>", "<html>\x01<p>", "\x01\x00", "></body>&#\x00",
		"<frameset><frame></frameset>x", "<noframes>x", "<p>a\x00b", "<p>\x00ab", "<p>&amp;\x00b",
		"<p>a\x01b\x0cc\u0085d", "<p>a\r\nb\rc", "<p>\ufeff", "\ufeffx", "\ufeff\ufeffx", "<p>\ufffe\uffff\ufffd",
		"<pre>\n a <b> c </b>\n</pre> d", "<pre></pre>", "<pre><pre>a</pre> b </pre> c", "<div bid=1></div>",
		"<div bid=1> </div>", "<div bid=1><span bid=2></span></div>", "<div bid=1 a=2></div>",
		"<p bid=1>x<i bid=2>y</i>z</p>", "<i bid=1><script>x</script></i>",
		"<p bid=1><br></p>", "<div bid=1><!-- a --!></div>", "<a title='\"'>", "<a title=\"'\">", "<a title='\"&#39;'>",
		"<p>&lt;b&gt;&amp;amp;</p>", "<::marker></::marker>x", "<p>a<::before></::before>b", "<p>x\u00a0\u3000</p>",
		"<p>\x1c\x1dx\x1e</p>",
		strings.Repeat("<b>", 400) + "x" + strings.Repeat("</b>", 400), strings.Repeat("<div><p>", 300) + "x",
		"<p>" + strings.Repeat("x", 3000) + "\x01" + strings.Repeat("é", 3000),
		"<p " + manyAttrs(100) + manyAttrs(60) + ">x",
		"<p>&" + strings.Repeat("a", 60_000) + ";x", "<p>&" + strings.Repeat("é", 24_999) + "x;y",
		"<p>&" + strings.Repeat("é", 25_001) + "x;y", "<p>&" + strings.Repeat("x", 49_999) + "éé;y",
	} {
		if !yield(s) {
			return
		}
	}
}

func manyAttrs(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "a%d=%[1]d ", i)
	}
	return b.String()
}

// A scribe writes random pages, many of them broken.
type scribe struct {
	*rand.Rand
	b      strings.Builder
	broken bool
	depth  int
}

func (s *scribe) pick(from []string) string { return from[s.IntN(len(from))] }
func (s *scribe) one(n int) bool            { return s.IntN(n) == 0 }

var (
	words = strings.Fields("Cart Sign-in search the a of 3.50€ pear naïve 日本 x y ½ — « » l'eau \u00a0 \u200b &amp; " +
		"&lt;b&gt; &nbsp; &copy 2<3 a&b R&D &region; &#38; &#x3c &#150; &check; &frac12; &apos;")
	odd = []string{"<", "&", ">", "\x00", "\x01", "\x1f", "\ufffe", "\xff", "\xed\xa0\x80", "\r", "\r\n", "\x0c",
		"<<", "</", "</>", "<!", "<?", "<!--", "-->", "--!>", "]]>", "<![CDATA[", "/>", "=", "\"", "'", "&#", "&#x",
		"<é>", "<1>", "< b>", "</ b>", "<a", "<p ", "<br\x00"}
	attrs = strings.Fields("class id bid href title rel style data-x checked aria-label onclick accesskey headers " +
		"for charset http-equiv content xml:lang é 1a :k .c _d A")
)

func (s *scribe) text() {
	for range s.IntN(5) {
		if s.broken && s.one(12) {
			s.b.WriteString(s.pick(odd))
		}
		s.b.WriteString(s.pick(words))
		s.b.WriteString(s.pick([]string{" ", " ", "\n", "", "\t", "  "}))
	}
	if s.one(60) {
		s.b.WriteString(strings.Repeat(s.pick([]string{" ", "x", "é", "\n", "日"}), 990+s.IntN(30)))
	}
}

func (s *scribe) attributes() {
	for range s.IntN(4) {
		s.b.WriteString(s.pick([]string{" ", " ", " ", "\n", "  ", "\t"}))
		if s.broken && s.one(25) {
			s.b.WriteString(s.pick(odd))
		}
		s.b.WriteString(s.pick(attrs))
		if s.one(5) {
			continue
		}
		s.b.WriteString(s.pick([]string{"=", "=", "=", " = ", "= "}))
		q := s.pick([]string{`"`, `"`, "'", ""})
		s.b.WriteString(q)
		for range s.IntN(3) {
			v := s.pick(words)
			if s.broken && s.one(15) {
				v = s.pick(odd)
			}
			if q == "" {
				s.b.WriteString(v)
			} else {
				s.b.WriteString(v + " ")
			}
		}
		if !s.broken || !s.one(25) {
			s.b.WriteString(q)
		}
	}
}

func (s *scribe) element() {
	name := s.pick(elements)
	if s.one(3) {
		name = s.pick([]string{"div", "p", "a", "span", "b", "table", "tr", "td", "ul", "li", "form", "h1", "pre",
			"body", "head", "html", "script"})
	}
	if s.one(20) {
		name = strings.ToUpper(name)
	}
	s.b.WriteString("<" + name)
	s.attributes()
	if s.broken && s.one(30) {
		s.b.WriteString(s.pick([]string{"", "\x00", "/", "<", "\""}))
	} else {
		s.b.WriteString(s.pick([]string{">", ">", ">", ">", ">", ">", ">", " >", "/>", " />"}))
	}
	s.depth++
	if s.depth < 60 {
		s.nodes(s.IntN(5))
	}
	s.depth--
	switch {
	case s.broken && s.one(8):
	case s.broken && s.one(8):
		s.b.WriteString("</" + s.pick(elements) + ">")
	case s.broken && s.one(30):
		s.b.WriteString("</" + name)
	default:
		s.b.WriteString("</" + name + ">")
	}
}

func (s *scribe) nodes(n int) {
	for range n {
		if s.b.Len() > 4000 {
			return
		}
		switch k := s.IntN(20); {
		case k < 9:
			s.element()
		case k < 17:
			s.text()
		case k == 17:
			s.b.WriteString(s.pick([]string{"<!-- c -->", "<!---->", "<!-- a--b -->", "<!-- -->",
				"<!--[if IE]><p>x</p><![endif]-->", "<!doctype html>", "<![CDATA[x<y]]>", "<?php a ?>", "<!x>",
				"<!--a--!>"}))
		case k == 18:
			e := s.pick([]string{"script", "style", "textarea", "title", "plaintext", "xmp"})
			s.b.WriteString("<" + e + ">" +
				s.pick([]string{"a<b && c>d", "</b>", "<!-- x -->", "'</p>'", "&amp;", "", "\nx\n"}) + "</" + e + ">")
		default:
			if s.broken {
				s.b.WriteString(s.pick(odd))
			}
		}
	}
}

// salad writes bits of markup in random order.
func (s *scribe) salad() {
	for range 1 + s.IntN(40) {
		switch s.IntN(9) {
		case 0:
			s.b.WriteString(s.pick(words))
		case 1, 2:
			s.b.WriteString("<" + s.pick(elements))
		case 3:
			s.b.WriteString("</" + s.pick(elements))
		case 4, 5:
			s.b.WriteString(">")
		case 6:
			s.b.WriteString(s.pick(attrs) + s.pick([]string{"", "=", "='", "=\"", " = "}))
		case 7:
			s.b.WriteString(s.pick(odd))
		default:
			s.b.WriteString(s.pick([]string{" ", "\n", "/", "-", "!", "?", ";", "doctype", "<!DOCTYPE ", "PUBLIC ",
				"SYSTEM ", "script", "<script>", "</script>", "<body>", "</body>", "</html>", "<head>", "<html>", "é",
				"1"}))
		}
	}
}

// randomPages yields well-nested, misnested and broken pages; some are text with bids, like the
// texts of observations.
func (o *options) randomPages(yield func(string) bool) {
	for i := range o.trees {
		s := &scribe{Rand: rand.New(rand.NewPCG(o.seed, uint64(i))), broken: i%4 != 0}
		if i%5 == 0 {
			s.b.WriteString(s.pick([]string{"<!DOCTYPE html>", "<html><head>", "<html>\n<body>", " ", "\n<html>",
				"<?xml version=\"1.0\"?>", "<!-- x -->", "\ufeff"}))
		}
		if i%4 == 3 {
			s.salad()
		} else {
			s.nodes(1 + s.IntN(8))
		}
		if i%7 == 0 {
			s.b.WriteString(s.pick([]string{"</body></html>", "</html>\n", "</html>\n<!-- x -->\n<p>y",
				"</body>x</html>y"}))
		}
		h := s.b.String()
		if s.broken && s.one(6) && len(h) > 0 { // truncate at a random place
			h = h[:s.IntN(len(h))]
		}
		if !yield(h) {
			return
		}
	}
}

// shopPages yields pages like those of shops and forums: lists of products and comments, with
// addresses that have queries.
func (o *options) shopPages(yield func(string) bool) {
	for i := range 200 {
		r := &scribe{Rand: rand.New(rand.NewPCG(o.seed, uint64(i)))}
		b := &r.b
		word := func() string { return strings.Trim(html.EscapeString(r.pick(words)), " ") }
		fmt.Fprintf(b, "<!doctype html>\n<html lang=en>\n<head prefix=\"og: http://ogp.me/ns#\"><meta "+
			"charset=\"utf-8\"/><title>%s</title>\n<script>var a = {\"x\": 1 < 2 && \"</p>\"};</script>"+
			"<link rel=\"stylesheet  preload\" href=\"/static/version%d/a.css?x=1&copy=2\"></head>\n<body "+
			"class=\"catalog  category-view \">\n", word(), i)
		if i%2 == 0 {
			fmt.Fprintf(b, "<div class=toolbar><select name=order>")
			for range 4 {
				fmt.Fprintf(b, "<option value=%s>%s", word(), word())
			}
			fmt.Fprintf(b, "</select></div><ol class=\"products list items\">")
			for k := range 5 + r.IntN(20) {
				fmt.Fprintf(b, "\n<li class=\"item product\"><div class=\"info\" data-container='{\"id\": %d}'><a "+
					"href=\"https://shop.example/list?p=%[1]d&region=us&order=asc&section=4&lang=en\" title=\"%s\">"+
					"<h2>%s<p>%s</h2></a><span class=price data-price=%[1]d>$%[1]d.99</span>\n<form method=post "+
					"action='/cart/add?product=%[1]d&uenc=%[1]d'><input type=hidden name=k value=\"%s\"><button "+
					"type=submit>Add to Cart</button></form></div>", k, word(), word(), word(), word())
			}
			fmt.Fprintf(b, "</ol><table><tr><td>Total<td>%d<tfoot><tr><th>x</table>", i)
		} else {
			for k := range 3 + r.IntN(15) {
				fmt.Fprintf(b, "<article class='comment' id=comment_%d><h1><a "+
					"href=/f/books/%[1]d/%s?sort=new&not=1>%s</a></h1><p>%s<blockquote>%s</blockquote>%s<br>%s</p><nav><ul><li><a href=#>reply</a><li><a>%s</a></ul></nav>", k, word(), word(), word(), word(), word(), word(), word())
			}
			b.WriteString(strings.Repeat("</article>", r.IntN(8)))
		}
		fmt.Fprintf(b, "\n<footer>&copy; %d Shop &middot; <a href=\"?a=1&amp;b=2\">x</a></footer></body>\n</html>\n", i)
		if !yield(b.String()) {
			return
		}
	}
}

// chunkPages yields pages with something unusual at the boundary between two chunks of lxml's
// output.
func (o *options) chunkPages(yield func(string) bool) {
	const chunk = 1 << 19
	for i, s := range []string{"<p title='a b'>x</p>y", "&amp;&region;", "<!-- a -- b -->c", "<!--!>b-->c",
		"<script>a</b>c</script>d", "</p>x</b>", "<!doctype html>x", "<?a b?>c", "é日😀", "</html> x",
		"</html>\n<!--a-->\n<!--b-->\nc", "<p a=\"x>y\" b='>'>z", "<p a='", "<![CDATA[a]]>b", "text without tags"} {
		for cut := range 1 + len(s) {
			if len(s) > 12 && (cut+i)%3 != 0 {
				continue
			}
			fill := "x"
			if (cut+i)%2 == 0 {
				fill = "é"
			}
			if !yield("<html><body>" + strings.Repeat(fill, chunk-len("<html><body>")-cut) + s + "<u>end</u>") {
				return
			}
		}
	}
	// longer than libxml2 accepts
	for _, s := range []string{`<p a="%s">y<p b=c>z`, "<p><!--%s-->y", "<p><?a %s>y"} {
		for _, fill := range []string{"x", "é"} {
			if !yield(fmt.Sprintf(s, strings.Repeat(fill, 10_000_010/len(fill)))) {
				return
			}
		}
	}
	yield(strings.Repeat("x", chunk-999) + strings.Repeat("<b title='é'>y</b>", 500))
}

const wantPages = 500

// docPackages are the Debian documentation packages that real pages are taken from.
var docPackages = strings.Fields("git-doc bash-doc sqlite3-doc apache2-doc debian-handbook python3.11-doc")

// realPages yields the pages of the directory, of MiniWoB++ and of the recordings; from the
// directory at most wantPages, evenly spaced.
func (o *options) realPages(ctx context.Context) (func(yield func(string) bool), error) {
	if !o.only.MatchString("real") {
		return nil, nil
	}
	if _, err := os.Stat(o.pages); errors.Is(err, fs.ErrNotExist) {
		if err := o.download(ctx); err != nil {
			return nil, err
		}
	}
	find := func(folder string) (files []string, err error) {
		err = filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
			if name := strings.ToLower(path); err == nil && e.Type().IsRegular() &&
				(strings.HasSuffix(name, ".html") || strings.HasSuffix(name, ".htm") ||
					strings.Contains(name, ".html.")) {
				files = append(files, path)
			}
			return err
		})
		return files, err
	}
	files, err := find(o.pages)
	if err != nil {
		return nil, err
	}
	var chosen []string
	for i := range min(wantPages, len(files)) {
		chosen = append(chosen, files[i*len(files)/min(wantPages, len(files))])
	}
	for _, folder := range []string{o.miniwob, filepath.Join(o.dir, "pages")} {
		if folder == "" || folder == "pages" {
			continue
		}
		more, err := find(folder)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, more...)
	}
	if len(chosen) < wantPages {
		return nil, fmt.Errorf("%d real pages are too few; %s should have at least %d", len(chosen), o.pages, wantPages)
	}
	return func(yield func(string) bool) {
		for _, f := range chosen {
			raw, err := os.ReadFile(f)
			if err != nil || !yield(string(raw)) {
				return
			}
		}
	}, nil
}

// download fills the directory of pages.
func (o *options) download(ctx context.Context) error {
	tmp := o.pages + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}
	run := func(name string, arg ...string) error {
		cmd := exec.CommandContext(ctx, name, arg...)
		cmd.Dir = tmp
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd, err, out)
		}
		return nil
	}
	got := map[string]error{}
	for _, name := range docPackages {
		if err := run("apt-get", "-q", "download", name); err != nil {
			got[name] = err // a different release may lack it
		}
	}
	if len(got) == len(docPackages) {
		return fmt.Errorf("real pages: %w; name a folder by -pages", slices.Collect(maps.Values(got))[0])
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil {
		return err
	}
	for _, deb := range debs {
		if err := run("dpkg-deb", "-x", filepath.Base(deb), "."); err != nil {
			return err
		}
	}
	return os.Rename(tmp, o.pages)
}
