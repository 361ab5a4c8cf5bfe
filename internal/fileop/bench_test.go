package fileop

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// An edit of a file of 1 MB, as the process in the sandbox does it, beside reading and writing it.
func BenchmarkEdit(b *testing.B) {
	a, z := strings.Repeat("x", 70)+"a\n", strings.Repeat("x", 70)+"z\n"
	rest := strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz\n", 1<<19/37)
	name := b.TempDir() + "/f"
	b.Run("edit", func(b *testing.B) {
		os.WriteFile(name, []byte(rest+a+rest), 0o644)
		for i := range b.N {
			op := sandbox.FileOp{Op: sandbox.FileReplace, Path: name, Old: a, Text: z}
			if i%2 == 1 {
				op.Old, op.Text = z, a
			}
			req, _ := json.Marshal(op)
			var out bytes.Buffer
			if err := Serve(bytes.NewReader(req), &out); err != nil || bytes.Contains(out.Bytes()[:100], []byte(`"error"`)) {
				b.Fatal(err, out.String()[:100])
			}
		}
	})
	b.Run("floor", func(b *testing.B) {
		for range b.N {
			text, _ := os.ReadFile(name)
			os.WriteFile(name, text, 0o644)
			io.Discard.Write(text)
		}
	})
}
