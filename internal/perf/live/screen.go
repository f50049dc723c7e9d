package live

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"shoal/internal/perf/result"
)

// A screen is a view that fills the terminal.
type screen struct {
	view    *View
	program *tea.Program
	once    sync.Once
	wg      sync.WaitGroup

	width, height int // only used by Bubble Tea's goroutine
}

func startScreen(ctx context.Context, v *View) *screen {
	s := &screen{view: v}
	s.program = tea.NewProgram(s, tea.WithContext(ctx), tea.WithInput(v.options.In), tea.WithOutput(v.options.Out),
		tea.WithoutSignalHandler(), tea.WithFPS(10))
	s.wg.Go(func() {
		_, _ = s.program.Run() // a terminal that cannot be drawn on must not end the run
		v.down()
	})
	return s
}

// close removes the screen and waits until the terminal is restored.
func (s *screen) close() {
	s.once.Do(s.program.Quit)
	s.wg.Wait()
}

type frameMsg struct{}

func next() tea.Cmd { return tea.Tick(screenFrame, func(time.Time) tea.Msg { return frameMsg{} }) }

// Init implements tea.Model.
func (s *screen) Init() tea.Cmd { return next() }

// Update implements tea.Model.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case frameMsg:
		return s, next()
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "ctrl+c", "esc":
			if s.view.options.Interrupt != nil {
				s.view.options.Interrupt()
			}
			// The terminal comes back at once: a second Ctrl-C is a signal.
			return s, tea.Quit
		}
	}
	return s, nil
}

// View implements tea.Model.
func (s *screen) View() tea.View {
	s.view.mu.Lock()
	text := s.view.state.screen(s.view.options.Title, s.width, s.height)
	s.view.mu.Unlock()
	out := tea.NewView(text)
	out.AltScreen = true
	out.WindowTitle = "shoal perf"
	return out
}

var (
	strong = lipgloss.NewStyle().Bold(true)
	faint  = lipgloss.NewStyle().Faint(true)
	blue   = lipgloss.NewStyle().Foreground(lipgloss.Color("4"))
	warm   = lipgloss.NewStyle().Foreground(lipgloss.Color("3"))
	bad    = lipgloss.NewStyle().Foreground(lipgloss.Color("1"))
	// The parts of the server's time, in their order.
	partStyles = []lipgloss.Style{
		lipgloss.NewStyle().Foreground(lipgloss.Color("3")),
		lipgloss.NewStyle().Foreground(lipgloss.Color("6")),
		lipgloss.NewStyle().Foreground(lipgloss.Color("4")),
		lipgloss.NewStyle().Foreground(lipgloss.Color("2")),
	}
)

const (
	// axisWidth is the room for the numbers at the left of a chart.
	axisWidth = 9
	// smallest is the height below which there is a line and no screen.
	smallest = 14
	keysText = "q or Ctrl-C  stop and report what was measured"
)

// screen returns the run as lines that fill a terminal.
func (s *state) screen(title string, width, height int) string {
	if width <= 0 {
		width, height = 80, 24
	}
	if s.level == 0 {
		return strong.Render("shoal perf") + "  " + title + "\nconnecting ..."
	}
	if height < smallest {
		return s.line(width)
	}
	columns := s.lastColumns(width - axisWidth)
	low, high := heatSpan(columns)
	heatHeight := high - low + 1
	// The chart and the levels share the space left by the fixed lines.
	free := height - heatHeight - 10
	doneHeight := min(len(s.done), max(0, free-5))
	chartHeight := min(max(3, free-doneHeight), 12)
	lines := []string{
		s.headline(title, width),
		s.status(width),
		"",
		strong.Render("throughput") + faint.Render("  requests/s, a column is a tenth of a second"),
	}
	lines = append(lines, throughputChart(columns, chartHeight)...)
	lines = append(lines, strong.Render("latency")+faint.Render("  share of the requests: · <1 %  ░ <10 %  ▒ <30 %  ▓ <60 %  █ more"))
	lines = append(lines, heatStrip(columns, low, high)...)
	lines = append(lines, "", s.serverBar(width))
	lines = append(lines, s.doneLines(min(doneHeight, max(0, height-len(lines)-2)))...)
	lines = append(lines, faint.Render(keysText))
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], width, "")
	}
	return strings.Join(lines[:min(len(lines), height)], "\n")
}

