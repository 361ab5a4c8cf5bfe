// Package libxml parses HTML like Beautiful Soup on top of lxml 5, which uses libxml2 2.13, and
// prints it like Beautiful Soup.
//
// The reference renders pages in this way, and the result differs from what a browser sees: libxml2
// 2.13 follows HTML 4 and its own rules, not HTML 5. [Parse] has two layers, and the package prints
// their result:
//
//   - the push parser of libxml2's HTMLparser.c: parser.go has its states, tags.go what a tag
//     starts and ends, text.go text and references, markup.go comments and declarations, scan.go
//     the scanning. Each rule names the C function that it was found in.
//   - soup.go: the tree that Beautiful Soup builds from the parser's events.
//   - print.go: prettify with the formatter "minimal".
//
// tables.go has the data: which start tag ends which element, named characters, character classes.
// The command `go run ./scripts/golden -do differential` compares the package with the original.
//
// Pages are hostile: time and memory are linear in the size of a page, nothing recurses, nothing
// panics.
package libxml
