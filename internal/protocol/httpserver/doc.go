// Package httpserver serves HTTP/1.1 to dialects: it has the connections, their
// limits and time-outs, bodies in counted memory, compression and the graceful
// stop. A Dialect adds routes, codec and errors. Start returns a running server
// that the caller must Close.
//
// Requests are parsed by fasthttp's header parser, one Exchange for each
// connection, without an allocation of ours. What a client can hold of the server
// (memory, time, connections, header and chunk counts) has a limit in Options,
// and a client that hangs up takes what it has queued with it.
package httpserver
