package parquetlog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Remains is the information in a run's tables about entries that its journal may have lost.
type Remains struct {
	Verdicts []int64 // the entries that decided the trials
	Tokens   int64   // of the calls that were billed
	USD      float64 // of calls with a known cost
	Unpriced int64   // tokens of the other calls
}

// Remain reads this information from the tables of the run in dir. Parts that cannot be read are
// skipped.
func Remain(dir string) (r Remains) {
	type verdict struct {
		Seq int64 `parquet:"seq"`
	}
	eachRow(filepath.Join(dir, "parquet", "trials"), func(vs []verdict) error {
		for _, v := range vs {
			r.Verdicts = append(r.Verdicts, v.Seq)
		}
		return nil
	})
	type call struct {
		TakenFrom  *string  `parquet:"taken_from,dict,optional"`
		TokensIn   int64    `parquet:"tokens_in"`
		TokensOut  int64    `parquet:"tokens_out"`
		Cost       *float64 `parquet:"cost_usd,optional"`
		ErrorClass *string  `parquet:"error_class,dict,optional"`
	}
	eachRow(filepath.Join(dir, "parquet", "model_calls"), func(cs []call) error {
		for _, c := range cs {
			if c.TakenFrom != nil || c.ErrorClass != nil {
				continue
			}
			r.Tokens += c.TokensIn + c.TokensOut
			if c.Cost != nil {
				r.USD += *c.Cost
			} else {
				r.Unpriced += c.TokensIn + c.TokensOut
			}
		}
		return nil
	})
	return r
}

// eachRow calls f with the rows of a table, as far as they can be read.
func eachRow[T any](dir string, f func([]T) error) {
	parts, _ := os.ReadDir(dir)
	for _, p := range parts {
		if strings.HasPrefix(p.Name(), tmpPrefix) || !strings.HasSuffix(p.Name(), ".parquet") {
			continue
		}
		_ = rowsOf(filepath.Join(dir, p.Name()), f)
	}
}

// rowsOf calls f with the rows of a part. parquet-go may panic on a damaged part.
func rowsOf[T any](name string, f func([]T) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s is damaged: %v", name, p)
		}
	}()
	in, err := openFile(name)
	if err != nil {
		return err
	}
	defer in.Close()
	for _, g := range in.RowGroups() {
		if err := readRows(g, f); err != nil {
			return err
		}
	}
	return nil
}
