package action

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// A Spec describes one action.
type Spec struct {
	Name     string
	Params   []Param
	Doc      string   // one paragraph
	Examples []string // valid calls
}

// A Param is a parameter of an action.
type Param struct {
	Name    string
	Type    string       // as written in Python
	Default pyrepr.Value // nil means required
}

// Signature returns the action's signature as Python prints it.
func (s *Spec) Signature() string {
	var b strings.Builder
	b.WriteString(s.Name + "(")
	for i, p := range s.Params {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(p.Name + ": " + p.Type)
		if p.Default != nil {
			b.WriteString(" = " + pyrepr.Repr(p.Default))
		}
	}
	return b.String() + ")"
}

var subsets = map[string]string{
	"chat":   "send_msg_to_user",
	"infeas": "report_infeasible",
	"bid":    "scroll fill select_option click dblclick hover press focus clear drag_and_drop upload_file",
	"coord": "scroll_at mouse_move mouse_up mouse_down mouse_click mouse_dblclick mouse_drag_and_drop " +
		"mouse_upload_file keyboard_down keyboard_up keyboard_press keyboard_type keyboard_insert_text",
	"nav": "go_back go_forward goto",
	"tab": "tab_close tab_focus new_tab",
	"miniwob_all": "mouse_move mouse_click mouse_dblclick mouse_down mouse_up scroll click keyboard_press " +
		"keyboard_type fill",
	"miniwob_shi17": "mouse_click mouse_dblclick mouse_down mouse_up scroll keyboard_press",
	"miniwob_liu18": "click fill",
	"miniwob_humphreys22": "mouse_move mouse_click mouse_dblclick mouse_down mouse_up scroll keyboard_press " +
		"keyboard_type",
	"webarena": "scroll keyboard_press click fill hover tab_focus new_tab go_back go_forward goto " +
		"tab_close select_option send_msg_to_user report_infeasible",
	"visualwebarena": "scroll keyboard_press click fill hover tab_focus new_tab go_back go_forward goto " +
		"tab_close select_option send_msg_to_user upload_file report_infeasible",
	"workarena": "scroll fill select_option click dblclick hover press focus clear drag_and_drop " +
		"send_msg_to_user",
	"workarena++": "scroll fill select_option click dblclick hover press focus clear drag_and_drop tab_focus " +
		"new_tab tab_close go_back go_forward goto send_msg_to_user report_infeasible",
	"weblinx":        "send_msg_to_user click hover fill goto scroll new_tab tab_close tab_focus",
	"assistantbench": "scroll fill select_option click press go_back goto send_msg_to_user",
}

// Subsets returns the names allowed in [Options].Subsets.
func Subsets() []string { return slices.Sorted(maps.Keys(subsets)) }

// Known returns an error if one of names is not a subset.
func Known(names []string) error {
	for _, n := range names {
		if _, ok := subsets[n]; !ok {
			return fmt.Errorf("there is no subset %q; there are %s", n, strings.Join(Subsets(), ", "))
		}
	}
	return nil
}

const (
	buttons   = "Literal['left', 'middle', 'right']"
	modifiers = "list[typing.Literal['Alt', 'Control', 'ControlOrMeta', 'Meta', 'Shift']]"
)

func need(name, typ string) Param { return Param{Name: name, Type: typ} }

var (
	bid      = need("bid", "str")
	x, y     = need("x", "float"), need("y", "float")
	button   = Param{"button", buttons, pyrepr.Str("left")}
	clicking = []Param{bid, button, {"modifiers", modifiers, pyrepr.List{}}}
	mousing  = []Param{x, y, button}
	files    = need("file", "str | list[str]")
)

