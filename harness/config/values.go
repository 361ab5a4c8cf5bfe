package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/runtime/egress"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Duration is written as "90s", "10m" or "1h30m". A number without a unit is refused.
type Duration time.Duration

func (d Duration) D() time.Duration { return time.Duration(d) }

func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// durationForm is stricter than time.ParseDuration: 1us is more likely a mistake than meant.
var durationForm = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$`)

func (d *Duration) Set(text string) error {
	v, err := time.ParseDuration(text)
	if err == nil && v >= 0 && !durationForm.MatchString(text) {
		err = errors.New("another form")
	}
	if err != nil {
		return fmt.Errorf("%q is not a duration", text)
	}
	if v < 0 {
		return fmt.Errorf("the duration %s is negative", text)
	}
	*d = Duration(v)
	return nil
}

func (Duration) Notation() (string, string, string) {
	return "a duration", durationForm.String(), "90s, 10m or 1h30m"
}

// A Size is in bytes, written as "512MiB" or "2GB".
type Size int64

var sizeUnits = []struct {
	name string
	n    int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3},
	{"T", 1 << 40}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}, {"k", 1 << 10},
	{"B", 1},
}

func (s Size) String() string {
	for _, u := range sizeUnits[:4] {
		if s != 0 && int64(s)%u.n == 0 {
			return strconv.FormatInt(int64(s)/u.n, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// Human returns the size for display: "18.1 GiB".
func (s Size) Human() string {
	for _, u := range sizeUnits[:4] {
		if int64(s) >= u.n {
			return strings.TrimSuffix(strconv.FormatFloat(float64(s)/float64(u.n), 'f', 1, 64), ".0") + " " + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + " B"
}

func (s Size) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// ParseSize parses a size such as 512MiB.
func ParseSize(text string) (Size, error) {
	var s Size
	err := s.Set(text)
	return s, err
}

func (s *Size) Set(text string) error {
	for _, u := range sizeUnits {
		num, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
		if err != nil || f < 0 || math.IsNaN(f) || f*float64(u.n) >= 1<<63 {
			break
		}
		*s = Size(f * float64(u.n))
		return nil
	}
	return fmt.Errorf("%q is not a size", text)
}

func (Size) Notation() (string, string, string) {
	return "a size", `^[0-9]+(\.[0-9]+)? ?([KMGT]i?B?|kB|k|B)$`, "512MiB or 2GB"
}

// A Count is an integer that may be written as 200k or 2M.
type Count int64

func (c Count) String() string { return strconv.FormatInt(int64(c), 10) }

func (c *Count) Set(text string) error {
	num, unit := text, 1.0
	switch {
	case strings.HasSuffix(text, "k"):
		num, unit = strings.TrimSuffix(text, "k"), 1e3
	case strings.HasSuffix(text, "M"):
		num, unit = strings.TrimSuffix(text, "M"), 1e6
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(num, "_", ""), 64)
	f *= unit
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<53 {
		return fmt.Errorf("%q is not a whole number", text)
	}
	if f < 0 {
		return fmt.Errorf("%s is negative", text)
	}
	*c = Count(f)
	return nil
}

func (Count) Notation() (string, string, string) {
	return "a whole number", `^[0-9][0-9_]*(\.[0-9]+)?[kM]?$`, "200000, 200k or 2M"
}

// A Clock is a time of day, "06:00" in this machine's time zone, or a moment,
// "2026-11-22T06:00:00Z".
type Clock string

var clockForm = regexp.MustCompile(`^([01]?[0-9]|2[0-3]):[0-5][0-9]$`)

// ParseClock parses a time of day or a moment.
func ParseClock(text string) (Clock, error) {
	var c Clock
	err := c.Set(text)
	return c, err
}

// Moment returns the moment. ok is false for a time of day.
func (c Clock) Moment() (t time.Time, ok bool) {
	t, err := time.Parse(time.RFC3339, string(c))
	return t, err == nil
}

// Next returns the moment or, for a time of day, its next occurrence after now.
func (c Clock) Next(now time.Time) (time.Time, error) {
	if t, ok := c.Moment(); ok {
		return t, nil
	}
	t, err := time.Parse("15:04", string(c))
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time of day", string(c))
	}
	next := time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), 0, 0, now.Location())
	if !next.After(now) {
		next = time.Date(now.Year(), now.Month(), now.Day()+1, t.Hour(), t.Minute(), 0, 0, now.Location())
	}
	return next, nil
}

func (c *Clock) Set(text string) error {
	if _, err := time.Parse(time.RFC3339, text); err != nil && !clockForm.MatchString(text) {
		return fmt.Errorf("%q is not a time of day", text)
	}
	*c = Clock(text)
	return nil
}

func (Clock) Notation() (string, string, string) {
	return "a time of day", `^(([01]?[0-9]|2[0-3]):[0-5][0-9]|[0-9]{4}-[0-9]{2}-[0-9]{2}T.+)$`,
		"06:00 or 2026-11-22T06:00:00Z"
}

// A Secret is the reference ${NAME} to an environment variable, never the value, so that no file of
// ours contains one.
type Secret string

var secretForm = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*\}$`)

// Var returns the name of the variable, or "" if s is not a reference.
func (s Secret) Var() string {
	if len(s) < 4 {
		return ""
	}
	return string(s[2 : len(s)-1])
}

func (s *Secret) Set(text string) error {
	if !secretForm.MatchString(text) {
		return fmt.Errorf("a secret is written as a reference, never as its value")
	}
	*s = Secret(text)
	return nil
}

func (Secret) Notation() (string, string, string) {
	return "a reference to a variable", secretForm.String(), "${OPENAI_API_KEY}"
}

// A Shard is a part of the tasks: "2/8" is the second of eight.
type Shard plan.Shard

func (s Shard) IsZero() bool { return s.N == 0 }

func (s Shard) String() string { return plan.Shard(s).String() }

func (s Shard) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

func (s *Shard) Set(text string) error {
	shard, err := plan.ParseShard(text)
	*s = Shard(shard)
	return err
}

func (Shard) Notation() (string, string, string) { return "a shard", `^[0-9]+/[0-9]+$`, "2/8" }

// A Network is "none", "public", or a list of hosts that may be reached.
type Network struct {
	Mode  string
	Allow []string
}

func (n Network) IsZero() bool { return n.Mode == "" }

func (n Network) MarshalJSON() ([]byte, error) {
	if n.Mode == "allow" {
		return json.Marshal(n.Allow)
	}
	return json.Marshal(n.Mode)
}

func (n *Network) Set(text string) error {
	switch text {
	case "none", "public":
		*n = Network{Mode: text}
		return nil
	}
	return fmt.Errorf("network %q is unknown: none, public, or a list of hosts", text)
}

func (n *Network) SetList(hosts []string) error {
	if _, err := egress.Parse(sandbox.Network{Mode: "allow", Allow: hosts}); err != nil {
		var all []string
		for line := range strings.Lines(err.Error()) {
			// Redundant, because the error names the key.
			all = append(all, strings.TrimPrefix(strings.TrimSpace(line), "network: "))
		}
		return errors.New(strings.Join(all, "; "))
	}
	*n = Network{Mode: "allow", Allow: hosts}
	return nil
}

func (Network) Notation() (string, string, string) {
	return "a network policy", `^(none|public)$`, "none, public, or [example.com, cdn.example.com]"
}
