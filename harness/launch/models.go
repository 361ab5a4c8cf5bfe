package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/limit"
	"github.com/evalrun/evalrun/agent/model/meter"
	"github.com/evalrun/evalrun/agent/model/price"
	"github.com/evalrun/evalrun/agent/model/retry"
	"github.com/evalrun/evalrun/agent/model/tape"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/registry"
)

// models creates the model factories of a run. It holds what arms share: connections, limiters,
// tapes.
type models struct {
	kinds *registry.Registry
	env   *config.Env
	pools *config.Pools
	dry   bool // no calls are made, so nothing is recorded
	log   *slog.Logger
	tapes *tapes

	mu       sync.Mutex
	https    map[string]*http.Client // keyed by base URL
	services map[serviceKey]*service
	order    []*service
	say      func(string)    // shows a message to the user during the run; may be nil
	said     map[string]bool // keyed by base URL: the user was told that it is unreachable
	notes    []string
}

func newModels(kinds *registry.Registry, env *config.Env, pools *config.Pools, dry bool, log *slog.Logger,
	t *tapes) *models {
	return &models{kinds: kinds, env: env, pools: pools, dry: dry, log: log, tapes: t,
		https: map[string]*http.Client{}, said: map[string]bool{}, services: map[serviceKey]*service{}}
}

func (s *models) http(url string) *http.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.https[url]
	if c == nil {
		c = model.Transport()
		s.https[url] = c
	}
	return c
}

// tapes are the tapes of a run, shared by the models of arms and roles.
type tapes struct {
	mu      sync.Mutex
	plays   map[config.Tape]*tape.Tape
	records map[string]*tape.Recorder
}

func (s *tapes) tape(c *config.Tape) (*tape.Tape, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.plays[*c]
	if t == nil {
		var err error
		if t, err = tape.Open(c.File, tape.Options{Strict: !c.Loose}); err != nil {
			return nil, err
		}
		if s.plays == nil {
			s.plays = map[config.Tape]*tape.Tape{}
		}
		s.plays[*c] = t
	}
	return t, nil
}

func (s *tapes) recorder(file string) (*tape.Recorder, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[file]
	if r == nil {
		var err error
		if r, err = tape.Create(file); err != nil {
			return nil, err
		}
		if s.records == nil {
			s.records = map[string]*tape.Recorder{}
		}
		s.records[file] = r
	}
	return r, nil
}

// Close closes the tapes.
func (s *tapes) Close() error {
	var errs []error
	for _, t := range s.plays {
		errs = append(errs, t.Close())
	}
	for _, r := range s.records {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

func (s *models) vendorOf(m *config.Model) (kind *model.Kind, name string, err error) {
	vendor, name, _ := strings.Cut(m.Name, "/")
	if kind = s.kinds.Model(vendor); kind == nil {
		return nil, "", fmt.Errorf("unknown vendor %q", vendor)
	}
	return kind, name, nil
}

// factory stacks the layers of a model client: tape → meter → retry → limit → gate → vendor.
func (s *models) factory(m *config.Model, params *model.Params) (model.Factory, error) {
	kind, name, err := s.vendorOf(m)
	if err != nil {
		return nil, err
	}
	o := model.Service{
		Name: name, BaseURL: m.BaseURL, Window: m.Window, NoImages: m.Images != nil && !*m.Images,
		Timeout: m.Timeout.D(),
		HTTP:    s.http(m.BaseURL), NoKey: fmt.Sprintf("the key of a model with a base_url is set with key: ${%s}",
			kind.KeyVar),
	}
	if params != nil {
		o.Params = *params
	}
	if replays(m) { // a replayed model needs neither key nor provider
		t, err := s.tapes.tape(m.Tape)
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", m.Name, err)
		}
		if note := fmt.Sprintf("tape %s was recorded by an older evalrun and does not say sampling parameters: they "+
			"are not compared", m.Tape.File); t.Old() && !m.Tape.Loose && !slices.Contains(s.notes, note) {
			s.notes = append(s.notes, note)
		}
		return t.Factory(name, o.Params), nil
	}
	if o.Key, err = s.env.Secret(m.Key); err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	if kind.Headers != nil && m.Key.Var() == kind.KeyVar { // these headers belong with the kind's own key
		if o.Headers, err = kind.Headers(s.env.Lookup); err != nil {
			return nil, fmt.Errorf("model %s: %w", m.Name, err)
		}
	}
	f, err := kind.Open(o)
	if err == nil && f == nil {
		err = errNoValue
	}
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	svc, err := s.service(m)
	if err != nil {
		return nil, err
	}
	f = retry.New(svc.limiter.Wrap(meter.Gate(f)),
		retry.Policy{Tries: m.Tries, Patience: m.Patience.D(), Answered: svc.limiter.Answered, Held: limit.MaxPause})
	f = s.early(m, svc.watch(f, s.log))
	prices, err := priceTable(m, name)
	if err != nil {
		return nil, err
	}
	f = meter.New(f, prices)
	if m.Tape == nil || s.dry {
		return f, nil
	}
	rec, err := s.tapes.recorder(m.Tape.File)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	return rec.Wrap(f, o.Params), nil
}

// replays reports whether all replies of a model come from a tape.
func replays(m *config.Model) bool { return m.Tape != nil && m.Tape.Mode != "record" }

// early tells the user, once per base URL, that a provider is unreachable, because all tries of a
// call take minutes.
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
					say(fmt.Sprintf("model %s has not answered 3 times: %v; it is asked again, with longer pauses",
						m.Name, e))
				}
			}
			if next != nil {
				next(t)
			}
		}
		return f(b)
	}
}

// priceTable returns the built-in price list with the configuration's own price taking precedence.
func priceTable(m *config.Model, name string) (*price.Table, error) {
	t := price.Default()
	if m.Price == nil {
		return t, nil
	}
	b, err := json.Marshal(map[string]any{"models": map[string]any{name: m.Price}})
	if err != nil {
		return nil, err
	}
	own, err := price.Parse(b) // JSON is a subset of YAML
	if err != nil {
		return nil, fmt.Errorf("model %s: price: %w", m.Name, err)
	}
	return t.With(own), nil
}
