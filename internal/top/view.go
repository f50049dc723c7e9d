package top

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
)

// Run shows the servers on a terminal, updated at each interval, until the user
// quits or ctx ends.
func Run(ctx context.Context, p *Poller, interval time.Duration, in io.Reader, out io.Writer) error {
	v := &view{
		poll:    func() tea.Msg { return reportMsg(p.Poll(ctx)) },
		servers: len(p.targets), interval: interval,
	}
	_, err := tea.NewProgram(v, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out)).Run()
	if ctx.Err() != nil {
		return nil // asked to leave
	}
	return err
}

// A view is the state of the display. Bubble Tea calls it from one goroutine.
type view struct {
	poll     tea.Cmd
	servers  int
	interval time.Duration

	report        Report
	read          bool // there is a report
	paused        bool
	help          bool
	sorted        int // the column
	reverse       bool
	top           int // rows scrolled off
	width, height int
	trends        map[trendKey][]float64
}

type trendKey struct{ server, model, version string }

type (
	reportMsg Report
	tickMsg   struct{}
)

// Init implements tea.Model.
func (v *view) Init() tea.Cmd { return v.poll }

// Update implements tea.Model.
func (v *view) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		v.width, v.height = msg.Width, msg.Height
	case reportMsg:
		if !v.paused {
			v.report, v.read = Report(msg), true
			v.follow()
			v.sort()
		}
		return v, tea.Tick(v.interval, func(time.Time) tea.Msg { return tickMsg{} })
	case tickMsg:
		return v, v.poll
	case tea.KeyPressMsg:
		return v, v.key(msg.String())
	}
	return v, nil
}

// follow adds the report to the trends. Models that are gone lose theirs.
func (v *view) follow() {
	next := make(map[trendKey][]float64)
	note := func(r *Row) {
		key := trendKey{r.Server, r.Model, r.Version}
		trend := v.trends[key]
		if r.Requests != nil {
			trend = append(trend, *r.Requests)
		}
		trend = trend[max(0, len(trend)-trendLength):]
		next[key], r.trend = trend, trend
	}
	for i := range v.report.Models {
		note(&v.report.Models[i])
	}
	note(&v.report.Total)
	v.trends = next
}

func (v *view) key(name string) tea.Cmd {
	n := len(v.columns())
	switch name {
	case "q", "ctrl+c", "esc":
		return tea.Quit
	case "left", "<", "shift+tab":
		v.sorted = (v.sorted + n - 1) % n
	case "right", ">", "tab":
		v.sorted = (v.sorted + 1) % n
	case "r":
		v.reverse = !v.reverse
	case "space", "p":
		v.paused = !v.paused
	case "up", "k":
		v.top--
	case "down", "j":
		v.top++
	case "pgup":
		v.top -= v.room()
	case "pgdown":
		v.top += v.room()
	case "home":
		v.top = 0
	case "?", "h":
		v.help = !v.help
	}
	v.sort()
	return nil
}

// columns returns the columns of the table, with the trend behind the rate.
func (v *view) columns() []column {
	cols := slices.Clone(columns(v.servers))
	at := slices.IndexFunc(cols, func(c column) bool { return c.title == "REQ/S" })
	return slices.Insert(cols, at+1, trendColumn)
}

// sort sorts the rows and keeps the scroll position within them.
func (v *view) sort() {
	cols := v.columns()
	order(v.report.Models, &cols[v.sorted], v.reverse)
	v.top = max(0, min(v.top, len(v.report.Models)-v.room()))
}

// The lines around the rows: title, titles, total, keys and two empty.
const framing = 6

// room is how many rows fit.
func (v *view) room() int {
	return max(1, v.height-framing-len(v.faults())-len(v.report.extraLines()))
}

// faults lists what could not be read, in lines that fit.
func (v *view) faults() []string {
	var lines []string
	for _, f := range v.report.Faults() {
		if v.width > 0 {
			f = lipgloss.Wrap(f, v.width, "")
		}
		lines = append(lines, strings.Split(f, "\n")...)
	}
	return lines
}

var (
	strong   = lipgloss.NewStyle().Bold(true)
	titles   = lipgloss.NewStyle().Reverse(true)
	chosen   = titles.Bold(true).Underline(true)
	bad      = lipgloss.NewStyle().Foreground(lipgloss.Color("1"))
	poor     = lipgloss.NewStyle().Foreground(lipgloss.Color("3"))
	faint    = lipgloss.NewStyle().Faint(true)
	keysText = "q quit  \u2190 \u2192 sort by  r reverse  \u2191 \u2193 scroll  space pause  ? what the columns mean"
)

// View implements tea.Model.
func (v *view) View() tea.View {
	out := tea.NewView(v.content())
	out.AltScreen = true
	out.WindowTitle = "shoal top"
	return out
}

