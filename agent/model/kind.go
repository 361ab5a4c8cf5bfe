package model

import (
	"net/http"
	"time"
)

// A Kind is a vendor whose models a configuration can name, as NAME/MODEL.
type Kind struct {
	Name string
	Doc  string // one line, for help and completion

	// KeyVar and URLVar are the variables that the key and the address of its service usually are
	// in.
	KeyVar, URLVar string
	// URL is the address of the vendor's own service.
	URL string
	// Headers are what the vendor's own clients send besides, from variables of the environment.
	// They belong to the key in KeyVar. Nil: none.
	Headers func(lookup func(string) (string, bool)) (map[string]string, error)
	// Open checks what is said of a model. It calls nobody.
	Open func(Service) (Factory, error)
}

// A Service is a model as it is configured.
type Service struct {
	Name    string // without the vendor
	BaseURL string
	Key     string            // "": none is sent
	NoKey   string            // what to write so that a key is sent
	Headers map[string]string // may hold secrets
	Params  Params
	Window  int64 // tokens; 0: not known
	// NoImages: the model takes none.
	NoImages bool
	Timeout  time.Duration // of one try
	HTTP     *http.Client  // shared by all models at one address
}

// Transport returns an HTTP client for thousands of calls at once: as many connections as there are
// calls, kept for reuse, HTTP/2 where the server has it, the environment's proxy.
func Transport() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxConnsPerHost = 0
	t.MaxIdleConns = 0
	// Without this, of n connections to a host all but two are closed after their reply, and each
	// next call pays a handshake.
	t.MaxIdleConnsPerHost = 1 << 14
	t.IdleConnTimeout = 90 * time.Second
	return &http.Client{Transport: t}
}
