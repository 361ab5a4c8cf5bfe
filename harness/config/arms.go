package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/internal/yamldoc"
)

func (l *layout) arms(tree *node) {
	l.prompts, l.driver = tree.Get("prompt"), tree.Get("sandbox").Get("driver")
	base := &node{Kind: yamldoc.Map, Pos: tree.Pos}
	for _, k := range armKeys {
		if v := tree.Get(k); v != nil {
			base = base.With(k, v)
		}
	}
	var trees []*node
	if a := tree.Get("arms"); a != nil && a.Kind == yamldoc.List {
		for _, x := range a.Items {
			if x.Kind == yamldoc.Map {
				trees = append(trees, merge(x, base, mergeKeys...))
			}
		}
	}
	listed := len(trees)
	trees = append(trees, l.matrix(tree, base)...)
	if len(trees) == 0 && tree.Get("matrix") == nil && tree.Get("arms") == nil {
		trees = l.plain(base)
	}
	if len(trees) == 0 && len(l.errs.list) == 0 {
		l.fail(cmpNode(tree.Get("matrix"), tree.Get("arms"), tree), "arms", "no arm is left to run",
			"see matrix, exclude and arms")
		return
	}

	f := &l.out.File
	f.Arms = nil
	failed := len(l.errs.list)
	places := map[string]*node{}
	byID := map[string]string{}
	for i, t := range trees {
		root := fmt.Sprintf("arms[%d].", i)
		if i >= listed {
			root = ""
		}
		var a Arm
		before := len(l.errs.list)
		l.decode(t, &a, root)
		if len(l.errs.list) > before {
			continue
		}
		rec, ok := l.arm(&a, t, root, tree.Get("tape"))
		if !ok {
			continue
		}
		at := cmpNode(t.Get("name"), t)
		if first, ok := byID[rec.ID]; ok {
			if i >= listed && a.Name == first {
				continue // oracle needs no model, so all its cells are the same arm
			}
			if i >= listed {
				l.out.Notes = append(l.out.Notes,
					fmt.Sprintf("arm %q is the same as %q and is left out", a.Name, first))
				continue
			}
			if a.Name == first { // both have the same generated name, so the message uses their indices
				l.fail(at, root+"name", fmt.Sprintf("arms[%d] and arms[%d] are the same: nothing that is "+
					"compared differs", slices.IndexFunc(l.out.Records,
					func(r record.Arm) bool { return r.ID == rec.ID }), i), "")
				continue
			}
			l.fail(at, root+"name", fmt.Sprintf("arm %q is the same as arm %q: nothing that is compared differs",
				a.Name, first), "")
			continue
		}
		if _, taken := places[a.Name]; taken && t.Get("name") == nil {
			a.Name = apart(&a, places)
			rec.Name = a.Name
		}
		if first, ok := places[a.Name]; ok {
			l.fail(at, root+"name", fmt.Sprintf("two arms are called %q; the first is at %s", a.Name, first.Pos),
				"give each arm a name of its own")
			continue
		}
		byID[rec.ID], places[a.Name] = a.Name, at
		f.Arms = append(f.Arms, a)
		l.out.Records = append(l.out.Records, rec)
	}
	if len(l.errs.list) == failed {
		l.unused(tree)
	}
	l.gates(tree, len(l.errs.list) == failed)
}

// unused reports settings that no arm uses: an unused prompt is an error, an unused axis a note.
func (l *layout) unused(tree *node) {
	arms := l.out.File.Arms
	if p := tree.Get("prompt"); p != nil && !slices.ContainsFunc(arms, func(a Arm) bool { return a.Prompt != nil }) &&
		slices.ContainsFunc(arms, func(a Arm) bool { return l.reg.Agent(a.Agent.Name).Model }) {
		l.fail(p, "prompt", "no arm's agent takes a prompt",
			"leave it out, or take another agent: "+strings.Join(l.reg.prompted(), ", "))
	}
	for _, axis := range []string{"model", "prompt"} {
		n := tree.Get("matrix").Get(axis)
		if n == nil || slices.ContainsFunc(arms, func(a Arm) bool { return a.Axes[axis] != "" }) {
			continue
		}
		var names []string
		for _, a := range arms {
			if !slices.Contains(names, a.Agent.Name) {
				names = append(names, a.Agent.Name)
			}
		}
		l.out.Notes = append(l.out.Notes,
			fmt.Sprintf("the axis %s makes no difference, since %s takes no %s: its cells are one arm", axis,
				strings.Join(names, ", "), axis))
	}
}

// plain returns the arms of a configuration that lists none: codeact if a model is given, otherwise
// oracle and nop, which together show that the benchmark and the sandbox work.
func (l *layout) plain(base *node) []*node {
	if base.Get("agent") != nil {
		return []*node{base}
	}
	word := func(s string) *node { return &node{Kind: yamldoc.String, Text: s, Pos: base.Pos} }
	if base.Get("model") != nil {
		return []*node{base.With("agent", word("codeact"))}
	}
	l.out.Notes = append(l.out.Notes, "no agent is named, so oracle and nop are run; add --agent NAME, or -m "+
		"VENDOR/MODEL for codeact")
	return []*node{base.With("agent", word("oracle")), base.With("agent", word("nop"))}
}