func (v *view) content() string {
	lines := []string{v.title()}
	for _, f := range v.faults() {
		lines = append(lines, bad.Render(f))
	}
	lines = append(lines, "")
	switch {
	case v.help:
		lines = append(lines, helpText...)
	case !v.read:
		lines = append(lines, "reading ...")
	case v.report.Failed():
		lines = append(lines, fmt.Sprintf("trying again every %v", v.interval))
	default:
		lines = append(lines, v.rows()...)
	}
	lines = append(lines, "", faint.Render(keysText))
	if v.width > 0 {
		cut := lipgloss.NewStyle().MaxWidth(v.width)
		for i := range lines {
			lines[i] = cut.Render(lines[i])
		}
	}
	return strings.Join(lines, "\n")
}

func (v *view) title() string {
	parts := []string{strong.Render("shoal top")}
	for _, s := range v.report.Servers {
		text := s.URL
		if s.CPU != nil {
			text += fmt.Sprintf(" (machine %.0f%% busy)", 100**s.CPU)
		}
		parts = append(parts, text)
	}
	if v.read && !v.report.Failed() {
		parts = append(parts, fmt.Sprintf("%d model versions", len(v.report.Models)), v.report.Time.Format(time.TimeOnly))
	}
	if v.paused {
		parts = append(parts, poor.Render("paused"))
	}
	return strings.Join(parts, "  ")
}

// rows returns the part of the table that fits.
func (v *view) rows() []string {
	cols, sorted := v.fitting()
	all := table(cols, v.report.Models, &v.report.Total)
	head, body, sum := all[0], all[1:len(all)-1], all[len(all)-1]
	out := []string{v.head(head, sorted)}
	if v.height > 0 {
		body = body[min(v.top, len(body)):]
		body = body[:min(v.room(), len(body))]
	}
	for _, l := range body {
		out = append(out, v.line(l))
	}
	out = append(out, strong.Render(strings.Join(sum.cells, gap)))
	out = append(out, v.report.gpuLines()...)
	for _, l := range v.report.rejectLines() {
		out = append(out, poor.Render(l))
	}
	return out
}

// spare are the columns that a narrow terminal leaves out, in this order.
var spare = []string{"ROWS/S", "P50", "VER", "MEAN", "STATE", "TREND", "BATCH"}

// fitting returns the columns that fit the terminal, and which of them sorts.
func (v *view) fitting() (cols []column, sorted int) {
	cols, sorted = v.columns(), v.sorted
	for _, title := range spare {
		width := lipgloss.Width(strings.Join(table(cols, v.report.Models, &v.report.Total)[0].cells, gap))
		if v.width == 0 || width <= v.width {
			break
		}
		i := slices.IndexFunc(cols, func(c column) bool { return c.title == title })
		if i == sorted {
			continue
		}
		cols = slices.Delete(cols, i, i+1)
		if i < sorted {
			sorted--
		}
	}
	return cols, sorted
}

func (v *view) head(l tableLine, sorted int) string {
	var b strings.Builder
	for i, cell := range l.cells {
		if i > 0 {
			b.WriteString(titles.Render(gap))
		}
		if i == sorted { // lipgloss renders the spaces of underlined text without the rest of the style
			before, after, _ := strings.Cut(cell, strings.TrimSpace(cell))
			b.WriteString(titles.Render(before) + chosen.Render(strings.TrimSpace(cell)) + titles.Render(after))
			continue
		}
		b.WriteString(titles.Render(cell))
	}
	return b.String()
}

// line colours a row: red when it fails requests, yellow when it rejects some,
// is not ready, or every instance is busy and requests wait.
func (v *view) line(l tableLine) string {
	text := strings.Join(l.cells, gap)
	r := l.row
	if r.Reason != "" {
		text += gap + printable(r.Reason)
	}
	switch f := r.failures(); {
	case f != nil && *f > 0:
		return bad.Render(text)
	case r.State != "" && r.State != "READY", r.saturated(), r.Rejected != nil && *r.Rejected > 0:
		return poor.Render(text)
	}
	return text
}

func (r *Row) saturated() bool {
	return r.Queue != nil && *r.Queue > 0 && (r.BusyShare != nil && *r.BusyShare > 0.95 ||
		r.BusyShare == nil && r.Busy != nil && r.Instances != nil && *r.Busy >= *r.Instances)
}

// helpText explains the columns.
var helpText = []string{
	"REQ/S   requests answered well, a second   ROWS/S  rows in them",
	"TREND   REQ/S of the last 12 intervals",
	"MEAN    from acceptance to answer; P50 and P99: half and 99 % took less",
	"BATCH   rows to an execution               QUEUE   requests that wait now",
	"BUSY    share of the time instances ran    FAIL/S  requests failed or refused",
	"REJ/S   requests rejected before the queue: no such model, bad input, malformed",
	"",
	"REJECTED/S lists those by reason, with those for no model that exists.",
	"CLOSED/S lists connections that the server closed, by the limit.",
	"Rates, times and BATCH are of the last interval; - is what is not known.",
	"A row is red while requests fail; yellow while some are rejected, the model is",
	"not ready or requests wait for busy instances. A narrow terminal shows fewer",
	"columns.",
}
