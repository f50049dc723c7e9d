package model

import "google.golang.org/protobuf/reflect/protoreflect"

// A mapEntry is a record whose fields are the key and the value of an entry.
type mapEntry struct {
	field protoreflect.FieldDescriptor
	into  protoreflect.Map
	key   protoreflect.Value
	value protoreflect.Value
}

// Descriptor returns the type of the entry.
func (e *mapEntry) Descriptor() protoreflect.MessageDescriptor { return e.field.Message() }

// NewField returns an empty message for the value.
func (e *mapEntry) NewField(protoreflect.FieldDescriptor) protoreflect.Value {
	return e.into.NewValue()
}

// Mutable is not called: neither keys nor values are lists or maps.
func (e *mapEntry) Mutable(fd protoreflect.FieldDescriptor) protoreflect.Value {
	panic("BUG: " + fd.FullName() + " of a map's entry is a list or a map")
}

// Set keeps the key or the value.
func (e *mapEntry) Set(fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	if fd == e.field.MapKey() {
		e.key = v
	} else {
		e.value = v
	}
}

// store puts the entry into the map. Missing parts have their default; of
// entries with the same key the last one stays.
func (e *mapEntry) store() {
	if !e.key.IsValid() {
		e.key = e.field.MapKey().Default()
	}
	if !e.value.IsValid() {
		if e.field.MapValue().Message() != nil {
			e.value = e.into.NewValue()
		} else {
			e.value = e.field.MapValue().Default()
		}
	}
	e.into.Set(e.key.MapKey(), e.value)
}
