// Package libxml reads HTML as Beautiful Soup does over lxml 5, that is over libxml2 2.13, and
// prints it as Beautiful Soup does.
//
// The reference makes its texts of pages in this way, and what it makes differs from what a browser
// sees: libxml2 2.13 follows HTML 4 and its own habits, not HTML 5. [Parse] has two layers, and the
// package prints what they make:
//
//   - the push parser of libxml2's HTMLparser.c: parser.go has its states, tags.go what a tag starts
//     and ends, text.go text and references, markup.go comments and declarations, scan.go how it
//     reads. Each rule names the function there that it was found in.
//   - soup.go: the tree that Beautiful Soup makes of the parser's events.
//   - print.go: prettify with the formatter "minimal".
//
// tables.go has the facts: which start tag ends which element, named characters, classes of
// characters. That all this is so is shown by `go run ./scripts/golden -do differential`, which
// runs the original beside it.
//
// Pages are hostile: time and memory are linear in the size of a page, nothing recurses, nothing
// panics.
package libxml
