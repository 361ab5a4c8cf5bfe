package image

// Dir is the folder that a store keeps its records in.
func Dir(s *Store) string { return s.dir() }
