// Package formats selects the reader of a file of rows by the file's name.
package formats

import (
	"fmt"
	"os"
	"strings"

	"github.com/evalrun/evalrun/datasets/csv"
	"github.com/evalrun/evalrun/datasets/jsonl"
	"github.com/evalrun/evalrun/datasets/parquet"
	"github.com/evalrun/evalrun/datasets/table"
)

// Open returns the rows of a file named .jsonl, .ndjson, .csv, .tsv (each with or without .gz) or
// .parquet, or of a folder of Parquet files.
func Open(path string) (table.File, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return parquet.OpenFolder(path), nil
	}
	name := strings.TrimSuffix(path, ".gz")
	switch {
	case strings.HasSuffix(name, ".jsonl"), strings.HasSuffix(name, ".ndjson"):
		return jsonl.Open(path), nil
	case strings.HasSuffix(name, ".csv"), strings.HasSuffix(name, ".tsv"):
		return csv.Open(path), nil
	case strings.HasSuffix(path, ".parquet"):
		return parquet.Open(path), nil
	}
	return nil, fmt.Errorf("%s: cannot tell its format by its name; known are .jsonl, .ndjson, .csv, .tsv, each with "+
		"or without .gz, and .parquet, and a folder of .parquet files", path)
}
