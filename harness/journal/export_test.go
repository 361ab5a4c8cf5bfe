package journal

import (
	"fmt"
	"hash/crc32"
)

// Seal returns a journal line with any content.
func Seal(seq int64, e string) string {
	return fmt.Sprintf(`{"seq":%d,"crc":"%08x","e":%s}`+"\n", seq, crc32.Checksum([]byte(e), castagnoli), e)
}

// Datasync is the function that a commit calls.
var Datasync = datasync
