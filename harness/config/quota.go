package config

import (
	"encoding/json"
	"fmt"
)

// A Quota is a size in bytes, or "none" for no limit. Zero means unset.
type Quota int64

// Unlimited is the quota "none".
const Unlimited Quota = -1

func (q Quota) String() string {
	if q < 0 {
		return "none"
	}
	return Size(q).String()
}

func (q Quota) MarshalJSON() ([]byte, error) { return json.Marshal(q.String()) }

func (q *Quota) Set(text string) error {
	if text == "none" {
		*q = Unlimited
		return nil
	}
	n, err := ParseSize(text)
	if err == nil && n == 0 {
		err = fmt.Errorf("nothing could be kept in %s", text)
	}
	*q = Quota(n)
	return err
}

func (Quota) Notation() (string, string, string) {
	return "a size, or none", `^(none|[0-9]+(\.[0-9]+)? ?([KMGT]i?B?|kB|k|B))$`, "50GiB or none"
}
