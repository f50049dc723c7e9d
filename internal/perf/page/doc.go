// Package page makes pictures of a result.Result: a page of HTML that stands alone,
// and a plot. Both are pure functions of the result, so that they can be made long
// after the run as well as at its end. The perf command uses it.
package page
