package cdp

import "strings"

// A key holds the data of a key's events.
type key struct {
	code     string
	key      string
	text     string // text that it types; may be ""
	number   int    // windows virtual key code, the same on both sides of the keyboard
	location int    // 0, 1 left, 2 right, 3 keypad
	shifted  *key   // with Shift held; nil if the same
}

// layout is the US keyboard: keys by code, by the characters that they type, and by a few other
// names.
var layout = makeLayout()

func makeLayout() map[string]*key {
	m := map[string]*key{}
	add := func(k key, names ...string) {
		m[k.code] = &k
		for _, n := range names {
			plain := k
			plain.shifted = nil
			m[n] = &plain
		}
	}
	// character adds a key that types one character, and another one with Shift.
	character := func(code, plain, shift string, number int) {
		s := key{code: code, key: shift, text: shift, number: number}
		// looked up by its character, it always types that character
		add(key{code: code, key: plain, text: plain, number: number, shifted: &s}, plain)
		m[shift] = &s
	}
	for r := 'A'; r <= 'Z'; r++ {
		character("Key"+string(r), strings.ToLower(string(r)), string(r), int(r))
	}
	for i, r := range ")!@#$%^&*(" {
		d := string(rune('0' + i))
		character("Digit"+d, d, string(r), '0'+i)
	}
	for _, s := range []struct {
		code, plain, shift string
		number             int
	}{{"Backquote", "`", "~", 192}, {"Minus", "-", "_", 189}, {"Equal", "=", "+", 187}, {"Backslash", `\`, "|", 220},
		{"BracketLeft", "[", "{", 219},
		{"BracketRight", "]", "}", 221}, {"Semicolon", ";", ":", 186}, {"Quote", "'", `"`, 222},
		{"Comma", ",", "<", 188}, {"Period", ".", ">", 190},
		{"Slash", "/", "?", 191}} {
		character(s.code, s.plain, s.shift, s.number)
	}
	add(key{code: "Space", key: " ", text: " ", number: 32}, " ")
	add(key{code: "Enter", key: "Enter", text: "\r", number: 13}, "\n", "\r")
	for name, number := range map[string]int{"Escape": 27, "Backspace": 8, "Tab": 9, "CapsLock": 20, "AltGraph": 225,
		"ContextMenu": 93, "PrintScreen": 44,
		"ScrollLock": 145, "Pause": 19, "PageUp": 33, "PageDown": 34, "Insert": 45, "Delete": 46, "Home": 36, "End": 35,
		"ArrowLeft": 37, "ArrowUp": 38,
		"ArrowRight": 39, "ArrowDown": 40, "NumLock": 144, "F1": 112, "F2": 113, "F3": 114, "F4": 115, "F5": 116,
		"F6": 117, "F7": 118, "F8": 119, "F9": 120,
		"F10": 121, "F11": 122, "F12": 123, "AudioVolumeMute": 173, "AudioVolumeDown": 174, "AudioVolumeUp": 175,
		"MediaTrackNext":     176,
		"MediaTrackPrevious": 177, "MediaPlayPause": 179} {
		add(key{code: name, key: name, number: number})
	}
	for name, number := range map[string]int{"Shift": 16, "Control": 17, "Alt": 18} {
		add(key{code: name + "Left", key: name, number: number, location: 1}, name)
		add(key{code: name + "Right", key: name, number: number, location: 2})
	}
	add(key{code: "MetaLeft", key: "Meta", number: 91, location: 1}, "Meta")
	add(key{code: "MetaRight", key: "Meta", number: 92, location: 2})
	for i, s := range []struct {
		key    string
		number int
	}{{"Insert", 45}, {"End", 35}, {"ArrowDown", 40}, {"PageDown", 34}, {"ArrowLeft", 37}, {"Clear", 12},
		{"ArrowRight", 39}, {"Home", 36}, {"ArrowUp", 38}, {"PageUp", 33}} {
		d := string(rune('0' + i))
		code := "Numpad" + d
		add(key{code: code, key: s.key, number: s.number, location: 3,
			shifted: &key{code: code, key: d, text: d, number: s.number, location: 3}})
	}
	add(key{code: "NumpadDecimal", key: "\x00", text: "\x00", number: 46, location: 3,
		shifted: &key{code: "NumpadDecimal", key: ".", text: ".", number: 46, location: 3}})
	for _, s := range []struct {
		code, key string
		number    int
	}{{"NumpadDivide", "/", 111}, {"NumpadMultiply", "*", 106}, {"NumpadSubtract", "-", 109}, {"NumpadAdd", "+", 107}} {
		add(key{code: s.code, key: s.key, text: s.key, number: s.number, location: 3})
	}
	add(key{code: "NumpadEnter", key: "Enter", text: "\r", number: 13, location: 3})
	return m
}

// modifierBits are the protocol's bits, in the order in which modifiers are pressed.
var modifierBits = []struct {
	name string
	bit  int
}{{"Alt", 1}, {"Control", 2}, {"Meta", 4}, {"Shift", 8}}

func isModifier(name string) bool {
	for _, m := range modifierBits {
		if m.name == name {
			return true
		}
	}
	return false
}

func (in *input) modifiers() (mask int) {
	for _, m := range modifierBits {
		if in.held[m.name] {
			mask |= m.bit
		}
	}
	return mask
}

// tokens splits the names of keys that are pressed together: "Control+a", "Shift++".
func tokens(keys string) []string {
	var all []string
	token := ""
	for _, r := range keys {
		if r == '+' && token != "" {
			all = append(all, token)
			token = ""
			continue
		}
		token += string(r)
	}
	return append(all, token)
}
