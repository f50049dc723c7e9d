package cli

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"shoal/internal/demo"
)

// showDemo prints a request to the demo models, ready to paste, and this
// server's answer to it.
func showDemo(w io.Writer, address string) {
	if address == "" || strings.HasPrefix(address, "/") {
		return // HTTP is off, or on a Unix socket
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return
	}
	url := "http://localhost:" + port + "/v2/models/digits/infer"
	fmt.Fprintf(w, "\nWhich digit is this? Try it:\n\n  curl -s %s -d '%s'\n\n", url, demo.Request)
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Post("http://"+net.JoinHostPort("127.0.0.1", port)+"/v2/models/digits/infer", "application/json", strings.NewReader(demo.Request))
	if err != nil {
		fmt.Fprintf(w, "The server did not answer it: %v\n", err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		fmt.Fprintf(w, "The answer broke off: %v\n", err)
		return
	}
	fmt.Fprintf(w, "It answers:\n\n  %s\n\nCtrl-C stops the server.\n", body)
}
