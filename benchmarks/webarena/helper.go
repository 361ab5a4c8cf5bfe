package webarena

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// A helper is a function that configurations may call. If pages is set, its first argument is the
// page. Helpers without a page build addresses or query the shop.
type helper struct {
	pages bool
	args  int
	run   func(e *Evaluator, ctx context.Context, p Page, a []string) (pyrepr.Value, error)
}

var helpers map[string]helper

func init() { // in init, because helpers call each other
	helpers = map[string]helper{
		"reddit_get_post_url": {false, 1,
			func(_ *Evaluator, _ context.Context, _ Page, a []string) (pyrepr.Value, error) {
				return pyrepr.Str(postURL(a[0])), nil
			}},
		"shopping_get_latest_order_url": {false, 0,
			func(e *Evaluator, ctx context.Context, _ Page, _ []string) (pyrepr.Value, error) {
				s, err := e.latestOrder(ctx)
				return pyrepr.Str(s), err
			}},
		"shopping_get_sku_latest_review_author": review(func(r *shopReview) string { return r.Nickname }),
		"shopping_get_sku_latest_review_text":   review(func(r *shopReview) string { return r.Detail }),
		"shopping_get_sku_latest_review_rating": review(func(r *shopReview) string {
			if len(r.Ratings) == 0 {
				return ""
			}
			return r.Ratings[0].Percent.String()
		}),
		"gitlab_get_project_memeber_role": inPage(1, `(account) => {
			const at = [...document.querySelectorAll("td[data-label='Account'] span.gl-avatar-labeled-sublabel")].findIndex(x => x.outerText === '@' + account);
			return document.querySelectorAll('td.col-max-role span')[at].outerText;
		}`, pyrepr.Str("")),
		"get_query_text": inPage(1, `(selector) => document.querySelector(selector).textContent`,
			pyrepr.Str("")),
		"get_query_text_lowercase": inPage(1,
			`(selector) => document.querySelector(selector).textContent.toLowerCase()`, pyrepr.Str("")),
		"shopping_get_product_attributes": inPage(1, `(terms) => {
			const wanted = terms.toLowerCase().split(' |or| ');
			return [...document.querySelector('#productDetails_detailBullets_sections1 > tbody').children]
				.filter(row => wanted.some(w => row.children[0].outerText.toLowerCase().includes(w)))
				.map(row => row.children[1].outerText).join(', ');
		}`, pyrepr.Str("")),
		"shopping_get_product_price": inPage(0,
			`() => parseFloat(document.querySelector('#maincontent > div.columns > div > div.product-info-main > div.product-info-price > div.price-box.price-final_price > span > span').outerText.substr(1)) || 0`, pyrepr.Int("0")),
		"shopping_get_num_reviews": inPage(0,
			`() => parseInt(document.querySelector('#tab-label-reviews-title').outerText.split(' ')[1]) || 0`,
			pyrepr.Int("0")),
		"shopping_get_rating_as_percentage": inPage(0,
			`() => parseFloat(document.querySelector('.rating-result').title.replace('%', '')) || 0`, pyrepr.Int("0")),
		"shopping_get_order_product_name_list": inPage(0,
			`() => (`+orders+`).map(o => { if (o.name === undefined) throw 'no name'; return o.name }).join(' |OR| ')`,
			pyrepr.Str("")),
		"shopping_get_order_product_quantity": inPage(1, `(sku) => {
			const o = (`+orders+`).find(o => sku.split(' |OR| ').includes(o.sku.trim()));
			const n = o ? Number(o.qty.substring('Ordered'.length)) : 0;
			return Number.isInteger(n) ? n : 0;
		}`, pyrepr.Int("0")),
		"shopping_get_order_product_option": inPage(2, `(sku, option) => {
			const o = (`+orders+`).find(o => o.sku.trim() === sku);
			return o && o.options[option] || '';
		}`, pyrepr.Str("")),
		"reddit_get_latest_comment_content_by_username": inPage(1, `(user) => {
			let last;
			for (const c of (`+comments+`)) if (c.user === user && (!last || c.time > last.time)) last = c;
			return last ? last.text : '';
		}`, pyrepr.Str("")),
		"reddit_get_parent_comment_username_of_latest_comment_by_username": inPage(1, `(user) => {
			let last;
			for (const c of (`+comments+
			`)) if (c.parent && c.user === user && !c.below(user) && (!last || c.time > last.time)) last = c;
			return last ? last.parent.user : '';
		}`, pyrepr.Str("")),
	}
}

