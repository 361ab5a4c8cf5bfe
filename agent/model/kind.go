package model

import (
	"net/http"
	"time"
)

// A Kind is a model vendor that a configuration can name, as NAME/MODEL.
type Kind struct {
	Name string
	Doc  string // one line, for help and completion

	// KeyVar and URLVar are the environment variables that usually hold the service's key and
	// address.
	KeyVar, URLVar string
	// URL is the address of the vendor's own service.
	URL string
	// Headers returns the additional headers that the vendor's own clients take from environment
	// variables. They are used together with the key in KeyVar. May be nil.
	Headers func(lookup func(string) (string, bool)) (map[string]string, error)
	// Open validates the configuration of a model. It makes no network requests.
	Open func(Service) (Factory, error)
}

// A Service is the configuration of a model.
type Service struct {
	Name    string // without the vendor's prefix
	BaseURL string
	Key     string            // "" if none is sent
	NoKey   string            // hint for the user on how to configure a key
	Headers map[string]string // may contain secrets
	Params  Params
	Window  int64 // in tokens; 0 if not known
	// NoImages reports that the model takes no images.
	NoImages bool
	Timeout  time.Duration // of one try
	HTTP     *http.Client  // shared by all models at one address
}

// Transport returns an HTTP client for thousands of concurrent calls. It opens as many connections
// as there are calls, reuses them, uses HTTP/2 if the server supports it, and honors the
// environment's proxy settings.
func Transport() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxConnsPerHost = 0
	t.MaxIdleConns = 0
	// With the default of two, all other connections to a host would be closed after their
	// response, and each later call would need a new handshake.
	t.MaxIdleConnsPerHost = 1 << 14
	t.IdleConnTimeout = 90 * time.Second
	return &http.Client{Transport: t}
}
