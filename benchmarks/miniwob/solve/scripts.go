package solve

import "maps"

// scripts are the known scripts by task.
var scripts = func() map[string]script {
	all := map[string]script{}
	for _, m := range []map[string]script{clicks, entries, searches} {
		maps.Copy(all, m)
	}
	return all
}()
