package table

// UnpacksTo sets how large any packed file may become, and returns what it was.
func UnpacksTo(n int64) (was int64) {
	was, unpacksTo = unpacksTo, n
	return was
}