// arm checks a decoded arm, reads the files it names, and computes its ID.
func (l *layout) arm(a *Arm, t *node, root string, tape *node) (record.Arm, bool) {
	before := len(l.errs.list)
	if a.Agent == nil {
		if a.Model == nil {
			l.fail(t, root+"agent", "an arm without agent and model", "name an agent")
			return record.Arm{}, false
		}
		a.Agent = &Agent{Name: "codeact"}
	}
	an := cmpNode(t.Get("agent"), t)
	k, msg, hint := l.reg.name("agent", l.reg.Agents, a.Agent.Name, &a.Agent.Arg, l.dir)
	if msg != "" {
		l.fail(cmpNode(an.Get("name"), an), root+"agent", msg, hint)
		return record.Arm{}, false
	}
	l.options(k, "agent "+k.Name, a.Agent.Arg, &a.Agent.Options, an, root+"agent.options")

	label := ""
	if k.Model && a.Model != nil {
		mn := t.Get("model")
		label, mn = l.named(a, mn)
		l.model(a.Model, mn, root+"model")
		if a.Model.Tape == nil && l.out.File.Tape != nil {
			c := *l.out.File.Tape
			c.File = abs(l.dir, c.File)
			a.Model.Tape = &c
		}
	} else if k.NeedsModel {
		l.fail(an, root+"model", fmt.Sprintf("agent %s needs a model", k.Name), "add -m openai/NAME, or the key model")
	} else {
		a.Model, a.Params = nil, nil
		delete(a.Axes, "model")
	}
	if k.Prompt && a.Prompt != nil {
		l.prompt(a.Prompt, cmpNode(t.Get("prompt"), t), root+"prompt")
	} else {
		// A prompt set for one arm or by an axis is explicit, so it is an error if the agent takes
		// none. A prompt for all arms applies only to agents that take one. Agents that only test a
		// benchmark ignore it.
		own := t.Get("prompt")
		if a.Prompt != nil && k.Model && own != l.prompts {
			l.fail(own, root+"prompt", fmt.Sprintf("agent %s takes no prompt", k.Name),
				"leave the prompt out, or take another agent: "+strings.Join(l.reg.prompted(), ", "))
		}
		a.Prompt = nil
		delete(a.Axes, "prompt")
	}
	if s := a.Sandbox; s != nil {
		n := cmpNode(t.Get("sandbox"), t)
		if s.Memory != 0 && s.Memory < 16<<20 {
			l.fail(cmpNode(n.Get("memory"), n), root+"sandbox.memory",
				fmt.Sprintf("%s is less than a machine needs to start", s.Memory), "the least is 16MiB")
		}
		if a.Sandbox.Image != "" && strings.HasPrefix(s.Image, "dir:") {
			s.Image = "dir:" + abs(l.dir, strings.TrimPrefix(s.Image, "dir:"))
		}
		if own := t.Get("sandbox").Get("driver"); own != l.driver {
			l.fail(own, root+"sandbox.driver", "an arm has the sandbox driver of the run",
				"set sandbox.driver for the whole run")
		}
		s.Driver = ""
		if reflect.ValueOf(*s).IsZero() {
			a.Sandbox = nil
		}
	}
	if len(l.errs.list) > before {
		return record.Arm{}, false
	}
	if a.Name == "" {
		a.Name = armName(a, label)
	}
	if bad := badName(a.Name); bad != "" {
		l.fail(cmpNode(t.Get("name"), t), root+"name", fmt.Sprintf("arm name %q %s", a.Name, bad), "")
		return record.Arm{}, false
	}
	def, err := definition(a, k, l.command())
	if err != nil {
		l.fail(an, root+"agent", err.Error(), "")
		return record.Arm{}, false
	}
	rec := record.Arm{Name: a.Name, Agent: a.Agent.Name, Axes: maps.Clone(a.Axes)}
	if a.Model != nil {
		rec.Model = a.Model.Name
	}
	if a.Prompt != nil {
		rec.Prompt = a.Prompt.Name
	}
	if rec.ID, err = record.ArmID(def); err == nil {
		rec.Def, err = record.Canonical(def)
	}
	if err != nil {
		l.fail(t, root, err.Error(), "")
		return record.Arm{}, false
	}
	return rec, true
}

func (l *layout) command() Duration {
	if p := l.out.File.Phases; p != nil {
		return p.Command
	}
	return 0
}

func badName(s string) string {
	switch {
	case len(s) > 200:
		return "is longer than 200 bytes"
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "holds characters that cannot be shown"
	}
	return ""
}

// named replaces a reference to an entry of models by that entry. It returns the model's label and
// the node where it is defined.
func (l *layout) named(a *Arm, n *node) (string, *node) {
	name := a.Model.Name
	if m, ok := l.out.File.Models[name]; ok && m != nil {
		c := *m
		if a.Model.Tape != nil {
			c.Tape = a.Model.Tape
		}
		a.Model = &c
		return name, cmpNode(l.models.Get(name), n)
	}
	_, label, _ := strings.Cut(name, "/")
	return label, n
}

// apart returns a unique name for an arm whose generated name is taken: with the name of the
// agent's file added, or else a number.
func apart(a *Arm, taken map[string]*node) string {
	name := a.Name
	if arg := filepath.Base(a.Agent.Arg); a.Agent.Arg != "" {
		name += ":" + strings.TrimSuffix(arg, filepath.Ext(arg))
	}
	for n, base := 2, name; taken[name] != nil; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	return name
}

// armName returns the name of an arm: agent, model, prompt, and the values of other axes.
func armName(a *Arm, modelLabel string) string {
	parts := []string{a.Agent.Name}
	if a.Model != nil {
		if a.Agent.Name == "codeact" { // the default agent is not named
			parts = nil
		}
		parts = append(parts, modelLabel)
	}
	if a.Prompt != nil {
		parts = append(parts, a.Prompt.Name)
	}
	for _, k := range slices.Sorted(maps.Keys(a.Axes)) {
		if k != "agent" && k != "model" && k != "prompt" {
			parts = append(parts, last(k)+"="+a.Axes[k])
		}
	}
	return strings.Join(parts, "+")
}
