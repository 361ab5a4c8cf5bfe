package image

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A checkedDockerfile is the result of checking a Dockerfile: the text for the engine, and what it
// uses.
type checkedDockerfile struct {
	d     *dockerfile
	bases []base // images that it builds upon, each once
	final string // the base of the resulting image; "": scratch
	files []hidden
}

// A base is an external image that a Dockerfile names.
type base struct {
	ref, platform string
	line          int
}

// A hidden file comes from a here-document. It is added to the build, not part of the context.
type hidden struct {
	name, text string
	mode       int64
}

// A checker checks a Dockerfile against what the engine supports and the build is allowed.
type checker struct {
	about   About
	classic bool
	offline bool // the build has no network
	args    map[string]string
	target  string

	out    checkedDockerfile
	vars   map[string]string // variables of the current stage; unknown ones are not in it
	global map[string]string
	stages []stage
	docs   int
}

type stage struct {
	name, ref string   // ref: its external base image
	shell     []string // nil: /bin/sh -c
}

// flagVersions has the version of the Dockerfile frontend in which a flag was introduced; {0, 0}
// means that the classic builder knows it too. Flags that are not listed are refused.
var flagVersions = map[string][2]int{
	"FROM --platform": {},
	"RUN --mount":     {1, 2}, "RUN --network": {1, 3}, "RUN --security": {1, 20},
	"COPY --from": {}, "COPY --chown": {}, "COPY --chmod": {1, 2}, "COPY --link": {1, 4}, "COPY --exclude": {1, 19},
	"COPY --parents": {1, 20},
	"ADD --chown":    {}, "ADD --chmod": {1, 2}, "ADD --link": {1, 4}, "ADD --keep-git-dir": {1, 4},
	"ADD --checksum": {1, 6}, "ADD --unpack": {1, 17}, "ADD --exclude": {1, 19},
	"HEALTHCHECK --interval": {}, "HEALTHCHECK --timeout": {}, "HEALTHCHECK --start-period": {},
	"HEALTHCHECK --retries": {}, "HEALTHCHECK --start-interval": {1, 6},
}

// optional are flags that do not change the image, and can be dropped.
var optional = []string{"COPY --link", "ADD --link", "HEALTHCHECK --start-interval", "RUN --network=default",
	"RUN --security=sandbox"}

var frontendName = regexp.MustCompile(`^(docker\.io/)?docker/dockerfile(-upstream)?(:[\w.-]+)?(@sha256:[0-9a-f]{64})?$`)

// read checks a Dockerfile and rewrites what the engine's frontend does not support.
func (j *checker) read(text string) (*checkedDockerfile, error) {
	d, err := parse(text)
	if err != nil {
		return nil, err
	}
	if d.syntax != "" && !frontendName.MatchString(d.syntax) {
		return nil, wrong(d.heads[0]+1, "the frontend %q is not Docker's; only docker/dockerfile is read here",
			d.syntax)
	}
	for name := range j.args {
		if strings.HasPrefix(name, "BUILDKIT_") {
			return nil, fmt.Errorf("the build argument %s would steer the builder itself; take it out", name)
		}
	}
	for _, i := range d.heads {
		d.lines[i] = "#" // use the engine's own frontend
	}
	j.out = checkedDockerfile{d: d}
	j.global, j.vars, j.stages, j.docs = map[string]string{}, nil, nil, 0
	for i := range d.steps {
		if err := j.step(&d.steps[i]); err != nil {
			return nil, err
		}
	}
	if len(j.stages) == 0 {
		return nil, fmt.Errorf("the Dockerfile has no FROM")
	}
	last := len(j.stages) - 1
	if j.target != "" {
		if last = j.stage(j.target); last < 0 {
			return nil, fmt.Errorf("the Dockerfile has no stage %q", j.target)
		}
	}
	j.out.final = j.stages[last].ref
	return &j.out, nil
}

func (j *checker) stage(name string) int {
	return slices.IndexFunc(j.stages, func(s stage) bool { return s.name != "" && strings.EqualFold(s.name, name) })
}

func (j *checker) step(s *step) error {
	if s.inner != nil {
		before := len(j.out.files)
		if err := j.step(s.inner); err != nil {
			return err
		}
		if len(j.out.files) > before {
			return wrong(s.line, "a here-document in ONBUILD needs an engine of at least 23.0")
		}
		if s.inner.text != "" {
			s.text = "ONBUILD " + s.inner.text
		}
		return nil
	}
	if len(j.stages) == 0 && s.name != "FROM" && s.name != "ARG" {
		return wrong(s.line, "%s before the first FROM", s.name)
	}
	if err := j.flags(s); err != nil {
		return err
	}
	switch s.name {
	case "FROM":
		return j.from(s)
	case "ARG":
		j.arg(s.rest)
	case "ENV":
		j.env(s.rest)
	case "SHELL":
		var sh []string
		if json.Unmarshal([]byte(s.rest), &sh) != nil || len(sh) == 0 {
			return wrong(s.line, `SHELL wants a JSON array: SHELL ["/bin/bash", "-c"]`)
		}
		j.stages[len(j.stages)-1].shell = sh
	case "RUN":
		if len(s.here) > 0 && !j.knows([2]int{1, 4}) {
			return j.runHere(s)
		}
	case "COPY", "ADD":
		if err := j.remote(s); err != nil {
			return err
		}
		if len(s.here) > 0 && !j.knows([2]int{1, 4}) {
			return j.copyHere(s)
		}
	}
	return nil
}

