package webarena

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/runtime/egress"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Options are the benchmarks' options. All may be omitted if environment variables give the
// addresses of the sites.
type Options struct {
	Name string `json:"name,omitempty" doc:"Name of the benchmark in the results. Default: its kind, such as webarena."`

	Sites    map[string]string  `json:"sites,omitempty" doc:"Addresses of sites: shopping: http://localhost:7770. Those left out come from variables: WA_SHOPPING, WA_SHOPPING_ADMIN, WA_REDDIT, WA_GITLAB, WA_WIKIPEDIA, WA_MAP, WA_HOMEPAGE; of VisualWebArena VWA_SHOPPING, VWA_REDDIT, VWA_WIKIPEDIA, VWA_HOMEPAGE, VWA_CLASSIFIEDS. The word todo: the site is not there, and its tasks are skipped."`
	Accounts map[string]Account `json:"accounts,omitempty" doc:"Who logs in at a site, in place of the published accounts: gitlab: {user: NAME, password: TEXT}, or {user: NAME, secret: NAME of one of the run's secrets}."`
	Login    string             `json:"login,omitempty" enum:"kept,fresh,none" doc:"kept: a login's cookies are used again in the same run until they expire. fresh: each session logs in anew. none: nobody logs in. Default kept."`
	Allow    []string           `json:"allow,omitempty" doc:"Hosts beside the sites that pages may load from, such as a map's tile server: names, *.wildcards, addresses, CIDR ranges. An agent whose page is there is still out of bounds, and its episode ends."`
	Headers  map[string]string  `json:"headers,omitempty" doc:"HTTP headers that the browser adds to each request."`
	Reset    *Reset             `json:"reset,omitempty" doc:"How the sites are put back to where they began. Done between rounds: when an arm, or a repeat, has been played."`

	Subset       string   `json:"subset,omitempty" enum:"tiny" doc:"tiny: the few tasks of webarena_tiny, or visualwebarena_tiny. Default: all."`
	Without      []string `json:"without,omitempty" doc:"Models that this run does without, of grader and captioner: the tasks that would ask them are skipped."`
	NAHint       bool     `json:"na_hint,omitempty" doc:"The goal says that N/A is the answer to what cannot be done."`
	HomepageHint bool     `json:"homepage_hint,omitempty" doc:"The goal says where the list of sites is."`
	Steps        int      `json:"max_steps,omitempty" min:"1" doc:"Maximum steps of an episode. Default 30."`
	Actions      []string `json:"actions,omitempty" min:"1" doc:"Allowed sets of actions. Default: as published."`
	Images       string   `json:"images,omitempty" doc:"Folder with the pictures of tasks that are not given as addresses. Default: that of the tasks' file."`
}

// An Account is used to log in to a site.
type Account struct {
	User     string `json:"user"`
	Password string `json:"password,omitempty"`
	Secret   string `json:"secret,omitempty"` // name of the run's secret that holds the password
}

// A Reset says how to restore the sites to their initial state.
type Reset struct {
	URL     string   `json:"url,omitempty" doc:"A reset service: URL/reset begins, URL/status answers Ready for duty! when it is done. The variable WA_FULL_RESET or VWA_FULL_RESET says the same."`
	Command []string `json:"command,omitempty" doc:"A program with its arguments, run on this machine; done when it ends with 0."`
	Token   string   `json:"token,omitempty" doc:"Secret of the run with which VisualWebArena's classifieds are reset before tasks that ask for it."`
	Limit   string   `json:"limit,omitempty" doc:"Time limit of a reset, such as 10m (the default)."`
}

// resetLimit is the default time limit of a reset.
const resetLimit = 10 * time.Minute

func (r *Reset) limit() (time.Duration, error) {
	if r == nil || r.Limit == "" {
		return resetLimit, nil
	}
	d, err := time.ParseDuration(r.Limit)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("reset.limit: %q is no time; write it as 10m or 90s", r.Limit)
	}
	return d, nil
}

// read decodes options strictly and fills in values from environment variables and defaults.
func (d Dialect) read(raw json.RawMessage, getenv func(string) string) (Options, error) {
	o := Options{Name: string(d), Login: "kept", Steps: 30, Actions: []string{d.Actions()}}
	if len(raw) > 0 {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&o); err != nil {
			return o, fmt.Errorf("options of %s: %w", d, err)
		}
	}
	fail := func(format string, args ...any) (Options, error) {
		return o, fmt.Errorf("options of %s: %s", d, fmt.Sprintf(format, args...))
	}
	sites, _ := SitesFrom(d, getenv)
	for name, address := range o.Sites {
		if !slices.Contains(d.names(), name) {
			return fail("sites: %q is no site of this benchmark; there are %s", name, strings.Join(d.names(), ", "))
		}
		sites[name] = strings.TrimRight(address, "/")
	}
	for name, address := range sites {
		if u, err := url.Parse(address); sites.There(name) &&
			(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
			return fail("sites: %s: %q is no address such as http://localhost:7770", name, address)
		}
	}
	o.Sites = sites
	for name, a := range o.Accounts {
		if !slices.Contains(d.names(), name) {
			return fail("accounts: %q is no site of this benchmark", name)
		}
		if a.User == "" || a.Password != "" && a.Secret != "" {
			return fail("accounts: %s: a user, and either a password or the name of a secret, were expected", name)
		}
	}
	for _, role := range o.Without {
		if role != roleGrader && role != roleCaptioner {
			return fail("without: %q is none of %s and %s", role, roleGrader, roleCaptioner)
		}
	}
	if address := getenv(d.prefix() + "FULL_RESET"); address != "" &&
		(o.Reset == nil || o.Reset.URL == "" && len(o.Reset.Command) == 0) {
		r := Reset{}
		if o.Reset != nil {
			r = *o.Reset
		}
		r.URL = address
		o.Reset = &r
	}
	if o.Reset != nil && o.Reset.URL != "" && len(o.Reset.Command) > 0 {
		return fail("reset: a url or a command was expected, not both")
	}
	// checked now, because the command runs only between two rounds, when an error would come too
	// late
	if o.Reset != nil && len(o.Reset.Command) > 0 {
		if _, err := exec.LookPath(o.Reset.Command[0]); err != nil {
			return fail("reset: command: %v", err)
		}
	}
	if len(o.Allow) > 0 {
		if _, err := egress.Parse(sandbox.Network{Mode: "allow", Allow: o.Allow}); err != nil {
			return fail("allow: %v", err)
		}
	}
	if _, err := o.Reset.limit(); err != nil {
		return fail("%v", err)
	}
	if o.Subset != "" && o.Subset != "tiny" || o.Subset == "tiny" && d == Lite {
		return fail("subset: %q is none of this benchmark's", o.Subset)
	}
	if !slices.Contains([]string{"kept", "fresh", "none"}, o.Login) {
		return fail("login: %q is none of kept, fresh, none", o.Login)
	}
	return o, nil
}

// account returns the account for a site, or false if the site needs none.
func (o *Options) account(site string) (Account, bool) {
	if a, ok := o.Accounts[site]; ok {
		return a, true
	}
	a, ok := Accounts[site]
	return a, ok
}
