package chart

import (
	"fmt"
	"strings"
)

// A Colour is a colour by name; its value depends on the scheme.
type Colour string

// The colours. People with colour blindness can distinguish those of one kind
// of data.
const (
	None   Colour = ""
	Ink    Colour = "ink"   // text that matters
	Muted  Colour = "muted" // text of axes
	Grid   Colour = "grid"
	Paper  Colour = "paper" // behind all
	Shade  Colour = "shade" // a highlighted range
	Blue   Colour = "blue"
	Orange Colour = "orange"
	Green  Colour = "green"
	Purple Colour = "purple"
	Sky    Colour = "sky"
	Grey   Colour = "grey"
	Red    Colour = "red"
)

// Ramp has colours for things that have an order, such as levels.
var Ramp = []Colour{"ramp1", "ramp2", "ramp3", "ramp4", "ramp5", "ramp6"}

// palette has the values of the colours in the light and the dark scheme.
var palette = []struct {
	name        Colour
	light, dark string
}{
	{Ink, "#1c2530", "#e6ebf1"},
	{Muted, "#566371", "#a3b0bd"},
	{Grid, "#dfe4ea", "#323d49"},
	{Paper, "#ffffff", "#171d24"},
	{Shade, "#f1f4f8", "#202932"},
	{Blue, "#1f6fb2", "#5aaae6"},
	{Orange, "#c8641a", "#f0995a"},
	{Green, "#1b8a5f", "#4cc795"},
	{Purple, "#8551a8", "#c39ae0"},
	{Sky, "#5fb0dd", "#2f7fae"},
	{Grey, "#b3bcc6", "#5b6875"},
	{Red, "#bf2f38", "#f2777d"},
	{Ramp[0], "#2a9488", "#5fd0c0"},
	{Ramp[1], "#1f86b3", "#5cbce6"},
	{Ramp[2], "#3a69c4", "#8eadf5"},
	{Ramp[3], "#5c4bbd", "#ad9cf4"},
	{Ramp[4], "#8a37a5", "#d592e4"},
	{Ramp[5], "#b02a68", "#f089b7"},
}

// CSS returns the style sheet for drawings: variables for the colours under the
// selector scope, in both schemes, and classes that use them.
func CSS(scope string) string {
	var light, dark, classes strings.Builder
	for _, c := range palette {
		fmt.Fprintf(&light, "--%s:%s;", c.name, c.light)
		fmt.Fprintf(&dark, "--%s:%s;", c.name, c.dark)
		fmt.Fprintf(&classes, ".s-%s{stroke:var(--%[1]s)}.f-%[1]s{fill:var(--%[1]s)}", c.name)
	}
	return scope + "{" + light.String() + "}\n" +
		"@media(prefers-color-scheme:dark){" + scope + "{" + dark.String() + "}}\n" +
		classes.String() + "\n" + letters
}

// letters is the style of text. Sizes are in units of the drawing; the page makes
// them larger where the drawing is shown small.
const letters = `text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}.tick{font-size:12px}.label{font-size:13px}.note{font-size:12px}.head{font-size:15px;font-weight:600}.title{font-size:19px;font-weight:600}
`
