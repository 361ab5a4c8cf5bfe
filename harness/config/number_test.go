package config

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
)

// jsonOf returns a value of a configuration as JSON, or the error.
func jsonOf(t *testing.T, yaml string) string {
	t.Helper()
	errs := new(errorList)
	n := parse("f", []byte("a: "+yaml+"\n"), errs)
	if err := errs.err(); err != nil {
		t.Fatalf("%s: %v", yaml, err)
	}
	b, err := n.Get("a").JSON()
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Numbers are those of YAML 1.2's core schema, which includes all of JSON's.
func TestNumbers(t *testing.T) {
	for in, want := range map[string]string{
		"1e-7": "1e-7", "-1e-7": "-1e-7", "1E3": "1E3", "1e+21": "1e+21", "+1e5": "100000", "1.0e-7": "1.0e-7",
		".5":     "0.5",
		"-.5e-7": "-5e-8", "1.": "1", "0o17": "15", "0x1f": "31", "017": "17", "08": "8", "1_000": "1000", "+1": "1",
		"-0":                     "-0",
		"100000000000000000000":  "100000000000000000000", // 1e20 as JSON
		"-100000000000000000000": "-100000000000000000000",
		`"1e-7"`:                 `"1e-7"`, "'1E3'": `"1E3"`, "'7'": `"7"`,
		"|\n  1e3": `"1e3\n"`, "1e": `"1e"`, "12e5abc": `"12e5abc"`, "e5": `"e5"`, ".": `"."`, "1.2.3": `"1.2.3"`,
		"1:30":  `"1:30"`,
		"1e400": "1e400 is not a number that can be held", "-1.5e400": "-1.5e400 is not a number that can be held",
	} {
		if got := jsonOf(t, in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// Every number in a plan is the same after it is stored and read back.
func TestNumbersRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	values := []float64{0, 1e-7, 1e-6, 9.999999e-7, 1e20, 1e21, 1 << 53, math.MaxFloat64, math.SmallestNonzeroFloat64,
		math.MaxInt64, math.MaxUint64}
	for range 20000 {
		values = append(values, math.Float64frombits(r.Uint64()))
	}
	for i, x := range values {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			continue
		}
		b, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		var raw float64
		if got := jsonOf(t, string(b)); json.Unmarshal([]byte(got), &raw) != nil || raw != x {
			t.Fatalf("%s is read as %s", b, got)
		}
		if i > 300 {
			continue
		}
		e, err := Parse(Source{Name: "f", Data: []byte("benchmark: qa:x\nsuccess: " + string(b) + "\n")},
			testRegistry())
		if err != nil {
			t.Fatal(err)
		}
		if e.File.Success == nil || *e.File.Success != x {
			t.Fatalf("success: %s is read as %v", b, e.File.Success)
		}
	}
}

// A number that is invalid for all arms is reported once, and not also as too small.
func TestNumberOneError(t *testing.T) {
	_, err := parseText(t, "benchmark: quickstart\n",
		Override{Flag: "--set pids", Path: "sandbox.pids", Values: []string{"1e30"}, YAML: true})
	if want := "--set pids: sandbox.pids: expected a whole number, found 1e30"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
