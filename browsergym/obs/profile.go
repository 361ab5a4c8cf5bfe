package obs

// Chromium125 converts a merged tree of a newer Chromium to that of Playwright 1.44, as far as the
// tree has the information, because published scores and prompts were made with it. It modifies the
// tree. explicit reports whether an element has role="cell" itself.
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

// forgetValueText clears a valuetext that only repeats the value.
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
