package engine

import (
	"slices"
	"strings"

	"shoal/internal/infer"
	"shoal/internal/model/modelpb"
	"shoal/internal/respcache"
	"shoal/internal/status"
)

// Metadata describes a model. With infer.LatestVersion it lists all versions
// that are ready.
func (e *Engine) Metadata(name string, version int64) (Metadata, error) {
	v, err := e.find(name, version)
	if err != nil {
		return Metadata{}, err
	}
	md := Metadata{
		Name: v.sig.Name, Platform: v.config.GetPlatform(),
		Inputs: v.sig.Inputs, Outputs: v.sig.Outputs,
		Versions: []int64{v.number},
	}
	if md.Platform == "" {
		md.Platform = v.config.GetBackend()
	}
	if version == infer.LatestVersion {
		md.Versions = nil
		if m := (*e.models.Load())[v.id]; m != nil {
			for _, v := range m.entry.Load().ready() {
				md.Versions = append(md.Versions, v.number)
			}
		}
	}
	return md, nil
}

// Config returns the complete configuration of a version that is ready. It must
// not be changed.
func (e *Engine) Config(name string, version int64) (*modelpb.ModelConfig, error) {
	v, err := e.find(name, version)
	if err != nil {
		return nil, err
	}
	return v.config, nil
}

// Index lists the models and versions that are known or in the repositories
// now, by name and version. A model that was never loaded has only a name.
func (e *Engine) Index(readyOnly bool) []IndexEntry {
	known := *e.models.Load()
	models := e.sorted()
	found, ambiguous, err := e.repos.Scan()
	if err != nil { // what is loaded is listed anyway
		found, ambiguous = nil, nil
	}
	for _, src := range found {
		if known[src.ID()] == nil {
			models = append(models, &entry{name: src.ID()})
		}
	}
	models = slices.DeleteFunc(models, func(m *entry) bool { return slices.Contains(ambiguous, m.name) && m.latest == nil })
	for _, name := range ambiguous {
		if m := known[name]; m == nil || m.entry.Load().latest == nil {
			models = append(models, &entry{name: name, ambiguous: true, err: errAmbiguous})
		}
	}
	slices.SortFunc(models, func(a, b *entry) int { return strings.Compare(a.name, b.name) })
	var list []IndexEntry
	for _, m := range models {
		lines := m.index()
		if len(lines) == 0 {
			lines = []IndexEntry{{Name: m.name, Version: NoVersion}}
		}
		for _, line := range lines {
			line.Name = e.repos.Name(line.Name)
			if !readyOnly || line.State == StateReady || m.ambiguous {
				list = append(list, line)
			}
		}
	}
	return list
}

// Statistics returns the counters of the versions that are ready: those of one
// model, of one version, or of all when name is empty.
func (e *Engine) Statistics(name string, version int64) ([]Statistics, error) {
	var list []Statistics
	if name == "" {
		models := e.sorted()
		list = make([]Statistics, 0, len(models))
		for _, m := range models {
			for _, v := range m.ready() {
				list = append(list, v.snapshot())
			}
		}
		return list, nil
	}
	var ready []*Version
	if m, err := e.model(name); err == nil {
		ready = m.entry.Load().ready()
	}
	if len(ready) == 0 {
		return nil, status.Errorf(status.InvalidArgument, "requested model '%s' is not available", name)
	}
	for _, v := range ready {
		if version == infer.LatestVersion || version == v.number {
			list = append(list, v.snapshot())
		}
	}
	if len(list) == 0 {
		return nil, status.Errorf(status.InvalidArgument, "requested model version is not available for model '%s'", name)
	}
	return list, nil
}

// Cache returns the cache of responses; nil when there is none.
func (e *Engine) Cache() *respcache.Cache { return e.opt.Cache }

// ServerName returns the server's name in its metadata.
func (e *Engine) ServerName() string { return e.opt.Name }

// ServerVersion returns the server's version.
func (e *Engine) ServerVersion() string { return e.opt.Version }

// Extensions returns the supported extensions of the protocol.
func (e *Engine) Extensions() []string {
	list := []string{"classification", "model_repository", "model_repository(unload_dependents)", "schedule_policy", "model_configuration"}
	if e.opt.SharedMemory != nil {
		list = append(list, "system_shared_memory")
	}
	list = append(list, "binary_tensor_data", "parameters", "statistics", "trace")
	if e.opt.LogSettings != nil {
		list = append(list, "logging")
	}
	return list
}
