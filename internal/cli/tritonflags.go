package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"shoal/internal/cli/command"
)

// tritonFlags are all flags of tritonserver 2.6x and those of older releases that
// it still accepts, by the groups of its help.
var tritonFlags = []struct {
	group string
	names []string
}{
	{"Server", []string{"id", "exit-timeout-secs", "help"}},
	{"Logging", []string{"log-verbose", "log-info", "log-warning", "log-error", "log-format", "log-file"}},
	{"Model repository", []string{
		"model-repository", "model-store", "exit-on-error", "disable-auto-complete-config", "strict-readiness", "model-control-mode",
		"repository-poll-secs", "load-model", "model-config-name", "model-load-thread-count", "model-load-retry-count",
		"model-namespacing", "enable-peer-access",
	}},
	{"HTTP", []string{
		"allow-http", "http-address", "http-port", "reuse-http-port", "http-header-forward-pattern", "http-thread-count",
		"http-max-input-size", "http-restricted-api",
	}},
	{"gRPC", []string{
		"allow-grpc", "grpc-address", "grpc-port", "reuse-grpc-port", "grpc-header-forward-pattern", "grpc-infer-thread-count",
		"grpc-infer-allocation-pool-size", "grpc-max-response-pool-size", "grpc-use-ssl", "grpc-use-ssl-mutual", "grpc-server-cert",
		"grpc-server-key", "grpc-root-cert", "grpc-infer-response-compression-level", "grpc-keepalive-time", "grpc-keepalive-timeout",
		"grpc-keepalive-permit-without-calls", "grpc-http2-max-pings-without-data", "grpc-http2-min-recv-ping-interval-without-data",
		"grpc-http2-max-ping-strikes", "grpc-max-connection-age", "grpc-max-connection-age-grace", "grpc-restricted-protocol",
	}},
	{"SageMaker", []string{"allow-sagemaker", "sagemaker-port", "sagemaker-safe-port-range", "sagemaker-thread-count"}},
	{"Vertex AI", []string{"allow-vertex-ai", "vertex-ai-port", "vertex-ai-thread-count", "vertex-ai-default-model"}},
	{"Metrics", []string{
		"allow-metrics", "allow-gpu-metrics", "allow-cpu-metrics", "metrics-address", "metrics-port", "metrics-interval-ms", "metrics-config",
	}},
	{"Tracing", []string{"trace-config"}},
	{"Backends", []string{"backend-directory", "backend-config"}},
	{"Repository agents", []string{"repoagent-directory"}},
	{"Response cache", []string{"cache-config", "cache-directory"}},
	{"Rate limiter", []string{"rate-limit", "rate-limit-resource"}},
	{"Memory and devices", []string{
		"allow-client-shm", "pinned-memory-pool-byte-size", "cuda-memory-pool-byte-size", "cuda-virtual-address-size",
		"min-supported-compute-capability", "buffer-manager-thread-count", "host-policy", "model-load-gpu-limit",
	}},
	{"Older names", []string{
		"strict-model-config", "response-cache-byte-size", "trace-file", "trace-level", "trace-rate", "trace-count", "trace-log-frequency",
	}},
}

// addWithoutEffect adds the flags of tritonserver that do nothing here, or are
// refused.
func addWithoutEffect(g *command.Group) {
	g.IgnoredNumbers("each connection has a goroutine of its own, so that there is no number of threads to choose",
		"http-thread-count", "grpc-infer-thread-count", "sagemaker-thread-count", "vertex-ai-thread-count")
	g.IgnoredNumbers("memory for requests and responses is bounded by --max-inflight-bytes",
		"grpc-infer-allocation-pool-size", "grpc-max-response-pool-size")
	g.Ignored("the server sends pings by --grpc-keepalive-time, whether or not it sends data", "grpc-http2-max-pings-without-data")
	g.Ignored("a client that pings too soon (--grpc-http2-min-recv-ping-interval-without-data) for the third time is disconnected",
		"grpc-http2-max-ping-strikes")
	g.Ignored("the backends and the cache are part of the binary", "backend-directory", "cache-directory")
	g.Ignored("there are no repository agents; a model that asks for one is refused", "repoagent-directory")
	const reserved = "each backend reserves the memory that its models need"
	g.Ignored("each model reserves the GPU memory that it needs; gpu_mem_limit in its parameters bounds that", "cuda-memory-pool-byte-size")
	g.Ignored(reserved, "cuda-virtual-address-size", "enable-peer-access")
	g.IgnoredNumbers(reserved, "buffer-manager-thread-count")
	g.Ignored("the backends decide which GPUs they use", "min-supported-compute-capability")
	g.Ignored("instances run where the system places them; use numactl or a CPU set for the process", "host-policy")
	g.RefusedSwitches("SageMaker's endpoint is not served; put a proxy in front that maps /ping to /v2/health/ready and /invocations to /v2/models/NAME/infer",
		"allow-sagemaker")
	g.Ignored("SageMaker's endpoint is not served", "sagemaker-port", "sagemaker-safe-port-range")
	g.RefusedSwitches("Vertex AI's endpoint is not served; deploy with --http-port=8080, the health route /v2/health/ready and the predict route /v2/models/NAME/infer",
		"allow-vertex-ai")
	g.Ignored("Vertex AI's endpoint is not served", "vertex-ai-port", "vertex-ai-default-model")
}

// An unusedFlag is a flag that was given and does nothing.
type unusedFlag struct{ flag, reason string }

// withoutEffect returns the given flags that do nothing.
func withoutEffect(set *pflag.FlagSet) (list []unusedFlag) {
	set.Visit(func(f *pflag.Flag) {
		if i, ok := f.Value.(*command.Ignored); ok {
			list = append(list, unusedFlag{"--" + f.Name, i.Reason})
		}
	})
	return list
}

// tritonReference returns docs/flags.md.
func tritonReference() string {
	cmd := newServe(tritonDefaults)
	cmd.InitDefaultHelpFlag()
	var b strings.Builder
	b.WriteString("# The flags of tritonserver\n\n" +
		"What `shoal serve`, or the link `tritonserver`, does with each flag of tritonserver 2.6x; `go test ./internal/cli -update` rewrites\n" +
		"this page. A flag *works*, or has *no effect*, which the log says once, or is *refused* with the reason. As in Triton,\n" +
		"`tritonserver` also accepts abbreviated flags. [serve.md](serve.md) has Shoal's own flags, too.\n")
	for _, g := range tritonFlags {
		fmt.Fprintf(&b, "\n## %s\n\n| flag | here | what it does, or why not |\n|---|---|---|\n", g.group)
		for _, name := range g.names {
			f := cmd.Flags().Lookup(name)
			state := "works"
			switch f.Value.(type) {
			case *command.Ignored:
				state = "no effect"
			case *command.Refused:
				state = "refused"
			}
			_, usage := pflag.UnquoteUsage(f)
			fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", name, state, tableText.Replace(usage))
		}
	}
	return b.String()
}

// tableText makes a text fit for a cell of a table.
var tableText = strings.NewReplacer("\n", " ", "|", "\\|", "*", "\\*", "<", "&lt;")
