package cli

import (
	"io"
	"strings"
	"testing"

	"shoal/internal/cli/command"
)

func TestMisuseEndsWithItsExitCodeAndSaysWhatToDo(t *testing.T) {
	tests := []struct {
		name, args string
		code       int
		says       string
	}{
		{"a port that is none", "serve --demo --http-port 99999", command.ExitMisuse, "--http-port is 99999, want 0 to 65535"},
		{"a limit below its least", "serve --demo --http-max-connections 0", command.ExitMisuse, "--http-max-connections is 0, want 1 to 2147483647"},
		{"a limit without a most", "serve --demo --http-max-input-size -4", command.ExitMisuse, "--http-max-input-size is -4, want 1 or more"},
		{"a word that a flag does not know", "serve --demo --log-format pretty", command.ExitMisuse, "--log-format is \"pretty\", want default or ISO8601"},
		{"a policy that there is not", "serve --demo --rate-limit x", command.ExitMisuse, "--rate-limit is \"x\""},
		{"a resource without a count", "serve --demo --rate-limit-resource x", command.ExitMisuse, "--rate-limit-resource is \"x\""},
		{"no number for a flag without effect", "serve --demo --http-thread-count many", command.ExitMisuse, "--http-thread-count is \"many\": want a whole number"},
		{"a setting without a value", "serve --demo --backend-config x", command.ExitMisuse, "--backend-config is \"x\""},
		{"a rule that is none", "serve --demo --http-restricted-api x", command.ExitMisuse, "--http-restricted-api: "},
		{"an expression that is none", "serve --demo --grpc-header-forward-pattern (", command.ExitMisuse, "--grpc-header-forward-pattern: "},
		{"a fraction", "serve --demo --exit-timeout-secs 1.5", command.ExitMisuse, "want a whole number"},
		{"no number at all", "serve --demo --metrics-interval-ms much", command.ExitMisuse, "want a number"},
		{"a flag that nothing is like", "serve --zzz", command.ExitMisuse, "unknown flag: --zzz\n"},
		{"the beginning of a flag", "top --metrics", command.ExitMisuse, "did you mean --metrics-url?"},
		{"a word too many", "runtime list all", command.ExitMisuse, "\"all\" is not expected: shoal runtime list takes only flags"},
		{"a subcommand that is none", "perf dif", 99, "did you mean diff?"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			said := new(strings.Builder)
			args := append([]string{"shoal"}, strings.Fields(tt.args)...)
			if code := Main(args, io.Discard, said); code != tt.code || !strings.Contains(said.String(), tt.says) {
				t.Errorf("shoal %s: got exit code %d and %q, want %d and %q", tt.args, code, said, tt.code, tt.says)
			}
		})
	}
}
