package chart

// The places on a sheet.
const (
	sheetMargin = 16
	sheetHead   = 58
	titleRoom   = 28 // of a chart
	keyRoom     = 18 // of a row of keys
)

// Sheet arranges charts below a title in one drawing, with the given number of
// columns, their titles and keys.
func Sheet(title, subtitle string, columns int, charts ...*Chart) *Drawing {
	d := &Drawing{Title: title, Desc: subtitle}
	d.text(Point{sheetMargin + 4, 28}, Start, "title", Ink, title)
	d.text(Point{sheetMargin + 4, 47}, Start, "label", Muted, subtitle)
	d.Width, d.Height = 2*sheetMargin+letterWidth*float64(len(subtitle)), sheetHead
	for begin := 0; begin < len(charts); begin += columns {
		d.row(charts[begin:min(begin+columns, len(charts))])
	}
	return d
}

// row adds charts side by side, their fields at the same height.
func (d *Drawing) row(charts []*Chart) {
	rows, tallest := 0, 0.0
	for _, c := range charts {
		rows = max(rows, layKeys(c, func(Key, float64, float64) {}))
		tallest = max(tallest, c.Height)
	}
	above := titleRoom + keyRoom*float64(rows)
	x := float64(sheetMargin)
	for _, c := range charts {
		d.text(Point{x + 4, d.Height + 14}, Start, "head", Ink, c.Title)
		layKeys(c, func(k Key, dx, dy float64) { d.key(k, x+4+dx, d.Height+34+dy) })
		d.place(c.Draw(), x, d.Height+above)
		d.Desc += " " + c.Title + ": " + c.Desc
		x += c.Width + sheetMargin
	}
	d.Width = max(d.Width, x)
	d.Height += above + tallest + sheetMargin
}

// layKeys calls put with the place of each key, in rows as wide as the chart. It
// returns how many rows there are.
func layKeys(c *Chart, put func(k Key, dx, dy float64)) int {
	x, row := 0.0, 0
	for i, k := range c.Keys {
		width := 23 + letterWidth*float64(len([]rune(k.Name))) + 14
		if i > 0 && x+width > c.Width {
			x = 0
			row++
		}
		put(k, x, keyRoom*float64(row))
		x += width
	}
	return row + 1
}

func (d *Drawing) key(k Key, x, y float64) {
	if k.Line {
		d.add(Shape{Points: []Point{{x, y - 4}, {x + 18, y - 4}}, Stroke: k.Colour, Width: 2.5, Dashed: k.Dashed})
	} else {
		d.add(Shape{Points: box(x+4, y-9, 10, 10), Closed: true, Fill: k.Colour})
	}
	d.text(Point{x + 23, y}, Start, "note", Muted, k.Name)
}
