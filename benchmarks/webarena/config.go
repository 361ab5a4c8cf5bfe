package webarena

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks/web"
)

// A Config is a task in the format of the published files.
type Config struct {
	TaskID int `json:"task_id"`
	// WebArena Lite: the ID of the same task in WebArena
	OldID    *int            `json:"old_task_id"`
	Sites    []string        `json:"sites"`
	StartURL string          `json:"start_url"` // may hold several addresses; see Starts
	Location json.RawMessage `json:"geolocation"`
	Template int             `json:"intent_template_id"`
	Intent   string          `json:"intent"`
	Reset    bool            `json:"require_reset"`
	// VisualWebArena: addresses of pictures that belong to the intent
	Image      Texts  `json:"image"`
	Reasoning  string `json:"reasoning_difficulty"`
	Visual     string `json:"visual_difficulty"`
	Difficulty string `json:"overall_difficulty"`
	Eval       Eval   `json:"eval"`
}

// Starts returns the pages to open. The last one is the active page.
func (c *Config) Starts() []string { return strings.Split(c.StartURL, " |AND| ") }

// An Eval says how a task is graded: the score is the product of all evaluations it lists.
type Eval struct {
	Types     []string     `json:"eval_types"`
	Answers   Rules        `json:"reference_answers"`
	URL       string       `json:"reference_url"`
	URLNote   string       `json:"url_note"`
	Note      string       `json:"string_note"` // why the task cannot be done
	HTML      []Target     `json:"program_html"`
	ImageTest []ImageQuery `json:"page_image_query"`
}

// A Target is content that a page must have at the end.
type Target struct {
	URL string `json:"url"` // "last", an address, or a helper call
	// where to look: blank (whole page), an expression, or a helper call
	Locator string   `json:"locator"`
	Prepare []string `json:"prep_actions"`
	Want    Rules    `json:"required_contents"`
}

// An ImageQuery asks questions about the pictures of a page.
type ImageQuery struct {
	URL   string `json:"eval_image_url"`
	Class string `json:"eval_image_class"`
	Ask   []struct {
		Question string `json:"question"`
		Answer   string `json:"answer"`
	} `json:"eval_vqa"`
	Like      string   `json:"eval_fuzzy_image_match"`
	Threshold *float64 `json:"ssim_threshold"`
}

// Rules are the requirements on a text, in the order of the file, which is significant.
type Rules []Rule

// A Rule is one requirement: a name, and one text or a list of texts.
type Rule struct {
	Name string
	Text string
	List []string
	Many bool // the file has a list
}

// UnmarshalJSON reads an object. Any other value, as used when nothing is required, gives no rules.
func (r *Rules) UnmarshalJSON(raw []byte) error {
	*r = nil
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return err
	}
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return err
		}
		rule := Rule{Name: k.(string)}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return err
		}
		if json.Unmarshal(v, &rule.Text) != nil {
			rule.Many = true
			if err := json.Unmarshal(v, &rule.List); err != nil {
				return fmt.Errorf("%s: a text or a list of texts was expected", rule.Name)
			}
		}
		*r = append(*r, rule)
	}
	return nil
}

// get returns the rule with the given name.
func (r Rules) get(name string) (Rule, bool) {
	for _, x := range r {
		if x.Name == name {
			return x, true
		}
	}
	return Rule{}, false
}

func (r Rules) names() string {
	var s []string
	for _, x := range r {
		s = append(s, x.Name)
	}
	return strings.Join(s, ", ")
}

// Texts is one string or a list of strings.
type Texts []string

func (t *Texts) UnmarshalJSON(raw []byte) error {
	*t = nil
	var one *string
	if json.Unmarshal(raw, &one) == nil {
		if one != nil {
			*t = Texts{*one}
		}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(t))
}

// Parse reads a configuration and checks that the dialect can grade it. Its errors are the task's
// fault.
func Parse(d Dialect, raw []byte) (*Config, error) {
	c := new(Config)
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, wrong("%v", err)
	}
	known := map[string]bool{"string_match": true, "url_match": true, "program_html": true,
		"page_image_query": d == Visual}
	for _, s := range c.Starts() {
		// a metadata table has no start page; placeholders are not addresses yet
		if c.StartURL == "" || strings.Contains(s, "__") || strings.Contains(s, "${") {
			continue
		}
		if _, err := web.Address(s); err != nil {
			return nil, wrong("start_url %q: %v", s, err)
		}
	}
	if len(c.Eval.Types) == 0 {
		return nil, wrong("eval_types is empty")
	}
	for _, t := range c.Eval.Types {
		if !known[t] {
			return nil, wrong("eval_type %q is not known", t)
		}
	}
	return c, nil
}

// roles returns the roles of the models that grading uses.
func (c *Config) roles(d Dialect) []string {
	var out []string
	_, judged := c.Eval.Answers.get("fuzzy_match")
	judged = judged && slices.Contains(c.Eval.Types, "string_match")
	if d != WebArena && slices.Contains(c.Eval.Types, "program_html") {
		for _, t := range c.Eval.HTML {
			_, ok := t.Want.get("fuzzy_match")
			judged = judged || ok
		}
	}
	if judged {
		out = append(out, roleGrader)
	}
	if slices.Contains(c.Eval.Types, "page_image_query") &&
		slices.ContainsFunc(c.Eval.ImageTest, func(q ImageQuery) bool { return len(q.Ask) > 0 }) {
		out = append(out, roleCaptioner)
	}
	return out
}
