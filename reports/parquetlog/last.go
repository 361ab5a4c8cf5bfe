package parquetlog

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// Last is the last entry of the journal that the tables of the run in dir hold, and the file that
// says so; 0 where that is not known.
func Last(dir string) (seq int64, file string) {
	file = filepath.Join("parquet", stateName)
	data, err := os.ReadFile(filepath.Join(dir, file))
	var st state
	if err != nil || json.Unmarshal(data, &st) != nil {
		return 0, file
	}
	return st.Last, file
}
