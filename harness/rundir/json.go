package rundir

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/fsutil"
)

const partial = fsutil.Partial

// readJSON reads a file that contains a version and returns its SHA-256. It checks the version
// first, because a newer format may not fit v.
func readJSON(name string, version *int, v any) (sum string, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	var head struct{ V int }
	if err := json.Unmarshal(data, &head); err == nil && head.V > Version {
		return "", fmt.Errorf("%s was %w (form %d, this program reads up to %d): use that one", filepath.Base(name),
			ErrNewer, head.V, Version)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return "", fmt.Errorf("%s %w: %w", filepath.Base(name), ErrDamaged, err)
	}
	if *version == 0 {
		return "", fmt.Errorf("%s %w: it says no version", filepath.Base(name), ErrDamaged)
	}
	return digest(data), nil
}

// writeJSON writes a file atomically and returns its SHA-256. Readers see the old or the new
// content, even after a crash.
func writeJSON(name string, v any) (sum string, err error) {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return "", err
	}
	data = append(data, '\n')
	return digest(data), fsutil.WriteFile(name, data)
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
