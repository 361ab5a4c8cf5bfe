// Package compose reads the part of the compose format that tasks use, and makes sandbox specs of
// it. Nothing is handed to an engine's own compose: what is on the list of known keys is
// understood, what changes nothing here is noted, and all else is refused by its name and place.
// Variables are those that the caller declares, never this machine's.
//
//	p, err := compose.Read(files, "docker-compose.yaml", compose.Options{Main: []string{"main"}, Vars: vars})
//
// A file is hostile: its size, depth, aliases and the growth by interpolation are bounded.
package compose
