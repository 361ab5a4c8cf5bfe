package obs

import (
	"unicode/utf8"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// A Snapshot is the result of DOMSnapshot.captureSnapshot, as far as it is used.
type Snapshot struct {
	Documents []Document `json:"documents"`
	Strings   []string   `json:"strings"`
}

// A Document is one document of a snapshot.
type Document struct {
	FrameID       int     `json:"frameId"`
	ScrollOffsetX float64 `json:"scrollOffsetX"`
	ScrollOffsetY float64 `json:"scrollOffsetY"`
	Nodes         struct {
		ParentIndex          []int     `json:"parentIndex"`
		NodeType             []int     `json:"nodeType"`
		NodeName             []int     `json:"nodeName"`
		NodeValue            []int     `json:"nodeValue"`
		BackendNodeID        []int     `json:"backendNodeId"`
		Attributes           [][]int   `json:"attributes"`
		ContentDocumentIndex RareInt   `json:"contentDocumentIndex"`
		IsClickable          RareFlags `json:"isClickable"`
	} `json:"nodes"`
	Layout struct {
		NodeIndex   []int       `json:"nodeIndex"`
		Bounds      [][]float64 `json:"bounds"`
		ClientRects [][]float64 `json:"clientRects"`
	} `json:"layout"`
}

// RareInt holds an integer for some nodes.
type RareInt struct {
	Index []int `json:"index"`
	Value []int `json:"value"`
}

// RareFlags is a list of nodes.
type RareFlags struct {
	Index []int `json:"index"`
}

// text returns a string of the table, or "" if there is none.
func (s *Snapshot) text(id int) string {
	if id < 0 || id >= len(s.Strings) {
		return ""
	}
	return s.Strings[id]
}

func at(list []int, i int) int {
	if i < len(list) {
		return list[i]
	}
	return -1
}

// Clean removes the data that marking stored in ARIA attributes. It restores the attributes' own
// text and removes attributes that had none.
func (s *Snapshot) Clean() {
	for _, name := range [...]string{"aria-roledescription", "aria-description"} {
		id := -1
		for i, t := range s.Strings {
			if t == name {
				id = i
				break
			}
		}
		if id < 0 {
			continue
		}
		done := map[int]bool{}
		for d := range s.Documents {
			attrs := s.Documents[d].Nodes.Attributes
			for n, list := range attrs {
				for i := 0; i+1 < len(list); i += 2 {
					if list[i] != id {
						continue
					}
					v := list[i+1]
					if v < 0 || v >= len(s.Strings) {
						break
					}
					if !done[v] {
						_, s.Strings[v] = unmark(s.Strings[v])
						done[v] = true
					}
					if s.Strings[v] == "" {
						attrs[n] = append(append([]int(nil), list[:i]...), list[i+2:]...)
					}
					break // only the first
				}
			}
		}
	}
}

// unmark splits the data of marking off the start of an attribute's text: the element's bid, "" if
// there is none, and the rest.
func unmark(s string) (bid, rest string) {
	const prefix = "browsergym_id_"
	if len(s) <= len(prefix) || s[:len(prefix)] != prefix {
		return "", s
	}
	i := len(prefix)
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] >= 'a' && s[i] <= 'z' || s[i] >= 'A' && s[i] <= 'Z') {
		i++
	}
	if i == len(prefix) {
		return "", s
	}
	bid, rest = s[len(prefix):i], s[i:]
	if r, n := utf8.DecodeRuneInString(rest); n > 0 && pyrepr.IsSpace(r) {
		rest = rest[n:]
	}
	for j := 0; j < len(rest); j++ { // a dot does not match a newline, but one may remain at the end
		if rest[j] == '\n' {
			if j == len(rest)-1 {
				return bid, rest[:j]
			}
			return "", s
		}
	}
	return bid, rest
}
