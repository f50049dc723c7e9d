// Package kservehttp is the HTTP front: the KServe v2 protocol with the
// extensions of Triton's, on fasthttp. Start returns a running server that the
// caller must Close.
//
// An inference request is read into pooled memory, scanned in place into an
// infer.Request, run by the engine and answered without an allocation of ours.
// Every other route is off the hot path and written for plainness. What a
// client can hold of the server (memory, time, connections, header and chunk
// counts) has a limit in Options, and a client that hangs up takes what it has
// queued with it.
package kservehttp
