package cdp

import (
	"context"
)

// KeyPress presses and releases a key, or several at once ("Control+a").
func (p *Page) KeyPress(ctx context.Context, keys string) error {
	return p.inputCall(ctx, "Keyboard.press", func(ctx context.Context) error { return p.pressKey(ctx, keys) })
}

// KeyDown presses a key and keeps it down.
func (p *Page) KeyDown(ctx context.Context, name string) error {
	return p.inputCall(ctx, "Keyboard.down", func(ctx context.Context) error { return p.keyDown(ctx, name) })
}

// KeyUp releases a key.
func (p *Page) KeyUp(ctx context.Context, name string) error {
	return p.inputCall(ctx, "Keyboard.up", func(ctx context.Context) error { return p.keyUp(ctx, name) })
}

// TypeText types a text key by key; characters that are not on the keyboard are inserted.
func (p *Page) TypeText(ctx context.Context, text string) error {
	return p.inputCall(ctx, "Keyboard.type", func(ctx context.Context) error { return p.typeText(ctx, text) })
}

// InsertText inserts a text at the focus, as one change and without key events.
func (p *Page) InsertText(ctx context.Context, text string) error {
	return p.inputCall(ctx, "Keyboard.insert_text", func(ctx context.Context) error { return p.insert(ctx, text) })
}

func (p *Page) insert(ctx context.Context, text string) error {
	_, err := p.call(ctx, "Input.insertText", map[string]any{"text": text})
	return err
}

func (p *Page) typeText(ctx context.Context, text string) error {
	for _, r := range text {
		var err error
		if layout[string(r)] != nil {
			err = p.pressKey(ctx, string(r))
		} else {
			err = p.insert(ctx, string(r))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Page) pressKey(ctx context.Context, keys string) error {
	all := tokens(keys)
	for _, k := range all {
		if err := p.keyDown(ctx, k); err != nil {
			return err
		}
	}
	for i := len(all) - 1; i >= 0; i-- {
		if err := p.keyUp(ctx, all[i]); err != nil {
			return err
		}
	}
	return nil
}

// setModifiers presses the wanted modifiers and releases the others. It returns those that were
// held before.
func (p *Page) setModifiers(ctx context.Context, wanted []string) (was []string, err error) {
	want := map[string]bool{}
	for _, w := range wanted {
		if w == "ControlOrMeta" {
			w = "Control"
		}
		want[w] = true
	}
	for _, m := range modifierBits {
		if p.input.held[m.name] {
			was = append(was, m.name)
		}
	}
	for _, m := range modifierBits {
		switch held := p.input.held[m.name]; {
		case want[m.name] && !held:
			err = p.keyDown(ctx, m.name)
		case !want[m.name] && held:
			err = p.keyUp(ctx, m.name)
		}
		if err != nil {
			return nil, err
		}
	}
	return was, nil
}

// keyEvent is Input.dispatchKeyEvent's parameters.
type keyEvent struct {
	Type       string `json:"type"`
	Modifiers  int    `json:"modifiers"`
	Number     int    `json:"windowsVirtualKeyCode"`
	Code       string `json:"code"`
	Key        string `json:"key"`
	Text       string `json:"text,omitempty"`
	Unmodified string `json:"unmodifiedText,omitempty"`
	Repeat     bool   `json:"autoRepeat,omitempty"`
	Location   int    `json:"location"`
	Keypad     bool   `json:"isKeypad,omitempty"`
}

// badKey is a name that is not the name of a key.
type badKey string

func (k badKey) Error() string { return `Unknown key: "` + string(k) + `"` }

// describe looks up a key and returns it as changed by the held modifiers.
func (in *input) describe(name string) (key, error) {
	if name == "ControlOrMeta" {
		name = "Control"
	}
	k := layout[name]
	if k == nil {
		return key{}, badKey(name)
	}
	d := *k
	if in.held["Shift"] && k.shifted != nil {
		d = *k.shifted
	}
	if len(in.held) > 1 || len(in.held) == 1 && !in.held["Shift"] {
		d.text = "" // with any modifier except Shift it is a command
	}
	return d, nil
}

func (p *Page) keyDown(ctx context.Context, name string) error {
	in := &p.input
	k, err := in.describe(name)
	if err != nil {
		return err
	}
	if in.keys == nil {
		in.keys, in.held = map[string]bool{}, map[string]bool{}
	}
	repeat := in.keys[k.code]
	in.keys[k.code] = true
	if isModifier(k.key) {
		in.held[k.key] = true
	}
	if k.code == "Escape" {
		if dragged, err := p.cancelDrag(ctx); dragged || err != nil {
			return err
		}
	}
	e := keyEvent{Type: "rawKeyDown", Modifiers: in.modifiers(), Number: k.number, Code: k.code, Key: k.key,
		Text: k.text, Unmodified: k.text,
		Repeat: repeat, Location: k.location, Keypad: k.location == 3}
	if k.text != "" {
		e.Type = "keyDown"
	}
	if k.text == "" || k.text == " " {
		in.delayedEffects = true
	}
	_, err = p.call(ctx, "Input.dispatchKeyEvent", e)
	return err
}

func (p *Page) keyUp(ctx context.Context, name string) error {
	in := &p.input
	k, err := in.describe(name)
	if err != nil {
		return err
	}
	if isModifier(k.key) {
		delete(in.held, k.key)
	}
	delete(in.keys, k.code)
	_, err = p.call(ctx, "Input.dispatchKeyEvent",
		keyEvent{Type: "keyUp", Modifiers: in.modifiers(), Number: k.number, Code: k.code, Key: k.key,
			Location: k.location})
	return err
}
