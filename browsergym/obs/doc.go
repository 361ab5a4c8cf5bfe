// Package obs is the pure part of browsergym: from what a browser answers over its debugging
// protocol (a DOM snapshot, accessibility trees, a screenshot) to what an agent reads. It knows no
// browser, so an observation can be rendered again, with other options, from what was recorded of
// it.
//
// Its texts are those of BrowserGym 0.14 for the same answers, byte for byte: [AXText] is its
// flatten_axtree_to_str, [DOMText] its flatten_dom_to_str, [PruneHTML] its prune_html. Where
// Chromium itself has changed since published results were made, [Chromium125] turns a tree into
// what it was.
//
// Pages are hostile. Nothing here recurses with a page's depth beyond a bound, and nothing panics
// on an answer that contradicts itself.
package obs
