package webarena

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// A shopReview is a product review in the shop's REST API.
type shopReview struct {
	Nickname string `json:"nickname"`
	Detail   string `json:"detail"`
	Ratings  []struct {
		Percent json.Number `json:"percent"`
	} `json:"ratings"`
}

// review returns a helper that reads a product's latest review, or "" if there is none.
func review(of func(*shopReview) string) helper {
	return helper{false, 1, func(e *Evaluator, ctx context.Context, _ Page, a []string) (pyrepr.Value, error) {
		var list []shopReview
		if err := e.shop(ctx, "/rest/V1/products/"+url.PathEscape(a[0])+"/reviews", &list); err != nil ||
			len(list) == 0 {
			return pyrepr.Str(""), err
		}
		return pyrepr.Str(of(&list[len(list)-1])), nil
	}}
}

// latestOrder returns the address of the page of the latest order, whoever placed it.
func (e *Evaluator) latestOrder(ctx context.Context) (string, error) {
	q := url.Values{"searchCriteria[sortOrders][0][field]": {"created_at"},
		"searchCriteria[sortOrders][0][direction]": {"DESC"}, "searchCriteria[pageSize]": {"1"}}
	var list struct {
		Items []struct {
			ID string `json:"increment_id"`
		} `json:"items"`
	}
	if err := e.shop(ctx, "/rest/V1/orders?"+q.Encode(), &list); err != nil {
		return "", err
	}
	if len(list.Items) == 0 {
		return "", errors.New("the shop has no orders")
	}
	id := strings.TrimLeft(list.Items[0].ID, "0")
	if id == "" || strings.Trim(id, "0123456789") != "" {
		return "", fmt.Errorf("order %q: its ID is no number", list.Items[0].ID)
	}
	return e.Sites["shopping"] + "/sales/order/view/order_id/" + id + "/", nil
}

// shop sends a request to the shop's REST API as administrator.
func (e *Evaluator) shop(ctx context.Context, path string, into any) error {
	if !e.Sites.There("shopping") {
		return errors.New("the site shopping has no address")
	}
	admin := e.Admin
	if admin.User == "" {
		admin = Accounts["shopping_admin"]
	}
	login, err := json.Marshal(map[string]string{"username": admin.User, "password": admin.Password})
	if err != nil {
		return err
	}
	var token string
	if err := e.request(ctx, http.MethodPost, "/rest/default/V1/integration/admin/token", "", login,
		&token); err != nil {
		return err
	}
	return e.request(ctx, http.MethodGet, path, token, nil, into)
}

func (e *Evaluator) request(ctx context.Context, method, path, token string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, e.Sites["shopping"]+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	raw, err := e.fetch(req)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// fetch returns a response body of at most 32 MiB. Any status other than 200 is an error.
func (e *Evaluator) fetch(req *http.Request) ([]byte, error) {
	const most = 32 << 20
	if e.HTTP == nil {
		return nil, errors.New("asking sites directly is not allowed here")
	}
	res, err := e.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s", req.Method, req.URL.Redacted(), res.Status)
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	if err == nil && len(raw) > most {
		err = fmt.Errorf("%s %s: the answer is larger than 32 MiB", req.Method, req.URL.Redacted())
	}
	return raw, err
}
