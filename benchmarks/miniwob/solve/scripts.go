package solve

var scripts = map[string]script{
	"click-test":   func(p *player) error { return p.press(tag("button")) },
	"click-test-2": func(p *player) error { return p.press(tag("button"), says("one")) },
	"click-button": func(p *player) error { return p.press(tag("button"), says(p.name())) },
}
