// Package browsergym is an environment for agents that use a browser. It shows a page with a task,
// executes actions given as text, and returns after each action an observation of the page, the
// reward, and whether the episode is over. It behaves like BrowserGym 0.14: marks, observations,
// errors and rewards are the same.
//
// An [Env] plays one episode after another, in contexts of a browser that it may share with others.
// A [Task] defines the goal and decides when it is reached.
package browsergym
