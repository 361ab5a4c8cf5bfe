package export

import (
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/reports/schema"
)

// The built-in formats: one file <table>.<format> per table.
var (
	JSONL = Kind{Name: "jsonl", Doc: "one JSON object per row; null columns are left out",
		Open: func(s Setup) (Exporter, error) { return newTexts(s, "jsonl", appendJSON) }}
	CSV = Kind{Name: "csv", Doc: "RFC 4180; lists and maps as JSON; a text that a spreadsheet would take for a " +
		"formula begins with '",
		Open: func(s Setup) (Exporter, error) { return newTexts(s, "csv", appendCSV) }}
)

// texts writes one file per table.
type texts struct {
	files map[string]io.Writer
	add   func(dst []byte, fs []field, row any) []byte
	line  []byte
}

func newTexts(s Setup, suffix string, add func([]byte, []field, any) []byte) (*texts, error) {
	x := &texts{files: map[string]io.Writer{}, add: add}
	for _, t := range s.Tables {
		f, err := s.Create(t + "." + suffix)
		if err != nil {
			return nil, err
		}
		x.files[t] = f
		if suffix == "csv" {
			if _, err := io.WriteString(f, header(t)); err != nil {
				return nil, err
			}
		}
	}
	return x, nil
}

func (x *texts) Write(r *Rows) error {
	return cmp.Or(
		write(x, "arms", r.Arms), write(x, "tasks", r.Tasks), write(x, "trials", r.Trials),
		write(x, "attempts", r.Attempts),
		write(x, "events", r.Events), write(x, "model_calls", r.Calls), write(x, "scores", r.Scores),
		write(x, "tests", r.Tests), write(x, "changes", r.Changes),
	)
}

func write[T any](x *texts, table string, rows []T) error {
	fs := fieldsOf[T]()
	for i := range rows {
		x.line = x.add(x.line[:0], fs, &rows[i])
		if _, err := x.files[table].Write(x.line); err != nil {
			return err
		}
	}
	return nil
}

func (x *texts) Close() error { return nil }

// A field is a column of a row type.
type field struct {
	name  string
	index int
}

var fieldCache sync.Map // reflect.Type → []field

func fieldsOf[T any]() []field { return fields(reflect.TypeFor[T]()) }

func fields(t reflect.Type) []field {
	if fs, ok := fieldCache.Load(t); ok {
		return fs.([]field)
	}
	var fs []field
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("parquet"), ",")
		fs = append(fs, field{name, i})
	}
	fieldCache.Store(t, fs)
	return fs
}

var types = map[string]reflect.Type{
	"trials": reflect.TypeFor[schema.Trial](), "attempts": reflect.TypeFor[schema.Attempt](),
	"events":      reflect.TypeFor[schema.Event](),
	"model_calls": reflect.TypeFor[schema.ModelCall](), "scores": reflect.TypeFor[schema.Score](),
	"tests": reflect.TypeFor[schema.Test](), "changes": reflect.TypeFor[schema.Change](),
	"tasks": reflect.TypeFor[schema.Task](), "arms": reflect.TypeFor[schema.Arm](),
}

func header(table string) string {
	var names []string
	for _, f := range fields(types[table]) {
		names = append(names, f.name)
	}
	return strings.Join(names, ",") + "\r\n"
}

// null reports whether v is null. If not, it returns the value that v points to.
func null(v reflect.Value) (reflect.Value, bool) {
	switch v.Kind() {
	case reflect.Pointer:
		return v.Elem(), v.IsNil()
	case reflect.Slice, reflect.Map:
		return v, v.Len() == 0
	}
	return v, false
}

func appendJSON(dst []byte, fs []field, row any) []byte {
	v := reflect.ValueOf(row).Elem()
	dst = append(dst, '{')
	first := true
	for _, f := range fs {
		x, no := null(v.Field(f.index))
		if no {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, '"')
		dst = append(dst, f.name...)
		dst = append(dst, `":`...)
		dst = appendValue(dst, x)
	}
	return append(dst, "}\n"...)
}

const timeForm = "2006-01-02T15:04:05.000000Z"

func appendValue(dst []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.String:
		return event.AppendString(dst, v.String())
	case reflect.Bool:
		return strconv.AppendBool(dst, v.Bool())
	case reflect.Int32, reflect.Int64:
		return strconv.AppendInt(dst, v.Int(), 10)
	case reflect.Uint64:
		return strconv.AppendUint(dst, v.Uint(), 10)
	case reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			return append(dst, "null"...) // JSON has neither NaN nor infinities
		}
		return strconv.AppendFloat(dst, v.Float(), 'g', -1, 64)
	case reflect.Slice:
		dst = append(dst, '[')
		for i := range v.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendValue(dst, v.Index(i))
		}
		return append(dst, ']')
	case reflect.Map:
		m := v.Interface().(map[string]string)
		dst = append(dst, '{')
		for i, k := range slices.Sorted(maps.Keys(m)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(event.AppendString(dst, k), ':')
			dst = event.AppendString(dst, m[k])
		}
		return append(dst, '}')
	case reflect.Struct:
		if t, ok := v.Interface().(time.Time); ok {
			dst = append(dst, '"')
			return append(t.UTC().AppendFormat(dst, timeForm), '"')
		}
		p := reflect.New(v.Type())
		p.Elem().Set(v)
		dst = appendJSON(dst, fields(v.Type()), p.Interface())
		return dst[:len(dst)-1] // without the newline
	}
	b, err := json.Marshal(v.Interface())
	if err != nil {
		return append(dst, "null"...)
	}
	return append(dst, b...)
}

func appendCSV(dst []byte, fs []field, row any) []byte {
	v := reflect.ValueOf(row).Elem()
	for i, f := range fs {
		if i > 0 {
			dst = append(dst, ',')
		}
		x, no := null(v.Field(f.index))
		if no {
			continue
		}
		switch x.Kind() {
		case reflect.String:
			dst = appendCell(dst, x.String())
		case reflect.Slice, reflect.Map:
			dst = appendCell(dst, string(appendValue(nil, x)))
		case reflect.Struct:
			dst = append(dst, strings.Trim(string(appendValue(nil, x)), `"`)...)
		default:
			dst = appendValue(dst, x)
		}
	}
	return append(dst, "\r\n"...)
}

// appendCell appends a text to a CSV row. A text that a spreadsheet would run as a formula is
// prefixed with an apostrophe, because the text may come from pages and models, and users open CSV
// files in a spreadsheet.
func appendCell(dst []byte, s string) []byte {
	if formula(s) {
		s = "'" + s
	}
	if s != "" && !strings.ContainsAny(s, "\",\r\n") && s == strings.TrimSpace(s) {
		return append(dst, s...)
	}
	dst = append(dst, '"')
	dst = append(dst, strings.ReplaceAll(s, `"`, `""`)...)
	return append(dst, '"')
}

// formula reports whether s begins like a formula, possibly after blanks, because some programs
// trim them.
func formula(s string) bool {
	if s != "" && (s[0] == '\t' || s[0] == '\r' || s[0] == '\n') {
		return true
	}
	r, _ := utf8.DecodeRuneInString(strings.TrimLeft(s, " \u00a0"))
	switch r {
	case '=', '+', '-', '@', '＝', '＋', '－', '＠', '|', '%':
		return true
	}
	return false
}
