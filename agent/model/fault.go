package model

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/agent/event"
)

// Classes of errors.
const (
	Rate     = "rate"     // too many requests
	Overload = "overload" // the service is busy or broken
	Network  = "network"  // no whole answer came, or none in time
	Auth     = "auth"     // the key is missing, wrong or not allowed
	Quota    = "quota"    // money or an allowance is used up
	Missing  = "missing"  // the service knows no such model or address
	Refused  = "refused"  // the service will not answer this content
	Context  = "context"  // the conversation is too long
	Invalid  = "request"  // the request was malformed: ours, or a parameter that the model does not take
)

// A rule says what an error of a class means for the trial, and for the other calls of its arm.
type rule struct {
	provider bool // the service is to blame: the trial is no evidence
	retry    bool // the same call may work later
	pause    bool // every call of this model fails in this way until somebody acts: the arm begins no more trials
}

// rules holds every class. An error that is neither the provider's nor request (which is ours) is
// the arm's, and is scored.
var rules = map[string]rule{
	Rate:     {provider: true, retry: true},
	Overload: {provider: true, retry: true},
	Network:  {provider: true, retry: true},
	Auth:     {provider: true, pause: true},
	Quota:    {provider: true, pause: true},
	Missing:  {provider: true, pause: true},
	Refused:  {},
	Context:  {},
	Invalid:  {},
}

// Classify returns the class of an answer with an HTTP error status. said is what the service's own
// words name: [Context], [Refused], [Quota], or "" for nothing that is known. It counts only under
// the statuses that services use for it.
func Classify(status int, said string) string {
	may := func(classes ...string) bool { return slices.Contains(classes, said) }
	switch {
	case status == http.StatusPaymentRequired:
		return Quota
	case status == http.StatusUnauthorized:
		return Auth
	case status == http.StatusForbidden:
		if may(Quota, Refused) {
			return said
		}
		return Auth
	case status == http.StatusNotFound:
		return Missing
	case status == http.StatusTooManyRequests:
		if may(Quota) {
			return said
		}
		return Rate
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly:
		return Overload
	case status >= 500:
		if may(Context) { // llama.cpp
			return said
		}
		return Overload
	case status == http.StatusRequestEntityTooLarge: // without words it may be a proxy's limit
		if may(Context) {
			return said
		}
		return Invalid
	case may(Context, Refused, Quota):
		return said
	}
	return Invalid
}

// An Error says what went wrong with a call and, by its class, whose fault it was.
type Error struct {
	Class string
	After time.Duration // the service asked to wait so long; 0: it did not say
	HTTP  int           // the status that the answer had, or names where a router wraps one
	ID    string        // the provider's request id
	// Open is set where the service named a time that is too far away for a call to wait. The trial
	// is not decided: a resume plays it when that time has come.
	Open bool
	Err  error // never holds a key
}

func (e *Error) Error() string {
	if e.HTTP != 0 {
		return fmt.Sprintf("model: %s (HTTP %d): %v", e.Class, e.HTTP, e.Err)
	}
	return fmt.Sprintf("model: %s: %v", e.Class, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Provider reports whether the service is to blame.
func (e *Error) Provider() bool { return rules[e.Class].provider }

// Retry reports whether the same call may work later.
func (e *Error) Retry() bool { return rules[e.Class].retry }

// Pause reports whether the arm should begin no more trials, since they would fail in the same way
// until somebody acts or, with Open, until the time that the service has named.
func (e *Error) Pause() bool { return rules[e.Class].pause || e.Open }

// Refusal reports whether the service says that it gets too much: asking less often helps, and
// nothing is wrong with the call. Other errors of the class overload (500, 502 …) say nothing about
// the rate.
func (e *Error) Refusal() bool {
	return e.Class == Rate ||
		e.Class == Overload && (e.HTTP == http.StatusServiceUnavailable || e.HTTP == statusOverloaded)
}

const statusOverloaded = 529 // Anthropic's

// A Charge is the error of a try that brought no reply although the service bills it, or may. It
// wraps the error that says what went wrong.
type Charge struct {
	// Usage is what the service says that the try took or, with Bound, the most that it can have
	// taken.
	Usage event.Usage
	// Bound is set where the request was sent and the service has not said what it took.
	Bound bool
	Err   error
}

func (c *Charge) Error() string { return c.Err.Error() }
func (c *Charge) Unwrap() error { return c.Err }

// RetryAfter reads how long the service asks to wait: milliseconds, seconds, or a date, which is
// compared with the service's own clock where it tells it. 0: it does not say.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return seconds(ms / 1000)
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		return seconds(s)
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	if theirs, err := http.ParseTime(h.Get("Date")); err == nil {
		now = theirs
	}
	return max(at.Sub(now), 0)
}

// seconds bounds what a header says to a day, against overflow and NaN.
func seconds(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, 86400) * float64(time.Second))
}
