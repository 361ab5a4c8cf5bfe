package obs

import "encoding/json"

// An AXTree is an accessibility tree: one frame's as Accessibility.getFullAXTree gives it, or those
// of a page's frames, merged.
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

// An AXValue is a value of an accessibility tree; Value is nil when it has none.
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

// Merge makes one tree of the trees of a page's frames, the main frame's first, and takes out of it
// what marking has put into ARIA attributes. content tells which frame an Iframe node shows, by its
// backend node id; "" is none that is known. It changes the trees.
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

// unmark finds the element's bid in its roledescription, which generic nodes do not have, or in its
// description.
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
	b, _ := json.Marshal(s) // a string cannot fail
	return b
}
