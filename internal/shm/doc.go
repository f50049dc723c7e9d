// Package shm keeps the shared memory of clients on this machine: they register
// a region under a name, and requests then refer to an input or output in it
// instead of carrying the bytes.
//
// A region is read and written by system calls, not mapped: a client may
// truncate its file at any time, and accessing a mapping beyond the end would
// kill the process. Inputs are copied once, so a client cannot change them
// after they were checked. Memory of a GPU is copied by the driver.
//
// A [Registry] is safe for concurrent use. The protocols get a [Part] of a
// region from it and hold it for as long as a request needs it. [Create] is the
// client's side.
package shm
