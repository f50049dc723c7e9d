package page

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// markup is text that goes into the page as it is; everything else is escaped.
//
// The page is not written by html/template: with a template in the program the
// linker keeps every exported method of every type, since a template could call
// them by name. The binary would be a sixth larger (internal/arch has the test).
type markup string

// write writes the page.
func (c *content) write(w io.Writer) error {
	var b strings.Builder
	c.body(&b)
	_, err := strings.NewReplacer("{{title}}", html.EscapeString(c.Title), "{{style}}", string(c.Style), "{{body}}", b.String()).WriteString(w, layout)
	return err
}

// put writes format with its arguments, escaped unless they are markup.
func put(b *strings.Builder, format string, args ...any) {
	for i, a := range args {
		if _, ok := a.(markup); !ok {
			args[i] = html.EscapeString(fmt.Sprint(a))
		}
	}
	fmt.Fprintf(b, format, args...)
}

func (c *content) body(b *strings.Builder) {
	put(b, "<header>\n<h1>%s</h1>\n<p class=\"lead\">%s</p>\n</header>\n", c.Title, c.Lead)
	if c.Cut != "" {
		put(b, "<div class=\"card warn bad\" role=\"note\"><p><strong>The run ended before its plan did:</strong> %s. What follows was measured until then.</p></div>\n", c.Cut)
	}
	if len(c.Warnings) > 0 {
		put(b, "<div class=\"card warn\" role=\"note\"><ul>")
		for _, text := range c.Warnings {
			put(b, "<li>%s</li>", text)
		}
		put(b, "</ul></div>\n")
	}
	if len(c.Facts) > 0 {
		put(b, "<dl class=\"facts\">")
		for _, f := range c.Facts {
			put(b, "<div><dt>%s</dt><dd>%s</dd></div>", f.Name, f.Value)
		}
		put(b, "</dl>\n")
	}
	put(b, "<section class=\"card about\" aria-label=\"The run\">\n<dl>")
	for _, f := range c.Header {
		put(b, "<dt>%s</dt><dd>%s</dd>", f.Name, f.Value)
	}
	if c.Command != "" {
		put(b, "<dt>Command</dt><dd><code>%s</code></dd>", c.Command)
	}
	put(b, "</dl>\n</section>\n")
	for _, s := range c.Sections {
		s.body(b)
	}
	if c.Goals != nil {
		put(b, "<section id=\"goals\">\n<h2>Goals</h2>\n")
		c.Goals.body(b, "Goals", "")
		put(b, "</section>\n")
	}
	if c.Errors != nil {
		put(b, "<section id=\"errors\">\n<h2>Failed requests</h2>\n")
		c.Errors.body(b, "Failed requests", "errors")
		put(b, "</section>\n")
	}
	put(b, "<section id=\"levels\">\n<h2>Figures</h2>\n<p>Times are of one request. CPU is the time that a request takes on a core, at each end. "+
		"Spread is how far the windows that count differ; ± is the 95 %% interval.</p>\n")
	c.Table.body(b, "Figures of every level", "")
	put(b, "</section>\n<section class=\"get\">\n<h2>Data</h2>\n<p><a id=\"csv\" download=\"%s.csv\" href=\"%s\">CSV</a>", c.File, c.CSV)
	if c.JSON != "" {
		put(b, "<a id=\"json\" download=\"%s.json.gz\" href=\"%s\">JSON</a>", c.File, c.JSON)
	}
	put(b, "</p>\n")
	if c.JSONNote != "" {
		put(b, "<p>%s</p>\n", c.JSONNote)
	}
	put(b, "</section>\n")
}

func (s *section) body(b *strings.Builder) {
	put(b, "<section>\n<h2>%s</h2>\n", s.Heading)
	if s.Text != "" {
		put(b, "<p>%s</p>\n", s.Text)
	}
	class := "grid"
	switch {
	case s.Small:
		class += " small"
	case len(s.Figures) == 1:
		class += " alone"
	}
	put(b, "<div class=\"%s\">\n", class)
	for _, f := range s.Figures {
		f.body(b)
	}
	put(b, "</div>\n</section>\n")
}

func (f *figure) body(b *strings.Builder) {
	put(b, "<figure id=\"%s-figure\">\n<figcaption><h3>%s</h3>", f.ID, f.Title)
	if f.Hint != "" {
		put(b, "<p>%s</p>", f.Hint)
	}
	put(b, "</figcaption>\n")
	if len(f.Keys) > 0 {
		put(b, "<ul class=\"keys\">")
		for _, k := range f.Keys {
			put(b, "<li><svg viewBox=\"0 0 20 10\" aria-hidden=\"true\">")
			switch {
			case k.Line && k.Dashed:
				put(b, "<path d=\"M0 5h20\" class=\"s-%s\" stroke-width=\"3\" stroke-dasharray=\"5 4\"/>", k.Colour)
			case k.Line:
				put(b, "<path d=\"M0 5h20\" class=\"s-%s\" stroke-width=\"3\"/>", k.Colour)
			default:
				put(b, "<path d=\"M5 0h10v10h-10z\" class=\"f-%s\"/>", k.Colour)
			}
			put(b, "</svg>%s</li>", k.Name)
		}
		put(b, "</ul>\n")
	}
	put(b, "<div class=\"pic\">%s</div>\n</figure>\n", f.SVG)
}

// body writes the table in a region that scrolls where it is too wide.
func (t *table) body(b *strings.Builder, label, class string) {
	put(b, "<div class=\"card scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\"><table", label)
	if class != "" {
		put(b, " class=\"%s\"", class)
	}
	put(b, "><thead><tr>")
	for _, name := range t.Head {
		put(b, "<th scope=\"col\">%s</th>", name)
	}
	put(b, "</tr></thead>\n<tbody>")
	for _, row := range t.Rows {
		put(b, "<tr>")
		for i, cell := range row {
			switch {
			case i == 0:
				put(b, "<th scope=\"row\">%s</th>", cell)
			case cell == missed:
				put(b, "<td class=\"missed\">%s</td>", cell)
			default:
				put(b, "<td>%s</td>", cell)
			}
		}
		put(b, "</tr>\n")
	}
	put(b, "</tbody></table></div>\n")
}
