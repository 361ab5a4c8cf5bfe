package libxml

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A tagID identifies an element's name: those below len(tags) are in the tables, others are
// numbered as they occur.
type tagID int32

// A tagInfo describes a name.
type tagInfo struct {
	name    string
	void    bool  // has no content for the parser (html40ElementTable)
	short   bool  // printed without an end tag if empty (HTMLTreeBuilder.DEFAULT_EMPTY_ELEMENT_TAGS)
	rank    uint8 // priority against end tags of other elements (htmlEndPriority)
	endedBy idSet // start tags that end the element if it is the current one (htmlStartClose)
}

const ranks = 8

type idSet [3]uint64

func (s *idSet) add(id tagID)      { s[id/64] |= 1 << (id % 64) }
func (s *idSet) has(id tagID) bool { return s[id/64]>>(id%64)&1 != 0 }

// Names used by the rules.
const (
	tagHTML tagID = iota
	tagHead
	tagBody
	tagP
	tagScript
	tagStyle
	tagMeta
	tagLink
	tagTitle
	tagBase
	tagNoframes
	tagFrame
	tagFrameset
	tagPre
	tagTextarea
)

const ruled = "html head body p script style meta link title base noframes frame frameset pre textarea"

// names lists other names, so that they need not be numbered for each page.
const names = `
	a abbr acronym address applet area article aside audio b basefont bdo big blockquote br button canvas caption
	center cite code col colgroup data dd del details dfn dialog dir div dl dt em embed fieldset figcaption figure
	font footer form g h1 h2 h3 h4 h5 h6 header hr i iframe img input ins isindex kbd label legend li listing main
	map mark math menu meter nav noscript object ol optgroup option output param path picture progress q rp rt
	ruby s samp section select slot small source span strike strong sub summary sup svg table tbody td template
	tfoot th thead time tr track tt u ul var video wbr xmp`

const void = "area base basefont br col frame hr img input isindex link meta param"

const short = `area base br col embed hr img input keygen link menuitem meta param source track wbr
	basefont bgsound command frame image isindex nextid spacer`

// rankOf lists the names of each rank. All other names have rank 0.
var rankOf = [ranks]string{1: "div", 2: "td th", 3: "tr", 4: "thead tbody tfoot", 5: "table", 6: "head body", 7: "html"}

