package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/harness/record"
)

// Flags of a row, beside [benchmarks.FlagNoReward]; docs/grading.md explains each.
const (
	// FlagTolerant: reward.json held something else than numbers, which Harbor refuses.
	FlagTolerant = "tolerant_reward"
	// FlagNotRegular: where a reward or a report belongs lay a link, a pipe, a folder, a device, or
	// far too large a file.
	FlagNotRegular = "reward_not_regular"
)

// Names of Harbor's errors, as its users know them.
const (
	errNotFound = "RewardFileNotFoundError"
	errEmpty    = "RewardFileEmptyError"
	errParse    = "VerifierOutputParseError"
	errTimeout  = "VerifierTimeoutError"
)

// rewardKey is the reward that counts, where there are several.
const rewardKey = "reward"

const (
	maxReward = 1 << 20                  // bytes of a reward file
	maxKeys   = benchmarks.MaxScores - 1 // their mean may be added
)

// A rewardError says why there is no reward, with the name that Harbor has for it.
type rewardError struct{ Name, Text string }

func (e *rewardError) Error() string { return e.Name + ": " + e.Text }

// readRewards reads what a verifier wrote: reward.json, else reward.txt; nil is a file that is not
// there. The error is a *rewardError.
//
// Each number becomes a score. The primary one is "reward"; a single other key; of several others
// the mean, added as "mean". What is no number in reward.json becomes a score without a value, its
// text kept, and a flag; when there is no number at all, reward.txt decides.
func readRewards(jsonFile, txtFile []byte) ([]record.Score, []string, error) {
	if jsonFile == nil && txtFile == nil {
		return nil, nil, &rewardError{errNotFound,
			"the verifier wrote neither reward.json nor reward.txt in /logs/verifier"}
	}
	if jsonFile == nil {
		v, err := rewardTxt(txtFile)
		if err != nil {
			return nil, nil, err
		}
		return []record.Score{{Name: rewardKey, Primary: true, Value: &v}}, nil, nil
	}
	scores, numbers, err := rewardJSON(jsonFile)
	if err != nil {
		return nil, nil, err
	}
	var flags []string
	if numbers < len(scores) || numbers == 0 {
		flags = append(flags, FlagTolerant)
	}
	if numbers == 0 {
		if txtFile == nil {
			return nil, nil, &rewardError{errParse, "reward.json holds no number, and there is no reward.txt"}
		}
		v, err := rewardTxt(txtFile)
		if err != nil {
			return nil, nil, err
		}
		scores = slices.DeleteFunc(scores, func(s record.Score) bool { return s.Name == rewardKey })
		return append([]record.Score{{Name: rewardKey, Primary: true, Value: &v,
			Why: "from reward.txt: reward.json holds no number"}}, scores...), flags, nil
	}
	return withPrimary(scores), flags, nil
}

// withPrimary marks the score that counts; at least one has a value.
func withPrimary(scores []record.Score) []record.Score {
	first, n, sum := -1, 0, 0.0
	for i, s := range scores {
		if s.Value == nil {
			continue
		}
		if s.Name == rewardKey {
			scores[i].Primary = true
			return scores
		}
		if first < 0 {
			first = i
		}
		n++
		sum += *s.Value
	}
	if n == 1 {
		scores[first].Primary = true
		return scores
	}
	mean := bounded(sum / float64(n))
	return append([]record.Score{{Name: "mean", Primary: true, Value: &mean,
		Why: fmt.Sprintf("of %d rewards, none of which is called %s", n, rewardKey)}}, scores...)
}

// rewardJSON reads a flat object, in its own order.
func rewardJSON(raw []byte) (scores []record.Score, numbers int, err error) {
	bad := func(format string, args ...any) ([]record.Score, int, error) {
		return nil, 0, &rewardError{errParse, "reward.json " + fmt.Sprintf(format, args...)}
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, 0, &rewardError{errEmpty, "reward.json is empty"}
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return bad("is not a JSON object: %s", score.Clip(score.Clean(string(raw)), 100))
	}
	at := map[string]int{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return bad("is not JSON: %v", err)
		}
		var v any
		if err := dec.Decode(&v); err != nil {
			return bad("is not JSON: %v", err)
		}
		s := record.Score{Name: score.Clean(score.Clip(key.(string), 200))}
		switch v := v.(type) {
		case json.Number:
			f, err := strconv.ParseFloat(string(v), 64)
			if err != nil || !usable(f) {
				return bad("holds %s, which is too large for a reward", score.Clip(string(v), 40))
			}
			s.Value = &f
		case bool: // as in Python a truth is 1
			f := 0.0
			if v {
				f = 1
			}
			s.Value, s.Text = &f, strconv.FormatBool(v)
		case string:
			s.Text = score.Clip(score.Clean(v), 2000)
		default:
			b, _ := json.Marshal(v)
			s.Text = score.Clip(score.Clean(string(b)), 2000)
		}
		if i, again := at[s.Name]; again { // the last counts, as in Python
			scores[i] = s
			continue
		}
		if len(scores) == maxKeys {
			return bad("has more than %d keys", maxKeys)
		}
		at[s.Name] = len(scores)
		scores = append(scores, s)
	}
	if _, err := dec.Token(); err != nil {
		return bad("is not JSON: %v", err)
	}
	if dec.More() {
		return bad("goes on after its object")
	}
	for _, s := range scores {
		if s.Value != nil {
			numbers++
		}
	}
	return scores, numbers, nil
}

