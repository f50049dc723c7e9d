package page

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A chromium is a headless browser, spoken to over two pipes in its DevTools
// protocol: a dozen messages need no library.
type chromium struct {
	t       *testing.T
	out     io.Writer
	in      *bufio.Reader
	session string
	last    int
	events  []event
}

// An event is something that the browser says unasked.
type event struct {
	Method string
	Params json.RawMessage
}

// startChromium starts a browser that ends with the test. Without one the test is
// skipped; where the environment says CI it fails.
func startChromium(t *testing.T) *chromium {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("no chromium found; CI installs it")
		}
		t.Skip("no chromium found; apt-get install chromium lets this test run")
	}
	// The browser reads from its descriptor 3 and writes to 4.
	theirIn, ourOut := pipe(t)
	ourIn, theirOut := pipe(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--no-first-run", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirIn.Close() // the browser has them now
	_ = theirOut.Close()
	c := &chromium{t: t, out: ourOut, in: bufio.NewReader(ourIn)}
	t.Cleanup(func() {
		_ = ourOut.Close() // it leaves when nobody is there to ask
		_ = cmd.Wait()     // until its children have gone, too, for they write into the folder
		cancel()
		if t.Failed() {
			t.Logf("the browser said: %s", said.Bytes()[max(0, said.Len()-2000):])
		}
	})
	c.attach()
	return c
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.Close()
		_ = w.Close()
	})
	return r, w
}

// attach opens a tab and listens to what it says.
func (c *chromium) attach() {
	c.t.Helper()
	var target struct{ TargetID string }
	c.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	c.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	c.call("Browser.setDownloadBehavior", map[string]any{"behavior": "deny"}, nil)
	c.session = session.SessionID
	for _, domain := range []string{"Page", "Network", "Runtime", "Log"} {
		c.call(domain+".enable", nil, nil)
	}
}

// call sends a command and waits for its answer; events on the way are kept.
func (c *chromium) call(method string, params, result any) {
	c.t.Helper()
	c.last++
	if params == nil {
		params = struct{}{}
	}
	message, err := json.Marshal(map[string]any{"id": c.last, "method": method, "params": params, "sessionId": c.session})
	if err != nil {
		c.t.Fatal(err)
	}
	if c.session == "" {
		message = bytes.Replace(message, []byte(`,"sessionId":""`), nil, 1)
	}
	if _, err := c.out.Write(append(message, 0)); err != nil {
		c.t.Fatal(err)
	}
	for {
		m := c.read()
		if m.ID != c.last {
			continue
		}
		if m.Error != nil {
			c.t.Fatalf("%s: %s", method, m.Error)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				c.t.Fatal(err)
			}
		}
		return
	}
}

// A message is what the browser sends: an answer, which has an ID, or an event.
type message struct {
	ID            int
	Result, Error json.RawMessage
	event
}

func (c *chromium) read() message {
	c.t.Helper()
	data, err := c.in.ReadBytes(0)
	if err != nil {
		c.t.Fatalf("the browser is gone: %v", err)
	}
	var m message
	if err := json.Unmarshal(data[:len(data)-1], &m); err != nil {
		c.t.Fatal(err)
	}
	if m.ID == 0 {
		c.events = append(c.events, m.event)
	}
	return m
}

// open shows a page and waits until it is loaded.
func (c *chromium) open(url string) {
	c.t.Helper()
	c.events = nil
	c.call("Page.navigate", map[string]any{"url": url}, nil)
	for {
		for _, e := range c.events {
			if e.Method == "Page.loadEventFired" {
				return
			}
		}
		c.read()
	}
}

// window sets the size of the window and the colour scheme.
func (c *chromium) window(width, height int, scheme string) {
	c.t.Helper()
	c.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	c.call("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// eval runs JavaScript and reads its value; promises are waited for.
func (c *chromium) eval(script string, value any) {
	c.t.Helper()
	var out struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	c.call("Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true, "awaitPromise": true}, &out)
	if out.ExceptionDetails != nil {
		c.t.Fatalf("%s: %s", script, out.ExceptionDetails)
	}
	if err := json.Unmarshal(out.Result.Value, value); err != nil {
		c.t.Fatalf("%s: %v", script, err)
	}
}

// complaints returns what the page fetched, besides itself and what it holds, and
// what it wrote to the console.
func (c *chromium) complaints(itself string) []string {
	c.t.Helper()
	var list []string
	for _, e := range c.events {
		switch e.Method {
		case "Network.requestWillBeSent":
			var p struct{ Request struct{ URL string } }
			if err := json.Unmarshal(e.Params, &p); err != nil {
				c.t.Fatal(err)
			}
			if u := p.Request.URL; u != itself && !strings.HasPrefix(u, "blob:") && !strings.HasPrefix(u, "data:") {
				list = append(list, "request to "+u)
			}
		case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded":
			list = append(list, fmt.Sprintf("%s %s", e.Method, e.Params))
		}
	}
	return list
}
