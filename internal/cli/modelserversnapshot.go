package cli

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// TorchServe writes what is registered into a file after each change, and reads the
// newest such file when it is started without a configuration.

// snapshotFolder is where snapshots are.
func snapshotFolder(getenv func(string) string) string {
	return filepath.Join(cmp.Or(getenv("LOG_LOCATION"), "logs"), "config")
}

// newestSnapshot returns the newest snapshot; empty when there is none.
func newestSnapshot(folder string) string {
	files, err := filepath.Glob(filepath.Join(folder, "[0-9]*-*.cfg"))
	if err != nil || len(files) == 0 {
		return ""
	}
	return slices.Max(files) // names begin with the time
}

// keptSnapshots is how many snapshots stay.
const keptSnapshots = 20

// snapshots returns a function that writes a snapshot of that kind.
func (m *modelServer) snapshots(folder string, log *slog.Logger) func(kind string) {
	var mu sync.Mutex // one at a time
	return func(kind string) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		name := strings.Replace(now.Format("20060102150405.000"), ".", "", 1) + "-" + kind + ".cfg"
		values := maps.Clone(m.config.values)
		delete(values, "load_models")
		values["model_snapshot"] = m.store.Snapshot(name, now)
		var b strings.Builder
		fmt.Fprintf(&b, "#Saving snapshot\n")
		for _, key := range slices.Sorted(maps.Keys(values)) {
			fmt.Fprintf(&b, "%s=%s\n", key, escapeProperty(values[key]))
		}
		err := os.MkdirAll(folder, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), []byte(b.String()), 0o600)
		}
		if err != nil {
			log.Warn("the snapshot is not written", "err", err)
			return
		}
		if files, err := filepath.Glob(filepath.Join(folder, "[0-9]*-*.cfg")); err == nil && len(files) > keptSnapshots {
			slices.Sort(files)
			for _, old := range files[:len(files)-keptSnapshots] {
				_ = os.Remove(old)
			}
		}
	}
}

// escapeProperty writes a value so that it is read back as it is.
func escapeProperty(value string) string {
	value = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "\f", `\f`).Replace(value)
	if strings.HasPrefix(value, " ") {
		value = `\` + value
	}
	return value
}
