package sandbox

// A Kind is a driver that a configuration can name.
type Kind struct {
	Name string
	Doc  string // one line, for help and completion
	Hint string // what to do where the driver does not work

	Images     bool // it makes machines of images
	NeedsImage bool // and of nothing else
	Unisolated bool // what runs can do all that the user can do
	Test       bool // for tests: help does not list it, and its machines take no memory

	// Takes reports whether the driver should make a machine that asks for none by name, and Need
	// is what it then gives ("a container engine for an image"). Nil: never.
	Takes func(Spec) bool
	Need  string
	// Defaults fills in what a spec leaves to the driver. Nil: it sets no limits.
	Defaults func(*Spec)
	// Open makes the driver. It may fail later: see [Driver.Probe].
	Open func(Setup) (Driver, error)
}

// A Setup is what a run says to its drivers.
type Setup struct {
	// Images says how images are made ready, for drivers that do so; see package runtime/image.
	Images any
}
