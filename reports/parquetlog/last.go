package parquetlog

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// Last returns the last journal entry contained in the tables of the run in dir, and the path of
// the file that records it. seq is 0 if this is unknown.
func Last(dir string) (seq int64, file string) {
	file = filepath.Join("parquet", stateName)
	data, err := os.ReadFile(filepath.Join(dir, file))
	var st state
	if err != nil || json.Unmarshal(data, &st) != nil {
		return 0, file
	}
	return st.Last, file
}