// orders returns the products on an order's page: the cells of each, keyed by their second class.
const orders = `[...document.querySelector('#my-orders-table').getElementsByTagName('tbody')].map(body => {
	const o = {};
	for (const td of body.getElementsByTagName('td')) {
		const key = td.className.split(' ')[1];
		o[key] = td.outerText;
		const list = key === 'name' && td.querySelector('dl');
		if (list) {
			o.options = {};
			for (let i = 0; i + 1 < list.children.length; i += 2) o.options[list.children[i].outerText] = list.children[i + 1].outerText;
		}
	}
	return o;
})`

// comments returns the comments of a post in page order, starting with the post itself. below marks
// a reply to a comment, at any depth.
const comments = `(() => {
	const all = [];
	const walk = (node, level, parent) => {
		const c = {
			parent, user: node.querySelector('.fg-inherit').outerText, text: node.querySelector('.comment__content').outerText,
			time: new Date(node.querySelector('.comment__main > header > h1 > span > time').dateTime).getTime(),
			below(user) { for (let p = parent; p && p.parent; p = p.parent) if (p.user === user) return true; return false },
		};
		all.push(c);
		for (const child of node.querySelectorAll('.comment')) if (parseInt(child.getAttribute('data-level')) === level + 1) walk(child, level + 1, c);
	};
	walk(document.querySelector('#main'), 0, null);
	return all;
})()`

// inPage returns a helper that runs a JavaScript function in the page. If the function throws, the
// helper returns none.
func inPage(args int, function string, none pyrepr.Value) helper {
	return helper{true, args, func(_ *Evaluator, ctx context.Context, p Page, a []string) (pyrepr.Value, error) {
		list := []string{}
		for _, s := range a {
			b, err := json.Marshal(s)
			if err != nil {
				return nil, err
			}
			list = append(list, string(b))
		}
		v, err := evaluate(ctx, p, "("+function+")("+strings.Join(list, ", ")+")")
		if _, isNone := v.(pyrepr.None); thrown(err) || err == nil && isNone {
			return none, nil
		}
		return v, err
	}}
}

// postURL shortens the address of a post or comment to that of the post.
func postURL(address string) string {
	p := split(address)
	dirs := strings.Split(p.path, "/")
	if len(dirs) < 4 || dirs[1] != "f" {
		return address
	}
	return p.scheme + "://" + p.host + "/f/" + dirs[2] + "/" + dirs[3] + "/"
}

var (
	callForm = regexp.MustCompile(`(?s)^\s*(\w+)\s*\((.*)\)\s*;?\s*$`)
	argForm  = regexp.MustCompile(`(?s)^\s*(__page__|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\s*(?:,|$)`)
)

// call runs a helper call as written in a configuration. p is nil if there is no page. In string
// arguments __last_url__ stands for the address of the agent's page; it is replaced after parsing,
// so that an address cannot break out of its quotes.
func (e *Evaluator) call(ctx context.Context, source string, p Page, last string) (pyrepr.Value, error) {
	m := callForm.FindStringSubmatch(source)
	if m == nil {
		return nil, wrong("%q is no call of a helper", source)
	}
	h, ok := helpers[m[1]]
	if !ok {
		return nil, wrong("helper %q is not known", m[1])
	}
	var args []string
	pages := 0
	for rest := m[2]; strings.TrimSpace(rest) != ""; {
		a := argForm.FindStringSubmatch(rest)
		if a == nil {
			return nil, wrong("%q: arguments are texts in quotes or __page__", source)
		}
		rest = rest[len(a[0]):]
		if a[1] == "__page__" {
			pages++
			continue
		}
		v, err := pyrepr.Unquote(a[1][1 : len(a[1])-1])
		if err != nil {
			return nil, wrong("%q: %v", source, err)
		}
		args = append(args, strings.ReplaceAll(v, "__last_url__", last))
	}
	if len(args) != h.args || (pages == 1) != h.pages || pages > 1 || h.pages && p == nil {
		return nil, wrong("%q: wrong arguments", source)
	}
	v, err := h.run(e, ctx, p, args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m[1], err)
	}
	return v, nil
}
