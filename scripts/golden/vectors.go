package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// goals are the distinguishing parts of the published tasks' goals, for seeds 0, 1 and 42.
var goals = map[string][3]string{
	"click-button":     {`"no"`, `"cancel"`, `"Submit"`},
	"click-checkboxes": {"Select Nb and", "Select Jc, s6WcI, XMHY, HJ6c and", "Select XnJHe, e6, Ty, IH2Gtzx and"},
	"click-color":      {" olive ", " purple ", " magenta "},
	"click-dialog-2":   {`"OK"`, `"x"`, `"OK"`},
	"click-link":       {`"et"`, `"sed"`, `"In"`},
	"choose-list":      {"Select Ertha from", "Select Norfolk Island from", "Select Croatia from"},
	"enter-text":       {`"Myron"`, `"Kanesha"`, `"Ashlea"`},
	"login-user": {`username "cierra" and the password "11L"`, `username "juan" and the password "Jc"`,
		`username "augus" and the password "eO"`},
	"use-slider":  {"Select -94 with", "Select 103 with", "Select 103 with"},
	"click-tab-2": {`"vel"`, `"faucibus"`, `"dignissim"`},
}

// boxes are the boxes of two elements of click-test-2, for the same seeds.
var boxes = [3]string{"[36 150 60 60] [150 225 60 60]", "[159 85.5 60 60] [121.5 135 60 60]",
	"[175.5 87 60 60] [6 174 60 60]"}

// axTexts are the texts for seed 42, as in published results.
var axTexts = map[string]string{
	"login-user": `RootWebArea 'Login User Task', focused
	[14] paragraph '', visible
		[15] LabelText '', visible
			StaticText 'Username'
		[16] textbox '', clickable, visible
	[17] paragraph '', visible
		[18] LabelText '', visible
			StaticText 'Password'
		[19] textbox '', clickable, visible
	[20] button 'Login', clickable, visible`,
	"choose-list": `RootWebArea 'Choose List Task', focused
	[13] combobox '' value='Montenegro', visible, hasPopup='menu', expanded=False
		[14] option 'Montenegro', selected=True
		[15] option 'Pitcairn', selected=False
		[16] option 'Seychelles', selected=False
		[17] option 'Azerbaijan', selected=False
		[18] option 'Angola', selected=False
		[19] option 'Pakistan', selected=False
		[20] option 'Croatia', selected=False
	[21] button 'Submit', clickable, visible`,
	"click-dialog-2": `RootWebArea 'Click Dialog Task', focused
	[17] dialog '', clickable, visible, modal=False, describedby='dialog'
		StaticText ''
		[20] button 'Close', clickable, visible
		[24] paragraph '', visible
			StaticText 'Odio. Integer odio varius sed. Condimentum. In.'
		[27] button 'Cancel', clickable, visible, focused
		[28] button 'OK', clickable, visible`,
}

var spaces = regexp.MustCompile(`\s+`)

// vectors compares a task's goals, boxes and texts with published ones, if there are any.
func vectors(ctx context.Context, c *tally, b *cdp.Browser, base, name string) error {
	if _, ok := goals[name]; !ok && name != "click-test-2" {
		return nil
	}
	env, err := browsergym.New(browsergym.Options{Browser: b, Task: func(seed uint32) (browsergym.Task, error) {
		return &browsergym.MiniWoB{Name: name, Base: base, Seed: seed}, nil
	}})
	if err != nil {
		return err
	}
	defer env.Close(context.WithoutCancel(ctx))
	for i, seed := range []uint32{0, 1, 42} {
		o, _, err := env.Reset(ctx, seed)
		if err != nil {
			return err
		}
		say := func(field, got, want string) {
			c.add(fmt.Sprintf("miniwob/%s.%d", name, seed), difference{field, got, want}, unexcused)
		}
		if name == "click-test-2" {
			x, _ := o.Properties.Get("13")
			y, _ := o.Properties.Get("14")
			say("published boxes", fmt.Sprint(*x.Box, " ", *y.Box), boxes[i])
			continue
		}
		goal := spaces.ReplaceAllString(o.Goal, " ")
		got := goals[name][i]
		if !strings.Contains(goal, got) {
			got = goal
		}
		say("published goals", got, goals[name][i])
		if want, ok := axTexts[name]; ok && seed == 42 {
			say("published texts", axText(o), want)
		}
	}
	return nil
}
