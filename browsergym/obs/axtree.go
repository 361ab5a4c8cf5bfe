package obs

import "encoding/json"

// An AXTree is an accessibility tree: that of one frame, as returned by
// Accessibility.getFullAXTree, or the merged trees of all frames of a page.
type AXTree struct {
	FrameID string   `json:"frameId,omitempty"`
	Nodes   []AXNode `json:"nodes"`
}

// An AXNode is one node of a tree.
type AXNode struct {
	ID          string       `json:"nodeId"`
	Role        *AXValue     `json:"role,omitempty"`
	Name        *AXValue     `json:"name,omitempty"`
	Value       *AXValue     `json:"value,omitempty"`
	Description *AXValue     `json:"description,omitempty"`
	Properties  []AXProperty `json:"properties,omitempty"`
	Children    []string     `json:"childIds,omitempty"`
	Backend     int          `json:"backendDOMNodeId,omitempty"`
	Bid         string       `json:"browsergym_id,omitempty"`
}

// An AXValue is a value in an accessibility tree; Value is nil if there is none.
type AXValue struct {
	Value Value `json:"value,omitempty"`
}

func (v *AXValue) text() string {
	if v == nil {
		return ""
	}
	return v.Value.Text()
}

// An AXProperty is a property of a node.
type AXProperty struct {
	Name  string   `json:"name"`
	Value *AXValue `json:"value"`
}

// Merge merges the trees of a page's frames, given with the main frame's first, and removes the
// data that marking stored in ARIA attributes. content returns the ID of the frame that an Iframe
// node shows, by its backend node ID, or "" if it is not known. Merge modifies the trees.
func Merge(frames []AXTree, content func(backend int) string) *AXTree {
	n := 0
	first := make(map[string]string, len(frames))
	for i := range frames {
		n += len(frames[i].Nodes)
		if len(frames[i].Nodes) > 0 {
			first[frames[i].FrameID] = frames[i].Nodes[0].ID
		}
	}
	out := &AXTree{Nodes: make([]AXNode, 0, n)}
	for i := range frames {
		for k := range frames[i].Nodes {
			node := &frames[i].Nodes[k]
			node.unmark()
			if node.Role.text() == "Iframe" {
				if id, ok := first[content(node.Backend)]; ok {
					node.Children = append(node.Children[:len(node.Children):len(node.Children)], id)
				}
			}
			out.Nodes = append(out.Nodes, *node)
		}
	}
	return out
}

// unmark extracts the element's bid from its roledescription, which generic nodes do not have, or
// from its description.
func (n *AXNode) unmark() {
	for i, p := range n.Properties {
		if p.Name != "roledescription" {
			continue
		}
		if p.Value != nil {
			bid, rest := unmark(p.Value.text())
			n.Bid = bid
			switch {
			case rest == "":
				n.Properties = append(n.Properties[:i:i], n.Properties[i+1:]...)
			case bid != "":
				p.Value.Value = quoted(rest)
			}
		}
		break
	}
	if n.Description == nil {
		return
	}
	bid, rest := unmark(n.Description.text())
	switch {
	case rest == "":
		n.Description = nil
	case bid != "":
		n.Description.Value = quoted(rest)
	}
	if n.Bid == "" {
		n.Bid = bid
	}
}

func quoted(s string) Value {
	b, _ := json.Marshal(s) // a string can always be encoded
	return b
}
