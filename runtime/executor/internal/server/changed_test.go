package server

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// What is read from a block is what was written, whatever the values: names are of any bytes, and
// programs may set any time.
func TestBlock(t *testing.T) {
	type entry struct {
		name  string
		state entryState
		dir   int32
	}
	rapid.Check(t, func(t *rapid.T) {
		var want, got []entry
		var b []byte
		for range rapid.IntRange(0, 5).Draw(t, "entries") {
			e := entry{name: string(rapid.SliceOfN(rapid.Byte(), 1, 255).Draw(t, "name")), dir: noDir}
			e.state = entryState{mode: rapid.SampledFrom([]uint32{0, unix.S_IFREG | 0o644, unix.S_IFDIR | 0o755,
				unix.S_IFIFO}).Draw(t, "mode"), uid: rapid.Uint32().Draw(t, "uid"), gid: 3}
			if e.state.isDir() {
				e.dir = rapid.Int32Range(0, 1<<30).Draw(t, "dir")
			} else {
				e.state.dev, e.state.ino = 7, rapid.Uint64().Draw(t, "ino")
				e.state.size, e.state.modified = rapid.Uint64().Draw(t, "size"), rapid.Int64().Draw(t, "modified")
				e.state.changedAt = -1
			}
			want = append(want, e)
			b = appendEntry(b, []byte(e.name), &e.state, e.dir)
		}
		r := blockReader{rest: b}
		for r.next(); r.ok; r.next() {
			got = append(got, entry{string(r.name), r.state, r.dir})
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v became %+v", want, got)
		}
	})
}
