// Package session serves processes on this machine over shared memory: a client
// connects to a Unix socket, gets memory from the server as file descriptors,
// writes a call's tensors there and finds the outputs there.
//
// The socket carries what is rare: the start, requests for memory, the
// cancellation of a call, and a message that wakes the server. A call itself is a
// number in a ring in shared memory; its answer is a word that changes there, and
// a futex wakes the thread that waits for it. While calls follow each other
// quickly, both sides poll that memory for a moment before they sleep, and a call
// needs no system call.
//
// A client can change its memory at any time. What the server decides by (the
// table of a call: shapes, offsets, sizes) is copied before it is read. Numbers
// are copied once, into the batch, so that a client that changes them meanwhile
// spoils only its own answer. Large rows of floating-point numbers are not copied
// for a Python model: its worker maps them into the batch (backend/python/lend.go).
// Strings are checked, so they are copied before. The
// memory cannot shrink (it is sealed), and clients cannot write where the server
// writes. wire.go has the formats; python/shoal/_session.py is the client.
//
// A [Server] is safe for concurrent use.
package session
