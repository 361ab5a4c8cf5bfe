package compose

import (
	"errors"

	"github.com/evalrun/evalrun/internal/yamldoc"
)

// Limits of a file.
const (
	maxSize  = 256 << 10
	maxNodes = 50_000 // after aliases

	maxErrors   = 1000
	maxServices = 64 // each is a container, and all start together
)

// Variables and quotes are handled here: every scalar is a string, whatever it looks like.
type (
	node  = yamldoc.Node
	field = yamldoc.Entry
)

const (
	null    = yamldoc.Null
	scalar  = yamldoc.String
	list    = yamldoc.List
	mapping = yamldoc.Map
)

// A spot is a value or a key that an error refers to.
type spot interface {
	Errorf(format string, args ...any) *yamldoc.Error
}

// parse reads a file with one document and expands its variables.
func parse(file string, text []byte, expand func(text string) (string, error)) (*node, error) {
	n, err := yamldoc.Parse(file, text, yamldoc.Bounds{Size: maxSize, Values: maxNodes})
	if err != nil {
		return nil, err
	}
	var errs []error
	left := 4 * maxSize
	fill(n, expand, &left, &errs)
	return n, errors.Join(errs...)
}

func fill(n *node, expand func(text string) (string, error), left *int, errs *[]error) {
	for _, i := range n.Items {
		fill(i, expand, left, errs)
	}
	for _, e := range n.Entries {
		fill(e.Value, expand, left, errs)
	}
	if !n.Scalar() || *left < 0 {
		return
	}
	text, err := expand(n.Text)
	if err != nil {
		*errs = append(*errs, placed(n, err))
	}
	if n.Kind, n.Text = scalar, text; len(text) > *left {
		*errs = append(*errs, n.Errorf("the file's texts grow beyond %d KiB", 4*maxSize>>10))
	}
	*left -= len(text)
}
