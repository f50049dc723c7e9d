//go:build unix

package connlimit

import (
	"net"
	"testing"
	"time"
)

// A request that has come is not lost, although the server has not read it: with
// the connection closed then, its client would see a reset.
func TestConnectionWithUnreadBytesIsNotClosedForAnother(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := &httpConn{Conn: nc, limit: New(1, func(*httpConn) {})}
	defer c.Close()
	if Unread(nc) {
		t.Error("nothing was sent: got unread bytes, want none")
	}
	if _, err := client.Write([]byte("GET")); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); !Unread(nc); {
		if time.Now().After(deadline) {
			t.Fatal("got no unread bytes within 10 s, want three")
		}
	}
	if c.CloseIdle() {
		t.Error("got a connection with a request closed, want it kept")
	}
	if _, err := nc.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if !c.CloseIdle() {
		t.Error("all is read: got the connection kept, want it closed")
	}
}
