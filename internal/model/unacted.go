package model

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"shoal/internal/model/modelpb"
)

// unacted are the fields that are accepted and shown but change nothing yet.
// Whoever makes one work strikes it out.
var unacted = []string{
	"runtime",

	"optimization.priority",
	"optimization.cuda",
	"optimization.gather_kernel_buffer_threshold",
	"optimization.eager_batching",

	"sequence_batching",
	"ensemble_scheduling",

	"instance_group.secondary_devices",
	"instance_group.profile",
	"instance_group.host_policy",

	"cc_model_filenames",
	"model_warmup",
	"model_operations",
	"model_repository_agents",
	"response_cache.enable",
}

// Unacted returns the paths of the fields that cfg sets and that Shoal does
// not act on. It is meant for the configuration as its author wrote it: later
// steps fill in fields that nobody asked for.
func Unacted(cfg *modelpb.ModelConfig) []string {
	var set []string
	for _, path := range unacted {
		set = appendSet(set, cfg.ProtoReflect(), "", strings.Split(path, "."))
	}
	return set
}

// appendSet appends the places in m where the field at path is set.
func appendSet(set []string, m protoreflect.Message, prefix string, path []string) []string {
	fd := m.Descriptor().Fields().ByTextName(path[0])
	if fd == nil {
		panic("BUG: " + string(m.Descriptor().Name()) + " has no field " + path[0])
	}
	here := prefix + path[0]
	switch {
	case !m.Has(fd):
	case len(path) == 1:
		set = append(set, here)
	case fd.IsList():
		list := m.Get(fd).List()
		for i := range list.Len() {
			set = appendSet(set, list.Get(i).Message(), fmt.Sprintf("%s[%d].", here, i), path[1:])
		}
	default:
		set = appendSet(set, m.Get(fd).Message(), here+".", path[1:])
	}
	return set
}
