// Package shm keeps the shared memory that clients of this machine lend the
// server: they register a region under a name, and requests then say where in it
// an input lies or an output goes, rather than carry the bytes.
//
// A region is read and written by system calls, not mapped: a client may cut its
// file short at any time, and touching a mapping beyond the end would kill the
// process. What a request reads is copied once, so a client cannot change it
// after it was checked.
//
// A [Registry] is safe for concurrent use; the fronts ask it and hold a [Part]
// of a region for as long as a request needs it. [Create] is the client's side.
package shm
