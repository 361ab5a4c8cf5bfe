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
	"unicode"

	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/limit"
	"github.com/evalrun/evalrun/agent/model/meter"
	"github.com/evalrun/evalrun/agent/model/openai"
	"github.com/evalrun/evalrun/agent/model/price"
	"github.com/evalrun/evalrun/agent/model/retry"
	"github.com/evalrun/evalrun/agent/model/tape"
	"github.com/evalrun/evalrun/harness/config"
)

// vendorKind is a vendor whose models can be named.
type vendorKind struct {
	config.Kind
	open    func(o vendorOptions) (model.Factory, error)
	url     string // of its own service
	headers func(env *config.Env) (map[string]string, error)
}

type vendorOptions struct {
	name, key string
	noKey     string // what to write so that a key is sent
	m         *config.Model
	params    model.Params
	http      *http.Client
	headers   map[string]string
}

func vendorKinds() []vendorKind {
	return []vendorKind{
		{config.Kind{Name: "openai", KeyVar: "OPENAI_API_KEY", URLVar: "OPENAI_BASE_URL",
			Doc: "OpenAI, and every server that speaks its chat completions (base_url)"}, openOpenAI, openai.DefaultURL, openAIHeaders},
	}
}

func openOpenAI(o vendorOptions) (model.Factory, error) {
	m, err := openai.New(openai.Config{Model: o.name, BaseURL: o.m.BaseURL, Key: o.key, NoKey: o.noKey, Headers: o.headers, Params: o.params, Window: o.m.Window,
		NoImages: o.m.Images != nil && !*o.m.Images, Timeout: o.m.Timeout.D(), HTTP: o.http})
	if err != nil {
		return nil, err
	}
	return m.Client, nil
}

// openAIHeaders are what the vendor's own clients take from variables beside the key.
func openAIHeaders(env *config.Env) (map[string]string, error) {
	out := map[string]string{}
	for name, header := range map[string]string{"OPENAI_ORG_ID": "OpenAI-Organization", "OPENAI_PROJECT_ID": "OpenAI-Project"} {
		if v, ok := env.Lookup(name); ok {
			out[header] = v
		}
	}
	lines, _ := env.Lookup("OPENAI_CUSTOM_HEADERS")
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" || strings.ContainsAny(name, " \t") || strings.ContainsFunc(line, unicode.IsControl) {
			return nil, errors.New("the variable OPENAI_CUSTOM_HEADERS has a line that is not NAME: VALUE") // which may hold a secret
		}
		out[name] = value
	}
	return out, nil
}

// models makes the factories of a run. What arms share (connections, limiters, tapes) it keeps.
type models struct {
	env   *config.Env
	pools *config.Pools
	dry   bool // nothing is called, so nothing is recorded
	log   *slog.Logger
	tapes *tapes

	mu       sync.Mutex
	https    map[string]*http.Client // by base URL
	services map[serviceKey]*service
	order    []*service
	say      func(string)    // to the user, while it runs; may be nil
	said     map[string]bool // by base URL: that it cannot be reached
	notes    []string
}

func newModels(env *config.Env, pools *config.Pools, dry bool, log *slog.Logger, t *tapes) *models {
	return &models{env: env, pools: pools, dry: dry, log: log, tapes: t,
		https: map[string]*http.Client{}, said: map[string]bool{}, services: map[serviceKey]*service{}}
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

// tapes are those of a run, shared by the models of arms and of roles.
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

// Close ends tapes.
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

func vendorOf(m *config.Model) (kind *vendorKind, name string, err error) {
	vendor, name, _ := strings.Cut(m.Name, "/")
	for _, k := range vendorKinds() {
		if k.Name == vendor {
			return &k, name, nil
		}
	}
	return nil, "", fmt.Errorf("unknown vendor %q", vendor)
}

// factory stacks the policies of a model: tape → meter → retry → limit → gate → vendor.
func (s *models) factory(m *config.Model, params *model.Params) (model.Factory, error) {
	kind, name, err := vendorOf(m)
	if err != nil {
		return nil, err
	}
	o := vendorOptions{name: name, m: m, http: s.http(m.BaseURL),
		noKey: fmt.Sprintf("the key of a model with a base_url is set with key: ${%s}", kind.KeyVar)}
	if params != nil {
		o.params = *params
	}
	if replays(m) { // needs neither key nor service
		t, err := s.tapes.tape(m.Tape)
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", m.Name, err)
		}
		if note := fmt.Sprintf("tape %s was recorded by an older evalrun and does not say sampling parameters: they are not compared", m.Tape.File); t.Old() && !m.Tape.Loose && !slices.Contains(s.notes, note) {
			s.notes = append(s.notes, note)
		}
		return t.Factory(name, o.params), nil
	}
	if o.key, err = s.env.Secret(m.Key); err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	if m.Key.Var() == kind.KeyVar { // they belong to the key
		if o.headers, err = kind.headers(s.env); err != nil {
			return nil, fmt.Errorf("model %s: %w", m.Name, err)
		}
	}
	f, err := kind.open(o)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	svc, err := s.service(m)
	if err != nil {
		return nil, err
	}
	f = retry.New(svc.limiter.Wrap(meter.Gate(f)), retry.Policy{Tries: m.Tries, Patience: m.Patience.D(), Answered: svc.limiter.Answered, Held: limit.MaxPause})
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
	return rec.Wrap(f, o.params), nil
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
