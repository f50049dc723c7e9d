package cli

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"syscall"
)

// tunable is a setting of glibc's allocator, which takes it only when a program
// starts. Of each size a thread keeps so many freed objects at hand, 7 by default.
// ONNX Runtime frees dozens of one size in each step of a loop, and those that a
// thread does not keep cost several times as much.
const tunable = "glibc.malloc.tcache_count"

const (
	tunablesVariable = "GLIBC_TUNABLES"
	// userTunablesVariable has what the user had set while the program starts anew.
	userTunablesVariable = "SHOAL_USER_GLIBC_TUNABLES"
)

// setTunables starts the program anew with the tunable. It stays the same process. If
// the user has set the tunable, or the program cannot be started anew, nothing changes.
// Commands that serve call it once, before they open or write anything.
func setTunables() {
	if user, restarted := os.LookupEnv(userTunablesVariable); restarted {
		_ = os.Unsetenv(userTunablesVariable) // workers start as if nothing had been set
		if _ = os.Unsetenv(tunablesVariable); user != "" {
			_ = os.Setenv(tunablesVariable, user)
		}
		return
	}
	user := os.Getenv(tunablesVariable)
	maps, _ := os.ReadFile("/proc/self/maps")
	path, err := os.Executable()
	if strings.Contains(user, tunable) || !bytes.Contains(maps, []byte("/libc.so.6")) || err != nil {
		return
	}
	_ = syscall.Exec(path, os.Args, withTunable(os.Environ(), user)) // returns only when it failed
}

// withTunable returns the environment of the program with the tunable.
func withTunable(env []string, user string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, tunablesVariable+"=") })
	set := strings.TrimPrefix(user+":"+tunable+"=200", ":")
	return append(env, tunablesVariable+"="+set, userTunablesVariable+"="+user)
}
