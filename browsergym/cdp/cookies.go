package cdp

import (
	"context"
	"encoding/json"
	"fmt"
)

// A Cookie is a cookie set by a page's server or script.
type Cookie struct {
	Name     string  `json:"name"`
	Value    string  `json:"value"`
	Domain   string  `json:"domain"`
	Path     string  `json:"path"`
	Expires  float64 `json:"expires,omitempty"` // seconds since 1970; 0 means the end of the session
	HTTPOnly bool    `json:"httpOnly,omitempty"`
	Secure   bool    `json:"secure,omitempty"`
	SameSite string  `json:"sameSite,omitempty"`
}

// Cookies returns all cookies of the context. Setting them in another context restores its logins.
func (c *Context) Cookies(ctx context.Context) ([]Cookie, error) {
	raw, err := c.b.Call(ctx, "", "Storage.getCookies", map[string]any{"browserContextId": c.id})
	if err != nil {
		return nil, fmt.Errorf("reading cookies: %w", err)
	}
	var a struct {
		Cookies []Cookie `json:"cookies"`
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return nil, fmt.Errorf("reading cookies: %w", err)
	}
	for i := range a.Cookies {
		a.Cookies[i].Expires = max(a.Cookies[i].Expires, 0) // -1 means the session
	}
	return a.Cookies, nil
}

// SetCookies adds cookies. They replace those with the same name, domain and path.
func (c *Context) SetCookies(ctx context.Context, list []Cookie) error {
	if len(list) == 0 {
		return nil
	}
	if _, err := c.b.Call(ctx, "", "Storage.setCookies",
		map[string]any{"browserContextId": c.id, "cookies": list}); err != nil {
		return fmt.Errorf("setting cookies: %w", err)
	}
	return nil
}

// ClearCookies deletes all cookies.
func (c *Context) ClearCookies(ctx context.Context) error {
	if _, err := c.b.Call(ctx, "", "Storage.clearCookies", map[string]any{"browserContextId": c.id}); err != nil {
		return fmt.Errorf("clearing cookies: %w", err)
	}
	return nil
}
