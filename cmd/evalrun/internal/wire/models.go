package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/limit"
	"github.com/evalrun/evalrun/agent/model/meter"
	"github.com/evalrun/evalrun/agent/model/openai"
	"github.com/evalrun/evalrun/agent/model/price"
	"github.com/evalrun/evalrun/agent/model/retry"
	"github.com/evalrun/evalrun/agent/model/tape"
	"github.com/evalrun/evalrun/cmd/evalrun/internal/config"
)

// vendorKind is a vendor whose models can be named.
type vendorKind struct {
	config.Kind
	open func(o vendorOptions) (model.Factory, error)
}

type vendorOptions struct {
	name, key string
	m         *config.Model
	params    model.Params
	http      *http.Client
}

func vendorKinds() []vendorKind {
	return []vendorKind{
		{config.Kind{Name: "openai", KeyVar: "OPENAI_API_KEY", Doc: "OpenAI, and every server that speaks its chat completions (base_url)"}, openOpenAI},
	}
}

func openOpenAI(o vendorOptions) (model.Factory, error) {
	m, err := openai.New(openai.Config{Model: o.name, BaseURL: o.m.BaseURL, Key: o.key, Params: o.params, Window: o.m.Window, NoImages: o.m.Images != nil && !*o.m.Images, HTTP: o.http})
	if err != nil {
		return nil, err
	}
	return m.Client, nil
}

// models makes the factories of a run. What arms share (connections, limiters, tapes) it keeps.
type models struct {
	env   *config.Env
	pools *config.Pools
	dry   bool // nothing is called, so nothing is recorded

	mu       sync.Mutex
	https    map[string]*http.Client // by base URL
	limiters map[string]*limit.Limiter
	tapes    map[config.Tape]*tape.Tape
	records  map[string]*tape.Recorder
	say      func(string)    // to the user, while it runs; may be nil
	said     map[string]bool // by base URL: that it cannot be reached
}

func newModels(env *config.Env, pools *config.Pools, dry bool) *models {
	return &models{env: env, pools: pools, dry: dry, https: map[string]*http.Client{}, said: map[string]bool{}, limiters: map[string]*limit.Limiter{},
		tapes: map[config.Tape]*tape.Tape{}, records: map[string]*tape.Recorder{}}
}

func (s *models) http(url string) *http.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.https[url]
	if c == nil {
		c = openai.Transport()
		s.https[url] = c
	}
	return c
}

// limiter is the one of an account: vendor, address and key together.
func (s *models) limiter(m *config.Model, vendor string) *limit.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	account := vendor + " " + m.BaseURL + " " + m.Key.Var()
	l := s.limiters[account]
	if l == nil {
		most := m.Connections
		if most == 0 {
			most = s.pools.Connections
		}
		l = limit.New(limit.Config{Start: most, Max: most, Requests: m.PerMinute})
		s.limiters[account] = l
	}
	return l
}

func (s *models) tape(c *config.Tape) (*tape.Tape, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tapes[*c]
	if t == nil {
		var err error
		if t, err = tape.Open(c.File, tape.Options{Strict: !c.Loose}); err != nil {
			return nil, err
		}
		s.tapes[*c] = t
	}
	return t, nil
}

func (s *models) recorder(file string) (*tape.Recorder, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[file]
	if r == nil {
		var err error
		if r, err = tape.Create(file); err != nil {
			return nil, err
		}
		s.records[file] = r
	}
	return r, nil
}

// close ends tapes.
func (s *models) close() error {
	var errs []error
	for _, t := range s.tapes {
		errs = append(errs, t.Close())
	}
	for _, r := range s.records {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// factory stacks the policies of a model: tape → meter → retry → limit → gate → vendor.
func (s *models) factory(m *config.Model, params *model.Params) (model.Factory, error) {
	vendor, name, _ := strings.Cut(m.Name, "/")
	var kind *vendorKind
	for _, k := range vendorKinds() {
		if k.Name == vendor {
			kind = &k
		}
	}
	if kind == nil {
		return nil, fmt.Errorf("unknown vendor %q", vendor)
	}
	if replays(m) { // needs neither key nor service
		t, err := s.tape(m.Tape)
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", m.Name, err)
		}
		return t.Factory(name), nil
	}
	o := vendorOptions{name: name, m: m, http: s.http(m.BaseURL)}
	if params != nil {
		o.params = *params
	}
	var err error
	if o.key, err = s.env.Secret(m.Key); err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	f, err := kind.open(o)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	f = s.limiter(m, vendor).Wrap(meter.Gate(f))
	f = s.early(m, retry.New(f, retry.Policy{Tries: m.Tries}))
	prices, err := priceTable(m, name)
	if err != nil {
		return nil, err
	}
	f = meter.New(f, prices)
	if m.Tape == nil || s.dry {
		return f, nil
	}
	rec, err := s.recorder(m.Tape.File)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	return rec.Wrap(f), nil
}

// replays reports whether all replies of a model come from a tape.
func replays(m *config.Model) bool { return m.Tape != nil && m.Tape.Mode != "record" }

// early tells the user, once, that a service cannot be reached: all tries of a call take minutes.
func (s *models) early(m *config.Model, f model.Factory) model.Factory {
	return func(b model.Binding) (model.Client, error) {
		next := b.Try
		b.Try = func(t model.Try) {
			var e *model.Error
			if t.Try == 3 && errors.As(t.Err, &e) && e.Class == model.Network {
				s.mu.Lock()
				say := s.say
				if s.said[m.BaseURL] {
					say = nil
				}
				s.said[m.BaseURL] = true
				s.mu.Unlock()
				if say != nil {
					say(fmt.Sprintf("model %s has not answered 3 times: %v; it is asked again, with longer pauses", m.Name, e))
				}
			}
			if next != nil {
				next(t)
			}
		}
		return f(b)
	}
}

// priceTable is the built-in list with the configuration's own price in front.
func priceTable(m *config.Model, name string) (*price.Table, error) {
	t := price.Default()
	if m.Price == nil {
		return t, nil
	}
	b, err := json.Marshal(map[string]any{"models": map[string]any{name: m.Price}})
	if err != nil {
		return nil, err
	}
	own, err := price.Parse(b) // JSON is YAML
	if err != nil {
		return nil, fmt.Errorf("model %s: price: %w", m.Name, err)
	}
	return t.With(own), nil
}
