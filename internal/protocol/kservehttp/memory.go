package kservehttp

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"

	"shoal/internal/protocol/httpserver"
	"shoal/internal/reject"
	"shoal/internal/shm"
	"shoal/internal/status"
)

// sharedMemory answers the calls about memory that clients lend.
func (h *handler) sharedMemory(x *httpserver.Exchange, rt route) error {
	memory := h.engine.SharedMemory()
	if memory == nil {
		return shm.ErrDisabled
	}
	kind := shm.System
	if rt.cuda {
		kind = shm.CUDA
	}
	switch {
	case rt.action == actShmStatus:
		return regionStatus(x, memory, kind, rt.region)
	case rt.action == actShmRegister && rt.cuda:
		return h.registerCUDA(x, memory, rt.region)
	case rt.action == actShmRegister:
		return h.registerSystem(x, memory, rt.region)
	}
	x.SetType(jsonType)
	return memory.Unregister(kind, rt.region)
}

func regionStatus(x *httpserver.Exchange, memory *shm.Registry, kind shm.Kind, region string) error {
	list, err := memory.Status(kind, region)
	if err != nil {
		return err
	}
	b := []byte{'['}
	for i, g := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"name":`...)
		b = appendQuoted(b, g.Name)
		if kind == shm.CUDA {
			b = appendMember(b, "device_id")
			b = strconv.AppendInt(b, int64(g.Device), 10)
		} else {
			b = appendMember(b, "key")
			b = appendQuoted(b, g.Key)
			b = appendMember(b, "offset")
			b = strconv.AppendUint(b, g.Offset, 10)
		}
		b = appendMember(b, "byte_size")
		b = strconv.AppendUint(b, g.Size, 10)
		b = append(b, '}')
	}
	reply(x, append(b, ']'))
	return nil
}

// A registration is what the body of a register request says.
type registration struct {
	key, offset, size   presence
	keyText             string
	offsetBytes, length uint64

	// of a GPU's memory
	hasHandle, hasB64 bool
	handle            string
	device            presence
	number            uint64
}

// registerSystem makes a client's memory known.
func (h *handler) registerSystem(x *httpserver.Exchange, memory *shm.Registry, region string) error {
	if region == "" {
		return shm.ErrNoName(shm.System)
	}
	g, err := h.readRegistration(x)
	if err != nil {
		return err
	}
	switch {
	case g.key == absent:
		return errNoField("key")
	case g.key == wrong:
		return status.Rejectf(reject.BadInput, status.Internal, "%s", kindString)
	case g.offset == wrong:
		return status.Rejectf(reject.BadInput, status.Internal, "%s", kindUint)
	case g.size == absent:
		return errNoField("byte_size")
	case g.size == wrong:
		return status.Rejectf(reject.BadInput, status.Internal, "%s", kindUint)
	}
	// The name is part of the request's memory; the registry keeps it.
	if err := memory.Register(strings.Clone(region), g.keyText, g.offsetBytes, g.length); err != nil {
		return err
	}
	x.SetType(jsonType)
	return nil
}

func errNoField(name string) error {
	return status.Rejectf(reject.BadInput, status.InvalidArgument, "Shared memory register request has no '%s' field", name)
}

// cudaHandleSize is the size of a handle to a GPU's memory.
const cudaHandleSize = 64

// registerCUDA makes a client's memory on a GPU known.
func (h *handler) registerCUDA(x *httpserver.Exchange, memory *shm.Registry, region string) error {
	if region == "" {
		return shm.ErrNoName(shm.CUDA)
	}
	g, err := h.readRegistration(x)
	if err != nil {
		return err
	}
	missing := func(name string) error {
		return status.Rejectf(reject.BadInput, status.Internal, "attempt to access non-existing object member '%s'", name)
	}
	switch {
	case !g.hasHandle:
		return errNoField("raw_handle")
	case !g.hasB64:
		return missing("b64")
	case g.size == absent:
		return missing("byte_size")
	case g.device == absent:
		return missing("device_id")
	case g.size == wrong || g.device == wrong:
		return status.Rejectf(reject.BadInput, status.Internal, "%s", kindUint)
	}
	raw, err := base64.StdEncoding.DecodeString(g.handle)
	if err != nil || len(raw) != cudaHandleSize {
		return status.Rejectf(reject.BadInput, status.InvalidArgument, "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")
	}
	if err := memory.RegisterCUDA(strings.Clone(region), raw, int64(min(g.number, math.MaxInt64)), g.length); err != nil {
		return err
	}
	x.SetType(jsonType)
	return nil
}

// readRegistration reads the body of a register request.
func (h *handler) readRegistration(x *httpserver.Exchange) (*registration, error) {
	g := &registration{}
	empty := true
	err := h.jsonBody(x, func(s *scanner, name string) bool {
		empty = false
		return g.member(s, name)
	})
	if err != nil {
		return nil, err
	}
	if empty && x.Header.ContentLength() == 0 {
		return nil, errSyntax(faultEmpty, 0)
	}
	return g, nil
}

func (g *registration) member(s *scanner, name string) bool {
	switch name {
	case "key":
		var ok bool
		if g.key = present(s.peek() == '"'); g.key == good {
			g.keyText, ok = s.ownText()
			return ok
		}
	case "offset":
		return s.size(&g.offset, &g.offsetBytes)
	case "byte_size":
		return s.size(&g.size, &g.length)
	case "device_id":
		return s.size(&g.device, &g.number)
	case "raw_handle":
		g.hasHandle = true
		return s.members(func(s *scanner, name string) bool {
			if name != "b64" || s.peek() != '"' {
				return s.skip()
			}
			var ok bool
			g.hasB64 = true
			g.handle, ok = s.ownText()
			return ok
		})
	}
	return s.skip()
}

// ownText reads a string into memory of its own.
func (s *scanner) ownText() (string, bool) {
	raw, escaped, ok := s.str()
	if escaped {
		return string(appendUnescaped(nil, raw)), ok
	}
	return string(raw), ok
}

// size reads an integer from zero up, or passes over another value.
func (s *scanner) size(is *presence, to *uint64) bool {
	*is = wrong
	switch s.peek() {
	case '"', '{', '[', 't', 'f', 'n':
		return s.skip()
	}
	n, ok := s.number()
	if u, fits := n.unsigned(); ok && fits {
		*is, *to = good, u
	}
	return ok
}
