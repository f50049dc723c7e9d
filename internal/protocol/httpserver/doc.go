// Package httpserver serves HTTP/1.1 to dialects: it has the connections, their
// limits and timeouts, bodies in counted memory, compression and the graceful
// stop. A Dialect adds routes, codec and errors. Start returns a running server
// that the caller must Close.
//
// Requests are parsed by fasthttp's header parser, one Exchange for each
// connection, without an allocation of ours. Everything that a client can hold
// of the server (memory, time, connections, header and chunk counts) has a
// limit in Options. The queued request of a client that hangs up is withdrawn.
package httpserver
