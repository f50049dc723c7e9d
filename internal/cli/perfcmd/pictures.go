package perfcmd

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"shoal/internal/cli/command"
	"shoal/internal/perf/page"
	"shoal/internal/perf/result"
)

// pictureFlags are perf's flags for charts.
type pictureFlags struct {
	html string
	plot string
	live string
}

func (p *pictureFlags) add(g *command.Group) {
	g.Text(&p.html, "html", "", "write a page with all charts, tables and data to this `file`; it needs no network")
	g.Text(&p.html, "report-html", "", "the same as --html")
	g.Note("report-html").Hidden = true
	g.Text(&p.live, "live", liveAuto, "how to show the run on standard error while it goes, `auto|off|line|full`: a status line, a screen of charts, or, without a terminal, a line for each window; auto is line")
	g.Text(&p.plot, "plot", "", "write a picture of throughput, latency and where the time goes to this `file`, .svg or .png")
}

// check checks that the files can be written and the view shown.
func (p *pictureFlags) check(stderr io.Writer) error {
	return errors.Join(p.checkPlot(), checkLive(p.live, stderr))
}

func (p *pictureFlags) checkPlot() error {
	if end := strings.ToLower(filepath.Ext(p.plot)); p.plot != "" && end != ".svg" && end != ".png" {
		return fmt.Errorf("--plot is %q, want a name that ends in .svg or .png", p.plot)
	}
	return nil
}

// write writes the files that were asked for.
func (p *pictureFlags) write(say io.Writer, r *result.Result) error {
	return errors.Join(
		writeFile(say, p.html, func(w io.Writer) error { return page.Write(w, r) }),
		writeFile(say, p.plot, func(w io.Writer) error { return p.draw(w, r) }))
}

func (p *pictureFlags) draw(w io.Writer, r *result.Result) error {
	d := page.Plot(r)
	if strings.EqualFold(filepath.Ext(p.plot), ".png") {
		return d.PNG(w)
	}
	_, err := io.WriteString(w, d.File())
	return err
}
