package model

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/agent/event"
)

// Error classes.
const (
	Rate     = "rate"     // too many requests
	Overload = "overload" // the service is busy or broken
	Network  = "network"  // no complete response, or none before the timeout
	Auth     = "auth"     // the key is missing, wrong or not allowed
	Quota    = "quota"    // money or an allowance is used up
	Missing  = "missing"  // the account is out of money or quota
	Refused  = "refused"  // the service refuses this content
	Context  = "context"  // the conversation is too long
	Invalid  = "request"  // malformed request: our error, or a parameter that the model does not take
)

// A rule says what an error class means for the trial and for the other calls of its arm.
type rule struct {
	provider bool // the service is at fault; the trial is not evidence
	retry    bool // the same call may succeed later
	pause    bool // all calls of this model will fail until somebody acts; the arm starts no more trials
}

// rules has an entry for every class. Errors that are not the provider's are the arm's and are
// scored, except for class request, which is our own.
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

// Classify returns the class of a response with an HTTP error status. said is the class named by
// the service's own message: [Context], [Refused], [Quota], or "" if it is not known. It is used
// only under the statuses that services use for that class.
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
	case status == http.StatusRequestEntityTooLarge: // without a message this may be a proxy's limit
		if may(Context) {
			return said
		}
		return Invalid
	case may(Context, Refused, Quota):
		return said
	}
	return Invalid
}

// An Error describes a failed call. Its class says whether the service or the arm is at fault.
type Error struct {
	Class string
	After time.Duration // wait requested by the service; 0 if none
	HTTP  int           // HTTP status of the response, or the one named in it if a router wraps an error
	ID    string        // the provider's request ID
	// Open is set if the service asked for a wait longer than a call may take. The trial stays
	// undecided, and a resume after that time runs it again.
	Open bool
	Err  error // never contains a key
}

func (e *Error) Error() string {
	if e.HTTP != 0 {
		return fmt.Sprintf("model: %s (HTTP %d): %v", e.Class, e.HTTP, e.Err)
	}
	return fmt.Sprintf("model: %s: %v", e.Class, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Provider reports whether the service is at fault.
func (e *Error) Provider() bool { return rules[e.Class].provider }

// Retry reports whether the same call may succeed later.
func (e *Error) Retry() bool { return rules[e.Class].retry }

// Pause reports whether the arm should start no more trials, because they would fail in the same
// way until somebody acts or, if Open is set, until the time that the service named.
func (e *Error) Pause() bool { return rules[e.Class].pause || e.Open }

// Refusal reports whether the service says that it gets too many calls. The call itself is valid,
// and calling less often helps. Other errors of class overload (500, 502 …) say nothing about the
// rate.
func (e *Error) Refusal() bool {
	return e.Class == Rate ||
		e.Class == Overload && (e.HTTP == http.StatusServiceUnavailable || e.HTTP == statusOverloaded)
}

const statusOverloaded = 529 // used by Anthropic

// A Charge is the error of a try that returned no reply but that the service bills, or may bill. It
// wraps the error that says what went wrong.
type Charge struct {
	// Usage is what the service reports for the try or, if Bound is set, the maximum that the try
	// can have used.
	Usage event.Usage
	// Bound is set if the request was sent and the service has not reported its usage.
	Bound bool
	Err   error
}

func (c *Charge) Error() string { return c.Err.Error() }
func (c *Charge) Unwrap() error { return c.Err }

// RetryAfter returns the wait that the service asks for, given in milliseconds, in seconds or as a
// date. A date is compared with the service's own clock if the response has one. It returns 0 if
// the service asks for no wait.
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

// seconds converts a header value and limits it to a day, which also handles overflow and NaN.
func seconds(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, 86400) * float64(time.Second))
}
