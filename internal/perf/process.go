package perf

import (
	"net"
	"os"
	"strconv"

	"shoal/internal/load"
)

// findServer looks for the server's process to measure its CPU time: the given
// one, or the one that listens at the address when that is on this machine.
func (s *Session) findServer() {
	pid := s.settings.ServerPID
	if pid == 0 {
		pid = listenerAt(s.settings.Address.Host)
	}
	if pid == 0 || pid == os.Getpid() {
		return
	}
	p := load.Watch(pid)
	if _, err := p.CPU(); err != nil {
		return // it is gone, or belongs to another user
	}
	s.server, s.target.ServerPID = &p, pid
}

// listenerAt returns the process that listens at an address of this machine; 0
// when there is none or it cannot be seen.
func listenerAt(address string) int {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || !local(host) {
		return 0
	}
	pid, err := load.Listener(uint16(n))
	if err != nil {
		return 0
	}
	return pid
}

// local reports whether a host is obviously this machine.
func local(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// processes returns the server's processes: it and those it started.
func (s *Session) processes() []load.Process {
	if s.server == nil {
		return nil
	}
	list := []load.Process{*s.server}
	if children, err := s.server.Descendants(); err == nil {
		list = append(list, children...)
	}
	return list
}
