// Package compose reads the part of the compose format that tasks use, and converts it to sandbox
// specs. It does not use an engine's own compose implementation: keys on the list of known keys are
// interpreted, keys without effect here cause a warning, and all others are refused by name and
// position. Variables come from the caller only, never from this machine's environment.
//
//	o := compose.Options{Main: []string{"main"}, Vars: vars}
//	p, err := compose.Read(files, "docker-compose.yaml", o)
//
// Files are not trusted: their size, depth, aliases and growth by interpolation are limited.
package compose
