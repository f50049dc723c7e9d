package modelserver

// metrics answers with the meter's values, which are there with
// metrics_mode=prometheus or legacy. As in the original, the method does not count.
func (c *call) metrics() error {
	var names []string
	for _, p := range c.query {
		if p.name == "name[]" {
			names = append(names, p.value)
		}
	}
	var b []byte
	if c.h.opt.Meter != nil && c.h.opt.ShowMetrics {
		b = c.h.opt.Meter.appendText(nil, names)
	}
	c.x.SetType("text/plain; version=0.0.4; charset=utf-8")
	c.x.SetHeaders(c.h.appendHeaders(nil, c.id))
	c.x.SetBody(b)
	return nil
}
