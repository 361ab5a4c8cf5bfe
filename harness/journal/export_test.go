package journal

import (
	"fmt"
	"hash/crc32"
)

// Seal makes a line of any content.
func Seal(seq int64, e string) string {
	return fmt.Sprintf(`{"seq":%d,"crc":"%08x","e":%s}`+"\n", seq, crc32.Checksum([]byte(e), castagnoli), e)
}

// Datasync is what a commit calls.
var Datasync = datasync
