package page

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/perf/result"
)

// A shown figure is one as the browser has it.
type shown struct {
	ID, Title, Desc string
	Texts           []string // what is written in it
	Outside         []string // of them those that reach out of the picture
	Width           float64
}

// look asks the browser for every figure. Widths are in pixels.
const look = `[...document.querySelectorAll('figure')].map(f => {
  const svg = f.querySelector('.pic svg'), frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].filter(t => getComputedStyle(t).display != 'none');
  const out = t => { const r = t.getBoundingClientRect(); return r.left < frame.left - 2 || r.right > frame.right + 2 || r.top < frame.top - 2 || r.bottom > frame.bottom + 2 };
  return {ID: f.id, Title: svg.querySelector('title').textContent, Desc: svg.querySelector('desc').textContent, Width: frame.width,
    Texts: texts.map(t => t.textContent), Outside: texts.filter(out).map(t => t.textContent)};
})`

// axes are the labels with units that a figure must have, by the beginning of its
// id; one of each list.
var axes = map[string][][]string{
	"curve":           {{"throughput (infer/s)"}, {"latency (µs)", "latency (ms)", "latency (s)"}},
	"breakdown":       {{"concurrency (requests under way)", "request rate (requests/s)"}, {"mean time of a request (ms)"}, {"throughput (infer/s)"}},
	"spectrum":        {{"percentile (% of requests)"}, {"latency (ms)"}},
	"latency-time":    {{"time since the start (s)"}, {"latency (ms)"}},
	"throughput-time": {{"time since the start (s)"}, {"answers (requests/s)"}},
	"histogram":       {{"latency (ms)"}, {"requests (%)"}},
	"batch":           {{"batch size (rows)"}, {"runs of the model (%)"}},
	"windows":         {{"difference from the level (%)"}},
}

// TestPageInABrowser opens pages as a reader does: nothing is fetched, nothing is
// complained about, every chart is there with its units and fits. With
// SHOAL_SCREENSHOTS set to a folder it leaves pictures there to be looked at.
func TestPageInABrowser(t *testing.T) {
	c := startChromium(t)
	for _, p := range []struct {
		name    string
		result  *result.Result
		figures int
	}{
		{"one level", sample{levels: 1}.result(), 8},
		{"eight levels", sample{levels: 8, failing: true}.result(), 6 + 16},
		{"an open loop", sample{levels: 3, open: true}.result(), 6 + 6},
		{"a server without statistics", sample{levels: 2, silent: true}.result(), 5 + 2},
	} {
		path := filepath.Join(t.TempDir(), "page.html")
		if err := os.WriteFile(path, []byte(write(t, p.result)), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, size := range []struct {
			name   string
			width  int
			scheme string
		}{{"light", 1280, "light"}, {"dark", 1280, "dark"}, {"narrow", 360, "light"}} {
			t.Run(p.name+", "+size.name, func(t *testing.T) {
				c.t = t
				c.window(size.width, 900, size.scheme)
				c.open("file://" + path)
				checkFigures(t, c, p.figures)
				checkFits(t, c, size.width)
				checkScheme(t, c, size.scheme)
				checkDownload(t, c)
				for _, text := range c.complaints("file://" + path) {
					t.Error(text)
				}
				screenshot(t, c, p.name+" "+size.name)
			})
		}
	}
	c.t = t
}

func checkFigures(t *testing.T, c *chromium, want int) {
	t.Helper()
	var figures []shown
	c.eval(look, &figures)
	if len(figures) != want {
		t.Errorf("got %d figures, want %d", len(figures), want)
	}
	for _, f := range figures {
		if f.Title == "" || f.Desc == "" || f.Width < 150 {
			t.Errorf("figure %s has the title %q, the description %q and %v pixels", f.ID, f.Title, f.Desc, f.Width)
		}
		if len(f.Outside) > 0 {
			t.Errorf("figure %s: %q reach out of the picture", f.ID, f.Outside)
		}
		kind := strings.TrimRight(strings.TrimSuffix(f.ID, "-figure"), "-0123456789")
		if axes[kind] == nil {
			t.Errorf("figure %s is of no known kind", f.ID)
		}
		for _, labels := range axes[kind] {
			if !containsOne(f.Texts, labels) {
				t.Errorf("figure %s has no axis %q among %q", f.ID, labels, f.Texts)
			}
		}
	}
}

func containsOne(texts, wanted []string) bool {
	for _, t := range texts {
		for _, w := range wanted {
			if t == w {
				return true
			}
		}
	}
	return false
}

// checkFits wants no scrolling sideways; wide tables scroll in their own box.
func checkFits(t *testing.T, c *chromium, width int) {
	t.Helper()
	var got int
	if c.eval("document.documentElement.scrollWidth", &got); got > width {
		t.Errorf("the page is %d pixels wide in a window of %d", got, width)
	}
}

func checkScheme(t *testing.T, c *chromium, scheme string) {
	t.Helper()
	want := map[string]string{"light": "rgb(241, 244, 248)", "dark": "rgb(32, 41, 50)"}[scheme]
	var got string
	if c.eval("getComputedStyle(document.body).backgroundColor", &got); got != want {
		t.Errorf("the background is %s, want %s", got, want)
	}
}

// checkDownload clicks the link to the JSON, which unpacks it.
func checkDownload(t *testing.T, c *chromium) {
	t.Helper()
	const click = `new Promise(done => {
  const a = document.getElementById('json');
  a.click();
  const wait = () => a.dataset.done ? done([a.href.slice(0, 5), a.download.slice(-5)]) : setTimeout(wait, 5);
  wait();
})`
	var got []string
	c.eval(click, &got)
	if diff := cmp.Diff([]string{"blob:", ".json"}, got); diff != "" {
		t.Errorf("the download (-want +got):\n%s", diff)
	}
}

// screenshot leaves a picture of the whole page where the environment says.
func screenshot(t *testing.T, c *chromium, name string) {
	t.Helper()
	folder := os.Getenv("SHOAL_SCREENSHOTS")
	if folder == "" {
		return
	}
	var shot struct{ Data string }
	c.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, strings.ReplaceAll(name, " ", "-")+".png"), data, 0o644); err != nil {
		t.Fatal(err)
	}
}
