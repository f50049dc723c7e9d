package cli

import (
	"fmt"
	"strconv"
	"strings"

	"shoal/internal/cli/command"
	"shoal/internal/respcache"
)

// cacheFlags say how many bytes of responses are kept.
type cacheFlags struct {
	config []string
	bytes  int64
}

func (f *cacheFlags) add(g *command.Group) {
	g.Texts(&f.config, "cache-config", "`setting` of the cache for models with response_cache: local,size=BYTES; off without")
	g.Size(&f.bytes, "response-cache-byte-size", 0, "an older name: `bytes` for --cache-config=local,size=")
}

// size returns the bytes of the cache, 0 when there is none.
func (f *cacheFlags) size() (int64, error) {
	n := f.bytes
	if n < 0 {
		return 0, fmt.Errorf("--response-cache-byte-size is %d, want 0 or more", n)
	}
	for _, text := range f.config {
		kind, setting, _ := strings.Cut(text, ",")
		if kind != "local" {
			return 0, fmt.Errorf("--cache-config is %q, want local,size=BYTES: responses are kept in this process only", text)
		}
		name, value, _ := strings.Cut(setting, "=")
		size, err := strconv.ParseInt(value, 10, 64)
		if name != "size" || err != nil || size < 0 {
			return 0, fmt.Errorf("--cache-config is %q, want local,size=BYTES", text)
		}
		if f.bytes > 0 {
			return 0, fmt.Errorf("--cache-config and --response-cache-byte-size both set the cache's size; leave the older --response-cache-byte-size out")
		}
		n = size
	}
	return n, nil
}

// cache returns the cache that the flags ask for, nil when they ask for none.
func (f *cacheFlags) cache() (*respcache.Cache, error) {
	n, err := f.size()
	if err != nil || n == 0 {
		return nil, err
	}
	return respcache.New(n), nil
}