func (j *checker) knows(v [2]int) bool {
	if v == ([2]int{}) {
		return true
	}
	return !j.classic && slices.Compare(j.about.Frontend[:], v[:]) >= 0
}

// flags checks an instruction's flags, and drops those that the frontend does not support and the
// image does not need.
func (j *checker) flags(s *step) error {
	var kept []flag
	for _, f := range s.flags {
		full := s.name + " --" + f.name
		v, ok := flagVersions[full]
		switch {
		case !ok:
			return wrong(s.line, "%s is not known here", full)
		case full == "RUN --security" && f.value != "sandbox", full == "RUN --network" && f.value != "default" &&
			f.value != "none":
			return wrong(s.line, "%s=%s would let the build out of its sandbox", full, f.value)
		case full == "RUN --mount":
			if err := j.mount(s.line, f.value); err != nil {
				return err
			}
		case full == "COPY --from":
			j.base(f.value, "", s.line)
		}
		if !j.knows(v) {
			if slices.Contains(optional, full) || slices.Contains(optional, full+"="+f.value) {
				continue
			}
			have := "the classic builder does not know it"
			if !j.classic {
				have = fmt.Sprintf("this engine, %s, has %d.%d", j.about.Version, j.about.Frontend[0],
					j.about.Frontend[1])
			}
			return wrong(s.line, "%s needs BuildKit's Dockerfile frontend %d.%d; %s", full, v[0], v[1], have)
		}
		kept = append(kept, f)
	}
	if len(kept) < len(s.flags) {
		s.flags = kept
		s.text = s.compose(j.out.d.escape)
		for _, h := range s.here {
			s.text += "\n" + h.text + h.name
		}
	}
	return nil
}

// mount checks RUN --mount. A bind mount may be of the context or of an image, never of the host.
func (j *checker) mount(line int, value string) error {
	fields, err := csv.NewReader(strings.NewReader(value)).Read()
	if err != nil {
		return wrong(line, "RUN --mount=%s cannot be read: %v", value, err)
	}
	kind, from := "bind", ""
	for _, f := range fields {
		k, v, _ := strings.Cut(f, "=")
		switch strings.ToLower(k) {
		case "type":
			kind = strings.ToLower(v)
		case "from":
			from = v
		}
	}
	switch kind {
	case "bind", "cache", "tmpfs":
	case "secret", "ssh":
		return wrong(line, "RUN --mount=type=%s: a build gets no secrets and no keys of this machine", kind)
	default:
		return wrong(line, "RUN --mount=type=%s is not known here", kind)
	}
	j.base(from, "", line)
	return nil
}

// from begins a stage.
func (j *checker) from(s *step) error {
	words := strings.Fields(s.rest)
	var st stage
	switch {
	case len(words) == 1:
	case len(words) == 3 && strings.EqualFold(words[1], "as"):
		st.name = words[2]
	default:
		return wrong(s.line, "FROM wants IMAGE or IMAGE AS NAME")
	}
	before := j.stages
	j.stages = nil // FROM uses only the variables before the first FROM
	platform := ""
	for _, f := range s.flags {
		platform, _ = j.expand(f.value, j.global)
	}
	ref, known := j.expand(words[0], j.global)
	j.stages = before
	if !known || ref == "" {
		return wrong(s.line, "FROM %s: the variable has no value; give the ARG before it a default, or a "+
			"build argument", words[0])
	}
	if i := j.stage(ref); i >= 0 {
		st.ref, st.shell = j.stages[i].ref, j.stages[i].shell
	} else if !strings.EqualFold(ref, "scratch") {
		st.ref = ref
		j.base(ref, platform, s.line)
	}
	j.stages = append(j.stages, st)
	j.vars = map[string]string{}
	return nil
}

// base records an external image. Names and numbers of earlier stages are not external.
func (j *checker) base(ref, platform string, line int) {
	if ref == "" || strings.Contains(ref, "$") || strings.EqualFold(ref, "scratch") || j.stage(ref) >= 0 {
		return
	}
	if strings.Trim(ref, "0123456789") == "" ||
		slices.ContainsFunc(j.out.bases, func(b base) bool { return b.ref == ref && b.platform == platform }) {
		return
	}
	j.out.bases = append(j.out.bases, base{ref, platform, line})
}
