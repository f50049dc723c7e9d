// Package chart draws charts as SVG and PNG: axes with units, lines, bars,
// points and bands. A chart is a value; drawing is a pure function of it.
// Colours have names, so that one drawing works in light and dark schemes. The
// pages and plots of perf use it.
//
// It is our own because a page needs SVG that follows the reader's colour
// scheme and enlarges its letters on narrow screens. The established plotting
// library (gonum/plot) does neither and brings nine modules.
package chart