var specs = func() map[string]*Spec {
	m := map[string]*Spec{}
	for _, s := range []Spec{
		{"noop", []Param{{"wait_ms", "float", pyrepr.Int("1000")}}, "Do nothing, and wait for so many milliseconds.",
			[]string{"noop()", "noop(500)"}},
		{"send_msg_to_user", []Param{need("text", "str")}, "Say something to the user.",
			[]string{"send_msg_to_user('The cheapest flight leaves at 9:40.')"}},
		{"report_infeasible", []Param{need("reason", "str")},
			"Tell the user that what was asked for cannot be done, and why.",
			[]string{"report_infeasible('There is no order of that number.')"}},
		{"scroll", []Param{need("delta_x", "float"), need("delta_y", "float")},
			"Turn the mouse wheel where the pointer is: pixels to the right and downwards, negative for left and up.",
			[]string{"scroll(0, 200)", "scroll(-50.2, -100.5)"}},
		{"scroll_at", []Param{need("x", "int"), need("y", "int"), need("dx", "int"), need("dy", "int")},
			"Move the pointer to a place and turn the mouse wheel there, by dx to the right and dy downwards.",
			[]string{"scroll_at(50, 100, -50, -100)"}},
		{"fill", []Param{bid, need("value", "str"), {"enable_autocomplete_menu", "bool", pyrepr.Bool(false)}},
			"Put text into a form field in place of what it holds. With enable_autocomplete_menu the last character " +
				"is typed as by a user, so that suggestions open.",
			[]string{"fill('237', 'example value')", "fill('45', 'two\\nlines')", "fill('b534', 'Montre', True)"}},
		{"select_option", []Param{bid, need("options", "str | list[str]")},
			"Choose one or several options of a select element, by their values or labels.",
			[]string{"select_option('a48', 'blue')", "select_option('c48', ['red', 'green', 'blue'])"}},
		{"click", clicking, "Click an element.",
			[]string{"click('a51')", "click('b22', button='right')",
				"click('48', button='middle', modifiers=['Shift'])"}},
		{"dblclick", clicking, "Double click an element.",
			[]string{"dblclick('12')", "dblclick('ca42', button='right')",
				"dblclick('178', button='middle', modifiers=['Shift'])"}},
		{"hover", []Param{bid}, "Move the pointer over an element.", []string{"hover('b8')"}},
		{"press", []Param{bid, need("key_comb", "str")},
			"Focus an element and press a key, or several joined by +. Keys are called as in KeyboardEvent.key " +
				"(Backspace, ArrowDown, a, A …); Shift, Control, Alt, Meta and ControlOrMeta are held down " +
				"for the last.", []string{"press('88', 'Backspace')", "press('a26', 'ControlOrMeta+a')",
				"press('a61', 'Meta+Shift+t')"}},
		{"focus", []Param{bid}, "Focus an element.", []string{"focus('b455')"}},
		{"clear", []Param{bid}, "Empty a form field.", []string{"clear('996')"}},
		{"drag_and_drop", []Param{need("from_bid", "str"), need("to_bid", "str")},
			"Drag one element with the left button and drop it on another.", []string{"drag_and_drop('56', '498')"}},
		{"upload_file", []Param{bid, files},
			"Click an element that opens a file chooser, and choose one file or several in it, by their paths.",
			[]string{"upload_file('572', '/home/user/my_receipt.pdf')",
				"upload_file('63', ['/home/bob/image.jpg', '/home/bob/file.zip'])"}},
		{"mouse_move", []Param{x, y}, "Move the pointer to a place, in pixels of the viewport.",
			[]string{"mouse_move(65.2, 158.5)"}},
		{"mouse_up", mousing, "Move the pointer to a place and let a button go.",
			[]string{"mouse_up(250, 120)", "mouse_up(47, 252, 'right')"}},
		{"mouse_down", mousing, "Move the pointer to a place and press a button, without letting it go.",
			[]string{"mouse_down(140.2, 580.1)", "mouse_down(458, 254.5, 'middle')"}},
		{"mouse_click", mousing, "Move the pointer to a place and click.",
			[]string{"mouse_click(887.2, 68)", "mouse_click(56, 712.56, 'right')"}},
		{"mouse_dblclick", mousing, "Move the pointer to a place and double click.",
			[]string{"mouse_dblclick(5, 236)", "mouse_dblclick(87.5, 354, 'right')"}},
		{"mouse_drag_and_drop", []Param{need("from_x", "float"), need("from_y", "float"), need("to_x", "float"),
			need("to_y", "float")}, "Drag from one place to another with the left button.",
			[]string{"mouse_drag_and_drop(10.7, 325, 235.6, 24.54)"}},
		{"mouse_upload_file", []Param{x, y, files},
			"Click a place that opens a file chooser, and choose one file or several in it, by their paths.",
			[]string{"mouse_upload_file(132.1, 547, '/home/user/my_receipt.pdf')",
				"mouse_upload_file(328, 812, ['/home/bob/image.jpg', '/home/bob/file.zip'])"}},
		{"keyboard_down", []Param{need("key", "str")}, "Press a key without letting it go.",
			[]string{"keyboard_down('Shift')", "keyboard_down('c')"}},
		{"keyboard_up", []Param{need("key", "str")}, "Let a key go.",
			[]string{"keyboard_up('Shift')", "keyboard_up('c')"}},
		{"keyboard_press", []Param{need("key", "str")},
			"Press a key, or several joined by +, wherever the focus is. Keys are called as in press.",
			[]string{"keyboard_press('Backspace')", "keyboard_press('ControlOrMeta+a')",
				"keyboard_press('Meta+Shift+t')"}},
		{"keyboard_type", []Param{need("text", "str")}, "Type text key by key, wherever the focus is.",
			[]string{"keyboard_type('Hello world!')"}},
		{"keyboard_insert_text", []Param{need("text", "str")},
			"Insert text at once, wherever the focus is; no key is pressed.",
			[]string{"keyboard_insert_text('Hello world!')"}},
		{"goto", []Param{need("url", "str")}, "Go to an address.", []string{"goto('http://www.example.com')"}},
		{"go_back", nil, "Go one page back in the history.", []string{"go_back()"}},
		{"go_forward", nil, "Go one page forward in the history.", []string{"go_forward()"}},
		{"new_tab", nil, "Open a new tab, which becomes the active one.", []string{"new_tab()"}},
		{"tab_close", nil, "Close the active tab.", []string{"tab_close()"}},
		{"tab_focus", []Param{need("index", "int")}, "Make another tab the active one; the first is 0.",
			[]string{"tab_focus(2)"}},
	} {
		m[s.Name] = &s
	}
	return m
}()
