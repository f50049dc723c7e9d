// Package judge evaluates measurements: whether windows agree and which are
// warm-up, whether it makes sense to go on, how far a figure may be from the
// truth, whether goals were met, and whether one build is faster than another.
// It is arithmetic over a result, without clock or connection. The perf package
// uses it to end levels, the perf command to compare.
package judge
