package launch

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/limit"
	"github.com/evalrun/evalrun/harness/config"
)

// A serviceKey identifies a model at an address with an API key. Providers limit by model, so each
// key has its own limiter.
type serviceKey struct{ model, url, key string }

func keyOfService(m *config.Model) serviceKey { return serviceKey{m.Name, m.BaseURL, m.Key.Var()} }

// A service is shared by the arms that call the same model at the same address with the same key.
type service struct {
	name    string
	most    int // maximum number of connections
	limiter *limit.Limiter

	mu      sync.Mutex
	waiting int // calls waiting in the queue or in a backoff
	trouble *model.Error
	last    time.Time // time of the last trouble
}

// agree sets up the services of models before the first is opened. It returns an error if arms
// configure one service differently.
func (s *models) agree(all []*config.Model) error {
	type asked struct {
		connections int
		perMinute   float64
		patience    time.Duration
	}
	said := map[serviceKey]asked{}
	for _, m := range all {
		if m == nil || replays(m) {
			continue
		}
		k := keyOfService(m)
		a := said[k]
		differ := func(key string, x, y any) error {
			return fmt.Errorf("model %s: one arm says %s: %v, another %v, and both call it at one address with one "+
				"key: say the same in both, or only in one", m.Name, key, x, y)
		}
		switch {
		case a.connections != 0 && m.Connections != 0 && a.connections != m.Connections:
			return differ("connections", a.connections, m.Connections)
		case a.perMinute != 0 && m.PerMinute != 0 && a.perMinute != m.PerMinute:
			return differ("per_minute", a.perMinute, m.PerMinute)
		}
		a.connections, a.perMinute = max(a.connections, m.Connections), max(a.perMinute, m.PerMinute)
		a.patience = max(a.patience, m.Patience.D())
		said[k] = a
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range all {
		if m == nil || replays(m) || s.services[keyOfService(m)] != nil {
			continue
		}
		a := said[keyOfService(m)]
		if a.connections == 0 {
			a.connections = s.pools.Connections
		}
		svc := &service{name: m.Name, most: a.connections,
			limiter: limit.New(limit.Config{Start: a.connections, Max: a.connections, Requests: a.perMinute,
				Patience: a.patience})}
		s.services[keyOfService(m)] = svc
		s.order = append(s.order, svc)
	}
	return nil
}

func (s *models) service(m *config.Model) (*service, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	svc := s.services[keyOfService(m)]
	if svc == nil {
		return nil, fmt.Errorf("model %s: no service was set up for it", m.Name)
	}
	return svc, nil
}

// watch counts waiting calls, stores the last trouble for the progress line, and logs each try that
// failed or was a retry.
func (v *service) watch(f model.Factory, log *slog.Logger) model.Factory {
	return func(b model.Binding) (model.Client, error) {
		try, waiting := b.Try, b.Waiting
		b.Waiting = func() func() {
			v.wait(1)
			done := func() {}
			if waiting != nil {
				done = waiting()
			}
			return func() {
				v.wait(-1)
				done()
			}
		}
		b.Try = func(t model.Try) {
			v.tried(t)
			if t.Err != nil || t.Try > 1 {
				args := []any{"model", v.name, "trial", b.Trial, "role", b.Role, "call", t.N, "try", t.Try, "took",
					t.Latency, "waited", t.Waited}
				if t.Err != nil {
					args = append(args, "err", t.Err)
				}
				log.Debug("model call", args...)
			}
			if try != nil {
				try(t)
			}
		}
		return f(b)
	}
}

func (v *service) wait(n int) {
	v.mu.Lock()
	v.waiting += n
	v.mu.Unlock()
}

func (v *service) tried(t model.Try) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var e *model.Error
	switch {
	case t.Err == nil:
		v.trouble = nil
	case errors.As(t.Err, &e) && e.Provider():
		v.trouble, v.last = e, time.Now()
	}
}

// silence is how long a provider must be silent before that is reported. news is how long trouble
// is reported.
const (
	silence = time.Minute
	news    = 2 * time.Minute
)

