package obs

// Chromium125 turns a merged tree of a newer Chromium into what the one of Playwright 1.44 gave, as
// far as the tree tells: published scores and prompts are of that generation. It changes the tree.
// explicit reports whether an element says role="cell" itself.
func Chromium125(t *AXTree, explicit func(backend int) bool) {
	for i := range t.Nodes {
		n := &t.Nodes[i]
		switch n.Role.text() {
		case "InlineTextBox", "MenuListPopup":
			n.Name = nil
		case "cell":
			if explicit == nil || !explicit(n.Backend) {
				n.Role = &AXValue{Value: Value(`"gridcell"`)}
			}
		case "form":
			if n.Name.text() == "" {
				n.Role = &AXValue{Value: Value(`"generic"`)}
			}
		case "spinbutton", "slider":
			n.forgetValueText()
		}
		kept := n.Properties[:0:0]
		for _, p := range n.Properties {
			if p.Name != "url" {
				kept = append(kept, p)
			}
		}
		n.Properties = kept
	}
}

// forgetValueText empties a valuetext that only says the value again.
func (n *AXNode) forgetValueText() {
	if n.Value == nil {
		return
	}
	v := n.Value.Value
	text := v.Text()
	if len(v) > 0 && v[0] != '"' {
		text = string(v)
	}
	for i, p := range n.Properties {
		if p.Name == "valuetext" && p.Value.text() == text {
			n.Properties[i].Value = &AXValue{Value: Value(`""`)}
		}
	}
}
