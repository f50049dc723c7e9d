// Package page makes pictures of a result.Result: a self-contained HTML page,
// and a plot. Both are pure functions of the result, so they can be made at the
// end of a run or long after it. The perf command uses it.
package page
