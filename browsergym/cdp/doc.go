// Package cdp drives Chromium over its debugging protocol: starting it, pages and frames, input as
// a user's, and what observations are made of. It is the only package that knows rod, whose
// generated types it uses for calls that are seldom made; what is called at every step has small
// types of its own. No type of rod's leaves it.
package cdp
