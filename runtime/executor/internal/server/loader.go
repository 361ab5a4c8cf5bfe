package server

import (
	"encoding/binary"
	"io"
	"strings"
)

// loader returns the name of the loader that an ELF program asks for (PT_INTERP). Package debug/elf
// would be a large part of this program.
func loader(f io.ReaderAt) string {
	var head [64]byte
	if n, _ := f.ReadAt(head[:], 0); n < 52 || string(head[:4]) != "\x7fELF" || head[5] != 1 /* little endian */ {
		return ""
	}
	le := binary.LittleEndian
	long := head[4] == 2 // 64 bit
	at, size, count := uint64(le.Uint32(head[28:])), le.Uint16(head[42:]), le.Uint16(head[44:])
	if long {
		at, size, count = le.Uint64(head[32:]), le.Uint16(head[54:]), le.Uint16(head[56:])
	}
	for i := range uint64(min(count, 512)) {
		var p [56]byte // a program header, of 32 bytes with 32 bit
		if n, _ := f.ReadAt(p[:], int64(at+i*uint64(size))); n < 32 {
			return ""
		}
		if le.Uint32(p[:]) != 3 /* PT_INTERP */ {
			continue
		}
		from, n := uint64(le.Uint32(p[4:])), uint64(le.Uint32(p[16:]))
		if long {
			from, n = le.Uint64(p[8:]), le.Uint64(p[32:])
		}
		b := make([]byte, min(n, 4096))
		k, _ := f.ReadAt(b, int64(from))
		name, _, _ := strings.Cut(string(b[:k]), "\x00")
		return name
	}
	return ""
}