func (s *state) headline(title string, width int) string {
	_, run := s.left()
	left := strong.Render("shoal perf") + "  " + title
	right := strings.Trim(s.levelName(run), "()")
	if gap := width - ansi.StringWidth(left) - ansi.StringWidth(right); gap > 1 {
		return left + strings.Repeat(" ", gap) + right
	}
	return left
}

func (s *state) status(width int) string {
	level, _ := s.left()
	failed := s.failedName()
	if s.failed > 0 {
		failed = bad.Render(failed)
	}
	spread := s.spreadName()
	if v, ok := s.spread(); ok && v > s.plan.Stability {
		spread = warm.Render(spread)
	}
	return fit([]piece{
		{text: strong.Render(loadName(s.load))},
		{s.windowName(), 3},
		{text: strong.Render(count(s.rate) + "/s")},
		{text: fmt.Sprintf("p50 %s p99 %s", span(s.p50), span(s.p99))},
		{fmt.Sprintf("in-flight %d", s.inFlight), 4},
		{spread, 1},
		{text: failed},
		{leftName(level), 2},
	}, width)
}

func (s *state) lastColumns(n int) []column {
	return s.columns[max(0, len(s.columns)-max(n, 1)):]
}

// throughputChart draws the columns' rates as bars.
func throughputChart(columns []column, height int) []string {
	most := 1.0
	for _, c := range columns {
		most = max(most, c.rate)
	}
	lines := make([]string, height)
	for i := range lines {
		row := height - 1 - i
		label := ""
		switch row {
		case height - 1:
			label = count(most)
		case 0:
			label = "0"
		}
		var b strings.Builder
		for _, c := range columns {
			cell := barCell(c.rate/most*float64(height), row)
			if c.first && cell == ' ' {
				cell = '┊' // here a level begins
			}
			b.WriteRune(cell)
		}
		lines[i] = axis(label) + blue.Render(b.String())
	}
	return lines
}

func axis(label string) string { return faint.Render(fmt.Sprintf("%*s ", axisWidth-1, label)) }

// heatSpan returns the rows of latency that are in use.
func heatSpan(columns []column) (low, high int) {
	low, high = heatRows, 0
	for _, c := range columns {
		for row, share := range c.heat {
			if share > 0 {
				low, high = min(low, row), max(high, row)
			}
		}
	}
	if low > high {
		return 4, 6 // nothing yet
	}
	return low, high
}

// heatStrip draws how the requests of each column are spread over latency.
func heatStrip(columns []column, low, high int) []string {
	var lines []string
	for row := high; row >= low; row-- {
		var b strings.Builder
		for _, c := range columns {
			b.WriteRune(heatCell(c.heat[row]))
		}
		lines = append(lines, axis(span(heatFrom(row)))+warm.Render(b.String()))
	}
	return lines
}

// serverBar draws where the server's time went in the last window.
func (s *state) serverBar(width int) string {
	if s.server == nil {
		return faint.Render("server    its account comes with the end of the first window")
	}
	names := []string{"queue", "input", "infer", "output"}
	times := []time.Duration{s.server.Queue.Mean(), s.server.Input.Mean(), s.server.Infer.Mean(), s.server.Output.Mean()}
	total := time.Duration(0)
	legend := ""
	for i, d := range times {
		total += d
		legend += "  " + partStyles[i].Render(names[i]) + " " + span(d)
	}
	text := strong.Render("server") + "   "
	room := max(8, width-ansi.StringWidth(text)-ansi.StringWidth(legend)-14)
	for i, d := range times {
		if total > 0 {
			text += partStyles[i].Render(strings.Repeat("█", int(0.5+float64(room)*float64(d)/float64(total))))
		}
	}
	return text + legend + "  " + s.batchName()
}

// doneLines shows the last n levels that have ended.
func (s *state) doneLines(n int) []string {
	var lines []string
	for i := max(0, len(s.done)-n); i < len(s.done); i++ {
		lines = append(lines, doneLine(&s.done[i]))
	}
	return lines
}

func doneLine(l *result.Level) string {
	w := l.Merged
	if w == nil || w.Requests == 0 {
		return fmt.Sprintf("%-10s no answers", loadName(l.Load))
	}
	text := fmt.Sprintf("%-10s %8s/s  p50 %-8s p99 %-8s", loadName(l.Load), count(w.RequestRate()), span(w.Latency.Quantile(0.5)), span(w.Latency.Quantile(0.99)))
	switch {
	case l.OverLimit:
		text += "  over the latency limit"
	case !l.Stable && l.Reason != "":
		text += "  unstable: " + l.Reason
	}
	return text
}
