// Package browsergym is the browser as an environment: a page with a task on it, actions as text,
// and after each what an agent sees of the page, what it has earned and whether the episode is
// over. It behaves as BrowserGym 0.14 does: the same marks, observations, errors and rewards.
//
// An [Env] plays one episode after another in contexts of a browser that others may use, too. A
// [Task] says what is to be done and when it is done.
package browsergym