var tags, tagIDs = func() ([]tagInfo, map[string]tagID) {
	// Which start tags (second) end which elements (first).
	ends := []struct{ open, by string }{
		{"a", "a fieldset table td th"},
		{"address", "dd dl dt form li ul"},
		{"b i", "center p td th"},
		{"big s small strike tt", "p"},
		{"caption col", "col colgroup tbody tfoot thead tr"},
		{"colgroup", "colgroup tbody tfoot thead tr"},
		{"dd", "dt"},
		{"dir menu", "dd dl dt form ul"},
		{"dl", "form li"},
		{"dt", "dd dl"},
		{"font", "center td th"},
		{"form hr ol", "form"},
		{"h1 h2 h3 h4 h5 h6", "fieldset form li p table"},
		{"head", "a abbr acronym address b bdo big blockquote body br center cite code dd dfn dir div dl dt em" +
			" fieldset font form frameset h1 h2 h3 h4 h5 h6 hr i iframe img kbd li listing map menu ol p pre" +
			" q s samp small span strike strong sub sup table tt u ul var xmp"},
		{"legend", "fieldset"},
		{"li", "li"},
		{"link style title", "body frameset"},
		{"listing pre xmp", "dd dl dt fieldset form li table ul"},
		{"option", "optgroup option"},
		{"p", "address blockquote body caption center col colgroup dd dir div dl dt fieldset form frameset h1" +
			" h2 h3 h4 h5 h6 head hr li listing menu ol p pre table tbody td tfoot th title tr ul xmp"},
		{"script", "noscript"},
		{"span", "td th"},
		{"tbody thead", "tbody tfoot"},
		{"td th", "tbody td tfoot th tr"},
		{"tfoot", "tbody"},
		{"tr", "tbody tfoot tr"},
		{"u", "p td th"},
		{"ul", "address form menu pre"},
	}
	all := strings.Fields(ruled)
	add := func(names string) {
		for _, n := range strings.Fields(names) {
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
	}
	add(names)
	add(short)
	for _, e := range ends {
		add(e.open + " " + e.by)
	}
	infos, ids := make([]tagInfo, len(all)), map[string]tagID{}
	for i, n := range all {
		infos[i].name = n
		ids[n] = tagID(i)
	}
	if len(all) > 64*len(idSet{}) {
		panic(fmt.Sprint("libxml: too many names for a set: ", len(all)))
	}
	each := func(names string, f func(*tagInfo)) {
		for _, n := range strings.Fields(names) {
			f(&infos[ids[n]])
		}
	}
	each(void, func(t *tagInfo) { t.void = true })
	each(short, func(t *tagInfo) { t.short = true })
	for r, names := range rankOf {
		each(names, func(t *tagInfo) { t.rank = uint8(r) })
	}
	for _, e := range ends {
		each(e.open, func(t *tagInfo) {
			for _, n := range strings.Fields(e.by) {
				t.endedBy.add(ids[n])
			}
		})
	}
	return infos, ids
}()

// entities has the named characters of HTML 4, and apos. (html40EntitiesTable)
var entities = func() map[string]rune {
	m := map[string]rune{}
	f := strings.Fields(`
	quot 22 amp 26 apos 27 lt 3c gt 3e nbsp a0 iexcl a1 cent a2 pound a3 curren a4 yen a5 brvbar a6 sect a7
	uml a8 copy a9 ordf aa laquo ab not ac shy ad reg ae macr af deg b0 plusmn b1 sup2 b2 sup3 b3 acute b4
	micro b5 para b6 middot b7 cedil b8 sup1 b9 ordm ba raquo bb frac14 bc frac12 bd frac34 be iquest bf
	Agrave c0 Aacute c1 Acirc c2 Atilde c3 Auml c4 Aring c5 AElig c6 Ccedil c7 Egrave c8 Eacute c9 Ecirc ca
	Euml cb Igrave cc Iacute cd Icirc ce Iuml cf ETH d0 Ntilde d1 Ograve d2 Oacute d3 Ocirc d4 Otilde d5 Ouml d6
	times d7 Oslash d8 Ugrave d9 Uacute da Ucirc db Uuml dc Yacute dd THORN de szlig df agrave e0 aacute e1
	acirc e2 atilde e3 auml e4 aring e5 aelig e6 ccedil e7 egrave e8 eacute e9 ecirc ea euml eb igrave ec
	iacute ed icirc ee iuml ef eth f0 ntilde f1 ograve f2 oacute f3 ocirc f4 otilde f5 ouml f6 divide f7
	oslash f8 ugrave f9 uacute fa ucirc fb uuml fc yacute fd thorn fe yuml ff OElig 152 oelig 153 Scaron 160
	scaron 161 Yuml 178 fnof 192 circ 2c6 tilde 2dc Alpha 391 Beta 392 Gamma 393 Delta 394 Epsilon 395 Zeta 396
	Eta 397 Theta 398 Iota 399 Kappa 39a Lambda 39b Mu 39c Nu 39d Xi 39e Omicron 39f Pi 3a0 Rho 3a1 Sigma 3a3
	Tau 3a4 Upsilon 3a5 Phi 3a6 Chi 3a7 Psi 3a8 Omega 3a9 alpha 3b1 beta 3b2 gamma 3b3 delta 3b4 epsilon 3b5
	zeta 3b6 eta 3b7 theta 3b8 iota 3b9 kappa 3ba lambda 3bb mu 3bc nu 3bd xi 3be omicron 3bf pi 3c0 rho 3c1
	sigmaf 3c2 sigma 3c3 tau 3c4 upsilon 3c5 phi 3c6 chi 3c7 psi 3c8 omega 3c9 thetasym 3d1 upsih 3d2 piv 3d6
	ensp 2002 emsp 2003 thinsp 2009 zwnj 200c zwj 200d lrm 200e rlm 200f ndash 2013 mdash 2014 lsquo 2018
	rsquo 2019 sbquo 201a ldquo 201c rdquo 201d bdquo 201e dagger 2020 Dagger 2021 bull 2022 hellip 2026
	permil 2030 prime 2032 Prime 2033 lsaquo 2039 rsaquo 203a oline 203e frasl 2044 euro 20ac image 2111
	weierp 2118 real 211c trade 2122 alefsym 2135 larr 2190 uarr 2191 rarr 2192 darr 2193 harr 2194 crarr 21b5
	lArr 21d0 uArr 21d1 rArr 21d2 dArr 21d3 hArr 21d4 forall 2200 part 2202 exist 2203 empty 2205 nabla 2207
	isin 2208 notin 2209 ni 220b prod 220f sum 2211 minus 2212 lowast 2217 radic 221a prop 221d infin 221e
	ang 2220 and 2227 or 2228 cap 2229 cup 222a int 222b there4 2234 sim 223c cong 2245 asymp 2248 ne 2260
	equiv 2261 le 2264 ge 2265 sub 2282 sup 2283 nsub 2284 sube 2286 supe 2287 oplus 2295 otimes 2297 perp 22a5
	sdot 22c5 lceil 2308 rceil 2309 lfloor 230a rfloor 230b lang 2329 rang 232a loz 25ca spades 2660 clubs 2663
	hearts 2665 diams 2666`)
	for i := 0; i < len(f); i += 2 {
		m[f[i]] = rune(hex(f[i+1]))
	}
	return m
}()

func hex(s string) uint64 {
	n, err := strconv.ParseUint(s, 16, 32)
	if err != nil {
		panic(err)
	}
	return n
}

// letters may start a name, and more may follow in one (XML 1.0, fourth edition, appendix B:
// BaseChar and Ideographic; Digit, CombiningChar and Extender).
var letters, more = ranges(`
	41-5a 61-7a c0-d6 d8-f6 f8-131 134-13e 141-148 14a-17e 180-1c3 1cd-1f0 1f4-1f5 1fa-217 250-2a8 2bb-2c1 386
	388-38a 38c 38e-3a1 3a3-3ce 3d0-3d6 3da 3dc 3de 3e0 3e2-3f3 401-40c 40e-44f 451-45c 45e-481 490-4c4 4c7-4c8
	4cb-4cc 4d0-4eb 4ee-4f5 4f8-4f9 531-556 559 561-586 5d0-5ea 5f0-5f2 621-63a 641-64a 671-6b7 6ba-6be 6c0-6ce
	6d0-6d3 6d5 6e5-6e6 905-939 93d 958-961 985-98c 98f-990 993-9a8 9aa-9b0 9b2 9b6-9b9 9dc-9dd 9df-9e1 9f0-9f1
	a05-a0a a0f-a10 a13-a28 a2a-a30 a32-a33 a35-a36 a38-a39 a59-a5c a5e a72-a74 a85-a8b a8d a8f-a91 a93-aa8
	aaa-ab0 ab2-ab3 ab5-ab9 abd ae0 b05-b0c b0f-b10 b13-b28 b2a-b30 b32-b33 b36-b39 b3d b5c-b5d b5f-b61 b85-b8a
	b8e-b90 b92-b95 b99-b9a b9c b9e-b9f ba3-ba4 ba8-baa bae-bb5 bb7-bb9 c05-c0c c0e-c10 c12-c28 c2a-c33 c35-c39
	c60-c61 c85-c8c c8e-c90 c92-ca8 caa-cb3 cb5-cb9 cde ce0-ce1 d05-d0c d0e-d10 d12-d28 d2a-d39 d60-d61 e01-e2e
	e30 e32-e33 e40-e45 e81-e82 e84 e87-e88 e8a e8d e94-e97 e99-e9f ea1-ea3 ea5 ea7 eaa-eab ead-eae eb0 eb2-eb3
	ebd ec0-ec4 f40-f47 f49-f69 10a0-10c5 10d0-10f6 1100 1102-1103 1105-1107 1109 110b-110c 110e-1112 113c 113e
	1140 114c 114e 1150 1154-1155 1159 115f-1161 1163 1165 1167 1169 116d-116e 1172-1173 1175 119e 11a8 11ab
	11ae-11af 11b7-11b8 11ba 11bc-11c2 11eb 11f0 11f9 1e00-1e9b 1ea0-1ef9 1f00-1f15 1f18-1f1d 1f20-1f45
	1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3
	1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2126 212a-212b 212e 2180-2182 3007 3021-3029 3041-3094 30a1-30fa
	3105-312c 4e00-9fa5 ac00-d7a3`), ranges(`
	30-39 b7 2d0-2d1 300-345 360-361 387 483-486 591-5a1 5a3-5b9 5bb-5bd 5bf 5c1-5c2 5c4 640 64b-652 660-669 670
	6d6-6e4 6e7-6e8 6ea-6ed 6f0-6f9 901-903 93c 93e-94d 951-954 962-963 966-96f 981-983 9bc 9be-9c4 9c7-9c8
	9cb-9cd 9d7 9e2-9e3 9e6-9ef a02 a3c a3e-a42 a47-a48 a4b-a4d a66-a71 a81-a83 abc abe-ac5 ac7-ac9 acb-acd
	ae6-aef b01-b03 b3c b3e-b43 b47-b48 b4b-b4d b56-b57 b66-b6f b82-b83 bbe-bc2 bc6-bc8 bca-bcd bd7 be7-bef
	c01-c03 c3e-c44 c46-c48 c4a-c4d c55-c56 c66-c6f c82-c83 cbe-cc4 cc6-cc8 cca-ccd cd5-cd6 ce6-cef d02-d03
	d3e-d43 d46-d48 d4a-d4d d57 d66-d6f e31 e34-e3a e46-e4e e50-e59 eb1 eb4-eb9 ebb-ebc ec6 ec8-ecd ed0-ed9
	f18-f19 f20-f29 f35 f37 f39 f3e-f3f f71-f84 f86-f8b f90-f95 f97 f99-fad fb1-fb7 fb9 20d0-20dc 20e1 3005
	302a-302f 3031-3035 3099-309a 309d-309e 30fc-30fe`)

func ranges(s string) *unicode.RangeTable {
	t := &unicode.RangeTable{}
	for _, f := range strings.Fields(s) {
		lo, hi, ok := strings.Cut(f, "-")
		if !ok {
			hi = lo
		}
		t.R16 = append(t.R16, unicode.Range16{Lo: uint16(hex(lo)), Hi: uint16(hex(hi)), Stride: 1})
	}
	for _, r := range t.R16 {
		if r.Hi <= unicode.MaxLatin1 {
			t.LatinOffset++
		}
	}
	return t
}

func isXMLLetter(r rune) bool   { return unicode.Is(letters, r) }
func isXMLNameMore(r rune) bool { return unicode.Is(more, r) }

// isXML reports whether XML allows a character (xmlIsChar).
func isXML(r rune) bool {
	return r >= 0x20 && r <= 0xd7ff || r == '\t' || r == '\n' || r == '\r' || r >= 0xe000 && r <= 0xfffd ||
		r >= 0x10000 && r <= 0x10ffff
}

// isChar is isXML for the first character of a text. Where it is called, NUL is read as a space.
func isChar(s string) bool {
	c := s[0]
	if c < 0x20 {
		return c == '\t' || c == '\n' || c == '\r' || c == 0
	}
	return c != 0xef || len(s) < 3 || s[1] != 0xbf || s[2] < 0xbe // U+FFFE and U+FFFF
}

// clean removes characters that XML does not allow and replaces NUL by a space. (htmlCurrentChar)
func clean(s string) string {
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < 0x20 || c == 0xef) && (c == 0 || !isChar(s[i:])) {
			return strings.Map(func(r rune) rune {
				switch {
				case r == 0:
					return ' '
				case !isXML(r):
					return -1
				}
				return r
			}, s)
		}
	}
	return s
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isBlank(c byte) bool  { return c == ' ' || c == '\t' || c == '\n' || c == '\r' } // without form feed

func isNameByte(c byte) bool {
	return isLetter(c) || c >= '0' && c <= '9' || c == ':' || c == '-' || c == '_' || c == '.'
}

// isChar8 and isPublic check single bytes of document identifiers.
func isChar8(c byte) bool { return c >= 0x20 || c == '\t' || c == '\n' || c == '\r' }

func isPublic(c byte) bool {
	return isLetter(c) || c >= '0' && c <= '9' || strings.IndexByte(" \r\n-'()+,./:=?;!*#@$_%", c) >= 0
}

// utf8Len returns the length of the character that starts with c.
func utf8Len(c byte) int {
	switch {
	case c < utf8.RuneSelf:
		return 1
	case c < 0xe0:
		return 2
	case c < 0xf0:
		return 3
	}
	return 4
}
