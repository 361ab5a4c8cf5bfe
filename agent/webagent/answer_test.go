package webagent

import "testing"

func TestReadAnswer(t *testing.T) {
	for _, tt := range []struct{ in, action, think string }{
		{"<action>click('1')</action>", "click('1')", ""},
		{"<think>a</think>\n<action>\nclick('1')\n</action>", "click('1')", "a"},
		{"<think>not <action>click('9')</action></think><action>click('1')</action>", "click('1')",
			"not <action>click('9')</action>"},
		{"<action>a()</action> and <action>b()</action>", "a()\nb()", ""},
		{"<action_draft>x()</action_draft><criticise>no <action></criticise><action>y()</action>", "y()", ""},
		{"Sure:\n```python\nclick('1')\n```", "click('1')", ""},
		{"```click('1')```", "click('1')", ""},
		{"```\nclick('1')\n``` then ```\nnoop()\n```", "click('1')\nnoop()", ""},
		{"<action>click('1')", "click('1')", ""},
		{"<action></action>", "", ""},
		{"<think>never closed <action>click('1')</action>", "click('1')", ""},
		{"click('1')", "", ""},
		{"", "", ""},
	} {
		a := readAnswer(tt.in)
		if a.action != tt.action || a.think != tt.think || (a.wrong == "") != (tt.action != "") {
			t.Errorf("%q: %+v", tt.in, a)
		}
	}
}

func FuzzReadAnswer(f *testing.F) {
	f.Add("<think>a</think><action>click('1')</action>```x```")
	f.Fuzz(func(t *testing.T, s string) { readAnswer(s) })
}
