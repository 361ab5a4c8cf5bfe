package sandbox

// A Kind is a driver that a configuration can name.
type Kind struct {
	Name string
	Doc  string // one line, for help and completion

	// Hidden: help and completion do not list it, as it is for tests.
	Hidden bool
	// Auto: the driver may be chosen for a task without being asked for.
	Auto bool
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
