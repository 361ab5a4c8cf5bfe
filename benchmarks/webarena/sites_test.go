package webarena

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A world is small sites of ours that hold what some published configurations look at, in the same
// places: a shop with its administration, a forum, a place of code, a map. Each has a login and
// changes by what is done on it.
type world struct {
	sites Sites
	srv   map[string]*httptest.Server

	mu       sync.Mutex
	sessions map[string]map[string]bool // site → cookie's values that are logged in
	logins   map[string]int
	posts    []post
	orders   []string // of the shop, by SKU
	reviews  []string // ratings
	votes    map[string]bool
	down     map[string]bool
	serial   atomic.Int64
	resets   []string
	asked    map[string]int // by path, of requests that reached a site
}

type post struct{ forum, slug, title, body string }

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{sites: Sites{}, srv: map[string]*httptest.Server{}, sessions: map[string]map[string]bool{},
		logins: map[string]int{}, votes: map[string]bool{}, down: map[string]bool{}, asked: map[string]int{},
		orders: []string{"B000OLD"}}
	for name, h := range map[string]http.HandlerFunc{"shopping": w.shopping, "shopping_admin": w.admin,
		"reddit": w.reddit, "gitlab": w.gitlab, "map": w.maps, "wikipedia": w.plain, "homepage": w.plain} {
		w.add(t, name, h)
	}
	return w
}

// add serves a site.
func (w *world) add(t *testing.T, name string, h http.HandlerFunc) {
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		down := w.down[name]
		w.asked[name+" "+r.URL.Path]++
		w.mu.Unlock()
		if down { // as a machine that is off: the connection ends without an answer
			c, _, err := rw.(http.Hijacker).Hijack()
			if err == nil {
				c.Close()
			}
			return
		}
		rw.Header().Set("Content-Type", "text/html; charset=utf-8")
		rw.Header().Set("Cache-Control", "no-store")
		h(rw, r)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	w.sites[name], w.srv[name] = s.URL, s
}

// set changes whether a site answers.
func (w *world) set(site string, down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down[site] = down
}

// expire ends all sessions of a site.
func (w *world) expire(site string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sessions[site] = nil
}

func (w *world) count(site string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.logins[site]
}

// requests is how many have reached a site: "gitlab /path".
func (w *world) requests(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[what]
}

func (w *world) in(site string, r *http.Request) bool {
	c, err := r.Cookie("session_" + site)
	w.mu.Lock()
	defer w.mu.Unlock()
	return err == nil && w.sessions[site][c.Value]
}

// login takes a form, and goes on to where a user then is.
func (w *world) login(site, user, password, next string, rw http.ResponseWriter, r *http.Request) bool {
	a := Accounts[site]
	if r.FormValue(user) != a.User || r.FormValue(password) != a.Password {
		return false
	}
	id := fmt.Sprint(w.serial.Add(1))
	w.mu.Lock()
	if w.sessions[site] == nil {
		w.sessions[site] = map[string]bool{}
	}
	w.sessions[site][id] = true
	w.logins[site]++
	w.mu.Unlock()
	http.SetCookie(rw, &http.Cookie{Name: "session_" + site, Value: id, Path: "/", HttpOnly: true})
	http.Redirect(rw, r, next, http.StatusFound)
	return true
}

func page(rw http.ResponseWriter, title, body string) {
	fmt.Fprintf(rw, "<!doctype html><meta charset=utf-8><title>%s</title><body>%s", html.EscapeString(title), body)
}

func (w *world) plain(rw http.ResponseWriter, r *http.Request) {
	page(rw, "Plain", "<h1>"+html.EscapeString(r.URL.Path)+"</h1>")
}