// usable reports whether a number can be a score: it is finite and not too large.
func usable(f float64) bool { return math.Abs(f) <= benchmarks.MaxScore }

// bounded clips a mean of usable numbers, since rounding may move it out of range.
func bounded(mean float64) float64 { return min(max(mean, -benchmarks.MaxScore), benchmarks.MaxScore) }

// pythonFloat is what Python's float takes, but for nan and inf.
var pythonFloat = regexp.MustCompile(`^[+-]?(\d+(_\d+)*\.?(\d+(_\d+)*)?|\.\d+(_\d+)*)([eE][+-]?\d+(_\d+)*)?$`)

func rewardTxt(raw []byte) (float64, error) {
	text := strings.TrimSpace(string(raw))
	if text == "" {
		return 0, &rewardError{errEmpty, "reward.txt is empty"}
	}
	if pythonFloat.MatchString(text) {
		if f, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64); err == nil && usable(f) {
			return f, nil
		}
	}
	return 0, &rewardError{errParse, fmt.Sprintf("reward.txt says %q, not one finite number",
		score.Clip(score.Clean(text), 100))}
}

// NoReward is the grade of a verifier without a verdict.
func NoReward(why string, flags ...string) benchmarks.Result {
	zero := 0.0
	return benchmarks.Result{
		Scores: []record.Score{{Name: rewardKey, Primary: true, Value: &zero, Why: score.Clip(score.Clean(why), 2500)}},
		Flags:  addFlags(nil, append([]string{benchmarks.FlagNoReward}, flags...)...),
	}
}

// addFlags adds flags that are not there yet.
func addFlags(list []string, flags ...string) []string {
	for _, f := range flags {
		if !slices.Contains(list, f) {
			list = append(list, f)
		}
	}
	return list
}

// Reduce makes a trial's result of its stages'. By "mean" it is, for each key, the mean over the
// stages that were played, a missing key counting 0; by "final" the last stage's. A stage whose
// verifier gave no reward counts 0 (Harbor leaves it out, which would make it worth more to break a
// verifier than to fail).
func Reduce(strategy string, stages []benchmarks.Result) (benchmarks.Result, error) {
	if len(stages) == 0 {
		return benchmarks.Result{}, errors.New("no stage was graded")
	}
	if len(stages) == 1 {
		return stages[0], nil
	}
	var out benchmarks.Result
	for _, r := range stages {
		out.Tests = append(out.Tests, r.Tests...)
		out.Flags = addFlags(out.Flags, r.Flags...)
	}
	last := stages[len(stages)-1]
	if strategy == "final" {
		out.Scores = last.Scores
		return out, nil
	}
	var names []string
	sums, whys := map[string]float64{}, map[string]string{}
	for i, r := range stages {
		lost := slices.Contains(r.Flags, benchmarks.FlagNoReward)
		for _, s := range r.Scores {
			if s.Value == nil || s.Primary && s.Name == "mean" {
				continue
			}
			if s.Why != "" && len(whys[s.Name]) < 2000 {
				whys[s.Name] += fmt.Sprintf("; step %d: %s", i+1, s.Why)
			}
			if lost && len(stages) > 1 {
				continue // its key stands for all
			}
			if _, known := sums[s.Name]; !known {
				names = append(names, s.Name)
			}
			sums[s.Name] += *s.Value
		}
	}
	if len(names) == 0 { // no stage has a reward
		out.Scores = last.Scores
		return out, nil
	}
	var scores []record.Score
	for _, name := range names {
		v := bounded(sums[name] / float64(len(stages)))
		scores = append(scores, record.Score{Name: name, Value: &v,
			Why: fmt.Sprintf("the mean of %d steps", len(stages)) + whys[name]})
	}
	scores = withPrimary(scores)
	primary := slices.IndexFunc(scores, func(s record.Score) bool { return s.Primary })
	scores[primary].TimedOut = slices.ContainsFunc(stages, func(r benchmarks.Result) bool {
		return slices.ContainsFunc(r.Scores, func(s record.Score) bool { return s.TimedOut })
	})
	if more := len(scores) - benchmarks.MaxScores; more > 0 { // each step may have keys of its own
		scores[0], scores[primary] = scores[primary], scores[0]
		scores = scores[:benchmarks.MaxScores]
		scores[0].Why += fmt.Sprintf("; %d more keys were left out", more)
	}
	out.Scores = scores
	return out, nil
}
