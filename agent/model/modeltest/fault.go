package modeltest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"
)

// A Fault responds instead of next, or damages next's response.
type Fault func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Status responds with an error in OpenAI's format. Headers are name, value, name, value …
func Status(status int, code, message string, headers ...string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-Id", "req_fault")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"message":%q,"type":%q,"param":null,"code":%q}}`, message, code, code)
	}
}

// Faults of real services.
var (
	Rate  = Status(429, "rate_limit_exceeded", "Rate limit reached for requests")
	Quota = Status(429, "insufficient_quota",
		"You exceeded your current quota, please check your plan and billing details.")
	ServerError = Status(500, "server_error", "The server had an error while processing your request")
	Overloaded  = Status(529, "overloaded_error", "Overloaded")
	BadKey      = Status(401, "invalid_api_key", "Incorrect API key provided")
	NoAccess    = Status(403, "permission_denied", "This key may not use this model")
	TooLong     = Status(400, "context_length_exceeded", "This model's maximum context length is 8192 tokens.")
	Filtered    = Status(400, "content_filter",
		"The response was filtered due to the prompt triggering the content management policy.")
	BadRequest = Status(400, "invalid_request_error", "Unsupported parameter: 'temperature'")
)

// RateSeconds is a 429 with Retry-After in seconds.
func RateSeconds(d time.Duration) Fault {
	return Status(429, "rate_limit_exceeded", "Rate limit reached", "Retry-After",
		strconv.FormatFloat(d.Seconds(), 'f', -1, 64))
}

// RateMillis is a 429 with retry-after-ms, and a Retry-After that would be rounded.
func RateMillis(d time.Duration) Fault {
	return Status(429, "rate_limit_exceeded", "Rate limit reached",
		"Retry-After-Ms", strconv.FormatInt(d.Milliseconds(), 10), "Retry-After", strconv.Itoa(int(d.Seconds())+1))
}

// RateDate is a 429 with a date as Retry-After.
func RateDate(d time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		now := time.Now().UTC()
		Status(429, "rate_limit_exceeded", "Rate limit reached",
			"Date", now.Format(http.TimeFormat), "Retry-After", now.Add(d).Format(http.TimeFormat))(w, r, next)
	}
}

// Cut sends the first half of next's response and closes the connection. If length is set, the
// response has a Content-Length.
func Cut(length bool) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, r)
		body := rec.Body.Bytes()
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		head := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
		if length {
			head += "Content-Length: " + strconv.Itoa(len(body)) + "\r\n"
		}
		_, _ = buf.WriteString(head + "\r\n")
		_, _ = buf.Write(body[:len(body)/2])
		_ = buf.Flush()
	}
}

// Drop closes the connection without a response.
func Drop(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		conn.Close()
	}
}

// Body responds with a text and status 200.
func Body(contentType, text string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(text))
	}
}

// Bodies that are not valid replies.
var (
	InvalidJSON  = Body("application/json", `{"id":"x","choices":[{"message":{"role":"assistant","content":"hel`)
	HTML         = Body("text/html", "<html><body>Gateway says hello</body></html>")
	EmptyChoices = Body("application/json",
		`{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[]}`)
	EmptyBody = Body("application/json", "")
	// WrappedRate is the form in which routers pass on an upstream error.
	WrappedRate = Body("application/json", `{"error":{"code":429,"message":"upstream is busy"}}`)
)

// Slow waits for d, or until the caller has gone, before next responds.
func Slow(d time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			next.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}
}

// RawStatus responds with a status and an unchanged body.
func RawStatus(status int, body string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}
