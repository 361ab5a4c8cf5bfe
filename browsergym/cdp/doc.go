// Package cdp drives Chromium over its debugging protocol (CDP): it starts browsers, opens contexts
// and pages, sends input as a user would, and takes the raw data of observations.
package cdp
