package load

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Listener returns the id of the process that listens on a TCP port of this
// machine. Other users' processes can be seen only with the necessary rights.
func Listener(port uint16) (int, error) {
	inodes := make(map[string]bool)
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if err := listening(path, port, inodes); err != nil && !os.IsNotExist(err) {
			return 0, err
		}
	}
	if len(inodes) > 0 {
		links, err := filepath.Glob("/proc/[0-9]*/fd/[0-9]*")
		if err != nil {
			return 0, err
		}
		for _, link := range links {
			to, err := os.Readlink(link)
			if err == nil && inodes[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] {
				return strconv.Atoi(strings.Split(link, "/")[2])
			}
		}
	}
	return 0, fmt.Errorf("no process that can be seen listens on port %d", port)
}

// listening adds the inodes of the sockets that listen on a port.
func listening(path string, port uint16, inodes map[string]bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	const listens = "0A"
	suffix := fmt.Sprintf(":%04X", port)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// sl, local address, remote address, state, four more, uid, timeout, inode
		fields := strings.Fields(lines.Text())
		if len(fields) > 9 && strings.HasSuffix(fields[1], suffix) && fields[3] == listens {
			inodes[fields[9]] = true
		}
	}
	return lines.Err()
}
