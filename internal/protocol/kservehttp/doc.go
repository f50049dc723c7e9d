// Package kservehttp is the KServe v2 protocol over HTTP with Triton's
// extensions: routes, codec and error table, on httpserver. Start returns a
// running server that the caller must Close.
//
// An inference request is read into pooled memory, scanned in place into an
// infer.Request, run by the engine and answered without an allocation of ours.
// All other routes are off the hot path and written for simplicity.
package kservehttp
