// Package chart draws charts as SVG and PNG: axes with units, lines, bars, points
// and bands. A chart is a value; drawing is a pure function of it. Colours go by
// name, so that one drawing serves light and dark. The pages and plots of perf
// stand on it.
//
// It is our own because a page needs SVG that follows the reader's colour scheme
// and grows its letters on narrow screens, and the well-kept plotting library
// (gonum/plot) draws neither and brings nine modules.
package chart
