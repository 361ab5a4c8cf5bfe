package journal

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPackEmpty: readers take an archive without lines for a damaged one.
func TestPackEmpty(t *testing.T) {
	name := filepath.Join(t.TempDir(), "0001.jsonl")
	if err := os.WriteFile(name, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := packFile(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(name + packed); err == nil {
		t.Error("an empty segment was compressed")
	}
}
