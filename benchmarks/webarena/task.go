package webarena

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// Values of the published environment.
const (
	slowMo     = time.Second
	patience   = 10 * time.Second // for a navigation
	tokenLimit = 60 * time.Second // for a site that resets itself
)

// A problem is the task of one episode.
type problem struct {
	c        *Config // with the sites' addresses filled in
	d        Dialect
	sites    Sites
	visitors []visitor
	keep     *logins // nil means that each session logs in anew
	token    string  // token for resetting classifieds; "" means no reset
	hints    []string
	pictures []picture
	eval     *Evaluator
	limit    time.Duration // for a navigation
	calm     func(context.Context, *cdp.Page) error
	client   *http.Client
}

func (p *problem) Settings() browsergym.Settings {
	return browsergym.Settings{Width: 1280, Height: 720, SlowMo: slowMo, Timeout: p.limit}
}

// Setup logs in and opens the task's start pages. The last one is the active page.
func (p *problem) Setup(ctx context.Context, page *cdp.Page) (browsergym.Start, error) {
	if p.token != "" {
		if err := p.renew(ctx); err != nil {
			return browsergym.Start{}, err
		}
	}
	if err := enter(ctx, page, p.visitors, p.keep); err != nil {
		return browsergym.Start{}, err
	}
	starts := p.c.Starts()
	for i, address := range starts {
		if i > 0 {
			var err error
			if page, err = page.Context().NewPage(ctx); err != nil {
				return browsergym.Start{}, err
			}
		}
		if err := visit(ctx, page, address, p.limit); err != nil {
			return browsergym.Start{}, fmt.Errorf("opening the task's page %s: %w", address, err)
		}
	}
	if err := page.BringToFront(ctx); err != nil {
		return browsergym.Start{}, err
	}
	return browsergym.Start{Goal: p.goal(), Info: map[string]any{"start_urls": starts}}, nil
}

// goal returns the intent and everything that belongs to it.
func (p *problem) goal() []browsergym.Item {
	text := strings.Join(append([]string{p.c.Intent}, p.hints...), "\n\n")
	goal := browsergym.Text(text)
	for i, x := range p.pictures {
		about := fmt.Sprintf("Input image %d/%d", i+1, len(p.pictures))
		if x.file != "" {
			about += fmt.Sprintf(", which can be uploaded as the file %s", x.file)
		}
		if x.address != "" {
			about += ", from " + x.address
		}
		goal = append(goal, browsergym.Item{Type: "text", Text: about + "."},
			browsergym.Item{Type: "image_url", Image: x.data})
	}
	return goal
}

// Validate scores the state after a step. The episode is over when the score is above 0, when the
// agent has answered or declared the task infeasible, or when a page has left the sites.
func (p *problem) Validate(ctx context.Context, page *cdp.Page, chat []browsergym.Message) (browsergym.Verdict, error) {
	for _, q := range page.Context().Pages() {
		if !p.sites.Allowed(q.URL()) {
			return browsergym.Verdict{Done: true,
				Info: map[string]any{"error": "Unauthorized url, terminating task", "url": q.URL()}}, nil
		}
	}
	var answer *string
	if n := len(chat); n > 0 {
		switch last := chat[n-1]; last.Role {
		case browsergym.Assistant:
			answer = &last.Text
		case browsergym.Infeasible:
			none := "N/A"
			answer = &none
		}
	}
	b := &live{page: page, sites: p.sites, calm: p.calm, limit: p.limit,
		there: func(ctx context.Context, address string) error { return probe(ctx, p.client, address) }}
	score, parts, err := p.eval.Score(ctx, p.c, b, answer)
	if err != nil {
		return browsergym.Verdict{}, err
	}
	return browsergym.Verdict{Reward: score, Done: score > 0 || answer != nil, Info: map[string]any{"parts": parts}},
		nil
}

func (p *problem) Teardown(context.Context) error { return nil }

// renew resets the classifieds site.
func (p *problem) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, tokenLimit, fmt.Errorf("no answer within %v", tokenLimit))
	defer cancel()
	address := p.sites["classifieds"] + "/index.php?page=reset"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address,
		strings.NewReader(url.Values{"token": {p.token}}.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := p.client.Do(req)
	if err != nil {
		return fmt.Errorf("resetting classifieds: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("resetting classifieds: POST %s: %s", address, res.Status)
	}
	return nil
}