// state describes why calls of the service wait, or returns "" if none do.
func (v *service) state() string {
	st := v.limiter.Stats()
	v.mu.Lock()
	waiting, trouble := v.waiting, v.trouble
	now := time.Now()
	until := now.Add(st.Pause)
	if trouble != nil {
		// Later than the pause of all calls.
		if after := v.last.Add(trouble.After); trouble.Refusal() && after.After(until) {
			until = after
		}
		if now.Sub(v.last) > max(news, 2*st.Gap, trouble.After) {
			trouble = nil
		}
	}
	v.mu.Unlock()
	var parts []string
	if st.Silent >= silence {
		parts = append(parts, fmt.Sprintf("%s has not answered for %s (%s out)", v.name, st.Silent.Round(time.Second),
			count(st.InFlight, "call")))
	}
	if waiting == 0 {
		return strings.Join(parts, "; ")
	}
	wait := count(waiting, "call") + " wait"
	if waiting == 1 {
		wait += "s"
	}
	verb, why := "", []string{}
	if trouble != nil {
		verb = "fails"
		why = append(why, trouble.Class)
		if trouble.HTTP != 0 {
			why = append(why, fmt.Sprintf("HTTP %d", trouble.HTTP))
		}
	}
	if until.After(now) {
		why = append(why, "until "+until.Format("15:04:05")+" as it asked")
	}
	if st.Gap > 0 {
		why = append(why, "slowed to "+rate(st.Gap))
	}
	if until.After(now) || st.Gap > 0 || trouble != nil && trouble.Refusal() {
		verb = "throttles"
	}
	switch {
	case verb != "":
		parts = append(parts, fmt.Sprintf("%s %s: %s (%s)", v.name, verb, wait, strings.Join(why, ", ")))
	case st.Queued > 0 && st.InFlight >= st.Window:
		parts = append(parts, fmt.Sprintf("%s: %s for one of %s", v.name, wait, count(st.Window, "connection")))
	case st.Queued > 0:
		parts = append(parts, fmt.Sprintf("%s: %s (per_minute)", v.name, wait))
	}
	return strings.Join(parts, "; ")
}

func rate(gap time.Duration) string {
	n := time.Minute.Seconds() / gap.Seconds()
	return fmt.Sprintf("%g calls a minute", math.Round(n*10)/10)
}

// Finishing describes what models still keep running trials busy: calls in flight, and the text of
// Waiting.
func (r *Ready) Finishing() string {
	var parts []string
	for _, m := range []*models{r.models, r.roles} {
		for _, v := range m.order {
			if st := v.limiter.Stats(); st.InFlight > 0 && st.Silent < silence {
				parts = append(parts, fmt.Sprintf("%s to %s in flight", count(st.InFlight, "call"), v.name))
			}
		}
	}
	if text := r.Waiting(); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// Waiting describes which models keep the run waiting, and why. It returns "" if none does.
func (r *Ready) Waiting() string {
	var parts []string
	for _, m := range []*models{r.models, r.roles} {
		for _, v := range m.order {
			if text := v.state(); text != "" {
				parts = append(parts, text)
			}
		}
	}
	if n := len(parts); n > 2 {
		return fmt.Sprintf("%s; %s; and %d more", parts[0], parts[1], n-2)
	}
	return strings.Join(parts, "; ")
}

// calls returns how many calls the arms' models can have in flight at once, and the number for each
// model. n is 0 if no model is called.
func (r *Ready) calls() (n int, each string) {
	var parts []string
	for _, v := range r.models.order {
		n += v.most
		parts = append(parts, fmt.Sprintf("%d to %s", v.most, v.name))
	}
	return n, strings.Join(parts, ", ")
}

// An Endpoint says where the requests to a model go.
type Endpoint struct {
	Model string `json:"model"`
	URL   string `json:"url,omitempty"`  // "" if no request is sent
	Why   string `json:"why,omitempty"`  // the setting that determines the URL
	Key   string `json:"key,omitempty"`  // environment variable of the key
	Tape  string `json:"tape,omitempty"` // tape that the replies come from
}

// Endpoints returns the endpoints of all models of the run, each once.
func (r *Ready) Endpoints() []Endpoint {
	var out []Endpoint
	seen := map[Endpoint]bool{}
	add := func(m *config.Model) {
		if m == nil {
			return
		}
		e := Endpoint{Model: m.Name}
		if replays(m) {
			e.Tape = m.Tape.File
		} else if kind, _, err := r.models.vendorOf(m); err == nil {
			e.URL, e.Why, e.Key = m.BaseURL, "base_url", m.Key.Var()
			if v, ok := r.env.Lookup(kind.URLVar); m.BaseURL == "" {
				e.URL, e.Why = kind.URL, "the vendor's own"
			} else if ok && v == m.BaseURL {
				e.Why = kind.URLVar
			}
		}
		if !seen[e] {
			seen[e] = true
			out = append(out, e)
		}
	}
	for i := range r.Eff.Arms {
		add(r.Eff.Arms[i].Model)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Eff.Roles)) {
		add(r.Eff.Roles[name])
	}
	return out
}
