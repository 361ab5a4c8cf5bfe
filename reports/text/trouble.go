package text

import "github.com/evalrun/evalrun/harness/record"

// messagesShown is the maximum number of messages shown per kind of failure.
const messagesShown = 3

// shown returns the messages to show, and the number of trials with other messages.
func (x *Problem) shown() (ms []ProblemMessage, more int) {
	ms = x.Messages
	if ms == nil {
		return []ProblemMessage{{Text: x.Text, Count: x.Count, Trial: x.Trial}}, 0
	}
	if len(ms) > messagesShown {
		for _, m := range ms[messagesShown:] {
			more += m.Count
		}
		ms = ms[:messagesShown]
	}
	return ms, more
}

// kind describes what failed.
func (x *Problem) kind() string { return faultWords(record.Status(x.Status), x.Phase, x.Class) }

// faultWords describes who is responsible and what failed, in everyday words: "model service: rate
// limit".
func faultWords(status record.Status, phase, class string) string {
	switch status {
	case record.Scored:
		if class == noReward {
			return "no reward"
		}
		return "agent broke"
	case record.Provider:
		return "model service: " + modelWords(class)
	case record.Skipped:
		return "skipped"
	case record.Canceled:
		switch class {
		case "interrupted":
			return "cut off"
		case "fenced":
			return "taken over by another process"
		}
		return "stopped"
	case record.Infra:
		switch class {
		case "request": // to a model
			return "model service: " + modelWords(class)
		case "storage":
			return "storage failed"
		case "task":
			return "task cannot be played"
		case "panic":
			return "evalrun panicked"
		}
	}
	what := map[string]string{
		"image": "image", "start": "sandbox start", "setup": "set-up", "agent": "sandbox",
		"collect": "collecting evidence",
		"grade":   "grading", "close": "sandbox close", "session": "session",
	}[phase]
	if what == "" {
		what = string(status)
		if phase != "" {
			what += " (" + phase + ")"
		}
	}
	if class == "timeout" {
		return what + " took too long"
	}
	return what + " failed"
}

// modelWords describes the class of a model error.
func modelWords(class string) string {
	if w := map[string]string{
		"rate": "rate limit", "overload": "overloaded", "network": "no answer", "auth": "not authorized",
		"quota": "quota used up", "missing": "no such model",
		"refused": "content refused", "context": "conversation too long", "request": "request refused",
	}[class]; w != "" {
		return w
	}
	return class
}
