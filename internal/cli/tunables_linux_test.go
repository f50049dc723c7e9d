package cli

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestTheTunableIsAddedToTheUsers(t *testing.T) {
	for user, want := range map[string]string{
		"":                     "GLIBC_TUNABLES=glibc.malloc.tcache_count=200",
		"glibc.malloc.check=1": "GLIBC_TUNABLES=glibc.malloc.check=1:glibc.malloc.tcache_count=200",
	} {
		env := withTunable([]string{"A=1", "GLIBC_TUNABLES=" + user, "B=2"}, user)
		if wanted := []string{"A=1", "B=2", want, "SHOAL_USER_GLIBC_TUNABLES=" + user}; !slices.Equal(env, wanted) {
			t.Errorf("%q: %q, want %q", user, env, wanted)
		}
	}
}

func TestAfterTheRestartTheUsersTunablesAreBack(t *testing.T) {
	for _, user := range []string{"", "glibc.malloc.check=1"} {
		for _, v := range withTunable(nil, user) {
			name, value, _ := strings.Cut(v, "=")
			t.Setenv(name, value)
		}
		setTunables()
		if got, set := os.LookupEnv("GLIBC_TUNABLES"); got != user || set != (user != "") {
			t.Errorf("workers have %q (set: %v), want %q", got, set, user)
		}
		if _, set := os.LookupEnv("SHOAL_USER_GLIBC_TUNABLES"); set {
			t.Error("the mark of the restart is left")
		}
	}
}
