// Package yamldoc reads YAML and JSON that people write, strictly, and keeps the position of every
// value. All formats of this program go through it: configurations, tasks.yaml, scripts, compose
// files, task.yaml and price lists.
//
// # From text to values
//
// [Parse] and [ParseJSON] turn a text into a tree of [Node]. Aliases and merge keys are resolved,
// so that the tree is what the file means; each node keeps where it was written, and as which text.
// What reads a tree has two ways:
//
//   - [Decoder] fills Go structs by the tags of their fields (json or yaml for the name, and enum,
//     min, max, required). For a format with a fixed form, this is all that is needed.
//   - Formats with rules of their own, such as compose, walk the tree, and report with
//     [Node.Errorf], which knows the position and the path.
//
// A configuration does both: flags and matrix rearrange the tree ([Node.With]), then it is decoded.
//
// # Unions
//
// A type says itself that it may be written in several ways:
//
//   - [Setter] has a notation in one scalar. On a struct, map or slice it is a short form beside the
//     long one ("oracle: run.sh", "answer: 42"); on anything else it is the only form (a duration).
//   - [Notation] names the notation, for messages and schemas, and makes it the only form.
//   - [ListSetter] takes a list of texts as well.
//   - A list of texts or whole numbers may be one of them alone, where [Decoder.Single] is set.
//
// # Strictness
//
// An unknown key, a key that stands twice, a value of the wrong type, and a value outside of its
// bounds are errors, all of which are reported, in the order of the file. A null is as if the key
// were not there. How far the type of a scalar counts is up to the format, see [Scalars].
//
// An [Error] reads "file:line:column: key: what is wrong; what to do". The key is a dotted path:
//
//	tasks.yaml:8:28: tasks[0].grade.pratial: unknown key; did you mean "partial"?
//
// # Hostile files
//
// A file may come from anybody. It has to be UTF-8 without NUL, of one document, not nested deeper
// than [MaxDepth], and not larger than its [Bounds], counted after aliases are resolved. The
// library needs time and memory with the square of the nesting, so that it is measured before the
// text is parsed. Tags of YAML itself (!!str) are understood as far as they matter, others refused.
//
// The parser is github.com/goccy/go-yaml, which all of the program uses: it keeps positions and
// the text of scalars. Its own decoder is not used, since it stops at the first error, names no
// keys, and takes 1e-7 and 0o17 for text.
package yamldoc
