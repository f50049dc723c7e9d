package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestTheEntrypointOfImagesTakesACommandOrArguments(t *testing.T) {
	for _, c := range []struct{ given, want string }{
		{"shoal-entrypoint tritonserver --model-store=/mnt/models", "tritonserver --model-store=/mnt/models"},
		{"shoal-entrypoint /opt/tritonserver/bin/tritonserver --help", "/opt/tritonserver/bin/tritonserver --help"},
		{"shoal-entrypoint shoal serve --demo", "shoal serve --demo"},
		{"shoal-entrypoint serve --demo", "shoal serve --demo"},
		{"/usr/bin/shoal-entrypoint", "shoal"},
	} {
		if got := commandOf(strings.Fields(c.given)); !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s: got %q, want %s", c.given, got, c.want)
		}
	}
}