func (w *world) shopping(rw http.ResponseWriter, r *http.Request) {
	in := w.in("shopping", r)
	switch p := r.URL.Path; {
	case p == "/customer/account/login/" && r.Method == http.MethodPost:
		if !w.login("shopping", "email", "pass", "/customer/account/", rw, r) {
			page(rw, "Login", `<div class="message-error message">The account sign-in was incorrect.</div>`+shopForm)
		}
	case p == "/customer/account/login/" && in:
		http.Redirect(rw, r, "/customer/account/", http.StatusFound)
	case p == "/customer/account/login/":
		page(rw, "Login", shopForm)
	case p == "/rest/default/V1/integration/admin/token":
		rw.Write([]byte(`"the-token"`))
	case p == "/rest/V1/orders":
		w.mu.Lock()
		n := len(w.orders)
		w.mu.Unlock()
		fmt.Fprintf(rw, `{"items":[{"increment_id":"%09d"}]}`, n)
	case strings.HasPrefix(p, "/rest/V1/products/"):
		w.mu.Lock()
		defer w.mu.Unlock()
		var list []string
		for _, x := range w.reviews {
			list = append(list, fmt.Sprintf(`{"nickname":"Emma","detail":"d","ratings":[{"percent":%s}]}`, x))
		}
		rw.Write([]byte("[" + strings.Join(list, ",") + "]"))
	case p == "/order" && in:
		w.mu.Lock()
		w.orders = append(w.orders, r.FormValue("sku"))
		w.mu.Unlock()
		http.Redirect(rw, r, "/", http.StatusFound)
	case p == "/review" && in:
		w.mu.Lock()
		w.reviews = append(w.reviews, r.FormValue("rating"))
		w.mu.Unlock()
		http.Redirect(rw, r, "/", http.StatusFound)
	case strings.HasPrefix(p, "/sales/order/view/order_id/") && in:
		w.mu.Lock()
		defer w.mu.Unlock()
		var n int
		fmt.Sscanf(p, "/sales/order/view/order_id/%d/", &n)
		if n < 1 || n > len(w.orders) {
			page(rw, "Order", "no such order")
			return
		}
		page(rw, "Order", `<div class="order-details-items ordered">Item `+html.EscapeString(w.orders[n-1])+`</div>`)
	case p == "/guard.html":
		page(rw, "Jaw Bruxism Mouth Guard", "<h1>Jaw Bruxism Mouth Guard</h1>")
	default:
		who := "Welcome, guest"
		if in {
			who = "Welcome, Emma Lopez"
		}
		page(rw, "Shop", `<a href="/">`+who+
			`</a><form action="/order" method="post"><label>SKU <input name="sku"></label><button>Order</button></form>
			<form action="/review" method="post"><label>Rating <input name="rating"></label><button>Review</button></form><a href="/guard.html">Guard</a>`)
	}
}

const shopForm = `<form method="post"><fieldset><label for="email"><span>Email</span></label><input id="email" name="email" type="email">
	<label for="pass">Password</label><input id="pass" name="pass" type="password"><button type="submit"><span>Sign In</span></button></fieldset></form>
	<form><label for="news">Sign Up for Our Newsletter: Email Address</label><input id="news"><button>Subscribe</button></form>`

func (w *world) admin(rw http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost:
		if !w.login("shopping_admin", "u", "p", "/", rw, r) {
			page(rw, "Admin", "wrong")
		}
	case !w.in("shopping_admin", r):
		page(rw, "Admin", `<form method="post"><label for="u">Username</label><input id="u" name="u"><label for="p">Password</label><input id="p" name="p" type="password"><button>Sign in</button></form>`)
	case r.URL.Path == "/rule":
		page(rw, "Rule", `<div data-index="actions"><div class="admin__collapsible-title" onclick="this.parentNode.querySelector('div + *').innerHTML='<select name=simple_action><option value=by_percent>x</select>'">Actions</div><p></p></div>`)
	default:
		page(rw, "Dashboard", "<table><tr><td>Quest Lumaflex™ Band<td>6</table><a href='/rule'>New rule</a>")
	}
}

