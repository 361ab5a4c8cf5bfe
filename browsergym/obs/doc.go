// Package obs renders observations as text. Its input is what a browser returns over its debugging
// protocol: a DOM snapshot, accessibility trees, a screenshot. It imports no browser, so recorded
// input can be rendered again with other options.
//
// For the same input its texts equal those of BrowserGym 0.14 byte for byte: [AXText] is
// flatten_axtree_to_str, [DOMText] is flatten_dom_to_str, [PruneHTML] is prune_html. Where Chromium
// itself has changed since published results were made, [Chromium125] converts a tree to its
// earlier form.
//
// Pages are hostile. Recursion over a page's depth is bounded, and contradictory input causes no
// panic.
package obs
