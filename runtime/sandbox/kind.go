package sandbox

// A Kind is a driver that a configuration can name.
type Kind struct {
	Name string
	Doc  string // one line, for help and completion
	Hint string // what to do if the driver does not work

	Images     bool // it supports images
	NeedsImage bool // it supports nothing but images
	Unisolated bool // no isolation: commands can do all that the user can do
	Slow       bool // starting a sandbox takes long enough that it is worth being done ahead
	Test       bool // for tests: not listed by help, and its sandboxes use no memory

	// Takes reports whether the driver should create a sandbox for which the configuration names no
	// driver. Need is what it provides then ("a container engine for an image"). Nil: never.
	Takes func(Spec) bool
	Need  string
	// Defaults fills in the defaults of a spec. Nil: it sets no limits.
	Defaults func(*Spec)
	// Open creates the driver. Whether it works is checked later by [Driver.Probe].
	Open func(Setup) (Driver, error)
}

// A Setup is what a run configures for its drivers.
type Setup struct {
	// Images configures the preparation of images, for drivers that support them; see package
	// runtime/image.
	Images any
}
