package kservehttp

import (
	"shoal/internal/infer"
	"shoal/internal/shm"
)

// regionFields are a tensor's position in shared memory.
type regionFields struct {
	name, offset, size presence

	nameText            string
	offsetBytes, length uint64
}

// regionParameter reads a parameter of an input or output about shared memory,
// and skips others.
func (d *decoder) regionParameter(name string, to *regionFields) bool {
	var is, ok bool
	switch {
	case name == "shared_memory_region" && to.name == absent:
		to.nameText, is, ok = d.text()
		to.name = present(is)
	case name == "shared_memory_offset" && to.offset == absent:
		to.offsetBytes, is, ok = d.uint()
		to.offset = present(is)
	case name == "shared_memory_byte_size" && to.size == absent:
		to.length, is, ok = d.uint()
		to.size = present(is)
	default:
		return d.skip()
	}
	return ok
}

// fault returns the error of a field that is wrong, with a region or without one.
func (g *regionFields) fault() error {
	switch {
	case g.name == wrong:
		return errType("shared_memory_region", kindString)
	case g.offset == wrong:
		return errType("shared_memory_offset", kindUint)
	case g.size == wrong:
		return errType("shared_memory_byte_size", kindUint)
	}
	return nil
}

// use finds the memory of an input.
func (d *decoder) use(g *regionFields) (infer.Source, error) {
	p, err := d.part(g)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// place finds the memory of an output.
func (d *decoder) place(g *regionFields) (infer.Sink, error) {
	p, err := d.part(g)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// part finds the memory that a tensor names; the request keeps it.
func (d *decoder) part(g *regionFields) (*shm.Part, error) {
	p, err := d.memory.Use(g.nameText, g.offsetBytes, g.length)
	if err != nil {
		return nil, err
	}
	d.r.Keep(p)
	return p, nil
}