func (w *world) reddit(rw http.ResponseWriter, r *http.Request) {
	in := w.in("reddit", r)
	switch p := r.URL.Path; {
	case p == "/login" && r.Method == http.MethodPost:
		if !w.login("reddit", "_username", "_password", "/", rw, r) {
			page(rw, "Login", `<div role="alert">Invalid credentials.</div>`)
		}
	case p == "/login":
		page(rw, "Login", `<nav><a href="/login">Log in</a></nav><form method="post"><label>Username <input name="_username"></label><label>Password <input type="password" name="_password"></label><button>Log in</button></form>`)
	case p == "/submit" && r.Method == http.MethodPost && in:
		w.mu.Lock()
		w.posts = append(w.posts, post{r.FormValue("forum"), "a-post", r.FormValue("title"), r.FormValue("body")})
		n := len(w.posts)
		w.mu.Unlock()
		http.Redirect(rw, r, fmt.Sprintf("/f/%s/%d/a-post", url.PathEscape(r.FormValue("forum")), n), http.StatusFound)
	case strings.HasPrefix(p, "/f/") && strings.Count(p, "/") >= 3:
		var n int
		fmt.Sscan(strings.Split(p, "/")[3], &n)
		w.mu.Lock()
		defer w.mu.Unlock()
		if n < 1 || n > len(w.posts) {
			rw.WriteHeader(http.StatusNotFound)
			page(rw, "404", "nothing")
			return
		}
		x := w.posts[n-1]
		page(rw, x.title, `<h1 class="submission__title">`+html.EscapeString(x.title)+
			`</h1><div class="submission__inner">`+html.EscapeString(x.title)+` `+html.EscapeString(x.body)+`</div>
			<a href="`+html.EscapeString(p)+`/-/comment/7">comments</a>`)
	default:
		nav := `<a href="/login">Log in</a>`
		if in {
			nav = `<a href="/user">MarvelsGrantMan136</a> <button>Log out</button>`
		}
		page(rw, "Postmill", `<nav>`+nav+
			`</nav><form action="/submit" method="post"><label>Forum <input name="forum"></label><label>Title <input name="title"></label><label>Body <input name="body"></label><button>Submit</button></form>`)
	}
}

func (w *world) gitlab(rw http.ResponseWriter, r *http.Request) {
	in := w.in("gitlab", r)
	switch {
	case r.URL.Path == "/users/sign_in" && r.Method == http.MethodPost:
		if !w.login("gitlab", "user[login]", "user[password]", "/", rw, r) {
			page(rw, "Sign in", `<div class="flash-alert">Invalid login or password.</div>`+gitForm)
		}
	case r.URL.Path == "/users/sign_in" && !in:
		page(rw, "Sign in", gitForm)
	case r.URL.Path == "/users/sign_in":
		http.Redirect(rw, r, "/", http.StatusFound)
	case !in:
		http.Redirect(rw, r, "/users/sign_in", http.StatusFound)
	case r.URL.Path == "/loud/secret":
		page(rw, "Loud", `<img src="/loud/secret.png"><script>console.error("secret"); fetch("http://127.0.0.1:1/secret"); throw Error("secret")</script>`)
	case strings.HasSuffix(r.URL.Path, "/-/project_members"): // comes by script, as there
		page(rw, "Members", `<div id="app"></div><script>setTimeout(() => { document.getElementById('app').innerHTML = '<table><tr><td data-label="Account"><span class="gl-avatar-labeled-sublabel">@abisubramanya27</span><td class="col-max-role"><span>Guest</span></table>' }, 300)</script>`)
	default:
		page(rw, "Projects", `<h1>Your projects</h1><a href="/byteblaze/dotfiles/-/project_members">Members</a>`)
	}
}

const gitForm = `<form method="post"><label for="l">Username or email</label><input id="l" name="user[login]"><label for="p">Password</label><input id="p" type="password" name="user[password]">
	<label><input type="checkbox"> Remember me</label><button data-qa-selector="sign_in_button">Sign in</button></form>`

func (w *world) maps(rw http.ResponseWriter, r *http.Request) {
	page(rw, "Map", `<div id="content"><select class="routing_engines"><option>car<option>foot</select></div><input name="route_from" value="Gates and Hillman Centers, Pittsburgh">`)
}
