// Package yamldoc parses YAML and JSON written by people, strictly, and keeps the position of every
// value. All formats of this program use it: configurations, tasks.yaml, scripts, compose files,
// task.yaml and price lists.
//
// # From text to values
//
// [Parse] and [ParseJSON] parse a text into a tree of [Node]. Aliases and merge keys are resolved,
// so the tree has the meaning of the file. Each node keeps its position and its original text.
// There are two ways to read a tree:
//
//   - [Decoder] fills Go structs by the tags of their fields (json or yaml for the name, and enum,
//     min, max, required). This is enough for a fixed format.
//   - Formats with their own rules, such as compose, walk the tree and report errors with
//     [Node.Errorf], which adds the position and the path.
//
// A configuration does both: flags and the matrix change the tree ([Node.With]) before it is
// decoded.
//
// # Unions
//
// A type declares that it can be written in several ways:
//
//   - [Setter] has a notation in one scalar. On a struct, map or slice this is a short form besides
//     the long one ("oracle: run.sh", "answer: 42"); on other types it is the only form (a
//     duration).
//   - [Notation] names the notation, for messages and schemas, and makes it the only form.
//   - [ListSetter] also accepts a list of strings.
//   - A single string or whole number is accepted as a list if [Decoder.Single] is set.
//
// # Strictness
//
// An unknown key, a duplicate key, a value of the wrong type and a value out of bounds are errors.
// All errors are reported, in the order of the file. A null counts as a missing key. How strictly
// the type of a scalar is checked depends on the format, see [Scalars].
//
// An [Error] reads "file:line:column: key: what is wrong; what to do". The key is a dotted path:
//
//	tasks.yaml:8:28: tasks[0].grade.pratial: unknown key; did you mean "partial"?
//
// # Hostile files
//
// Files may come from anybody. A file must be UTF-8 without NUL, be one document, not be nested
// deeper than [MaxDepth], and not be larger than its [Bounds], counted after aliases are resolved.
// The library's time and memory are quadratic in the nesting, so the nesting is measured before the
// text is parsed. YAML's own tags (!!str) are handled if they matter; others are rejected.
//
// The parser is github.com/goccy/go-yaml, the only YAML library of the program, because it keeps
// positions and the text of scalars. Its decoder is not used, because it stops at the first error,
// does not name keys, and takes 1e-7 and 0o17 for text.
package yamldoc
