package scores

import (
	"encoding/json"

	"github.com/evalrun/evalrun/reports/export"
)

// Options of the format, which evalrun export sets by --set.
type Options struct {
	Digits *int `json:"digits,omitempty" min:"0" max:"17" doc:"Digits behind the point; default: as many as the mean has."`
}

// Kind is the format's entry in a registry.
var Kind = export.Kind{
	Name: "scores", Doc: "one CSV file with a line for each task and a column for each arm, its mean reward",
	Options: Options{},
	Open: func(s export.Setup) (export.Exporter, error) {
		x := &Exporter{sums: map[cell]sum{}}
		if len(s.Options) > 0 {
			if err := json.Unmarshal(s.Options, &x.options); err != nil {
				return nil, err
			}
		}
		var err error
		x.file, err = s.Create("scores.csv")
		return x, err
	},
}
