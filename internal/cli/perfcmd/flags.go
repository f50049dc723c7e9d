package perfcmd

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shoal/internal/cli/command"
	"shoal/internal/perf"
	"shoal/internal/perf/result"
)

// flags are the flags of the perf command. Those that perf_analyzer has too
// go by the same names and defaults.
type flags struct {
	product string // its version

	model, version string
	url, protocol  string
	service        string
	async, sync    bool
	streaming      bool

	concurrency    string
	rate           string
	distribution   string
	intervals      string
	periodic       string
	period         int
	binarySearch   bool
	threshold      float64
	maxThreads     int
	callers        int  // -t
	dynamic        bool // -d
	maxCallers     int  // -c
	maxOutstanding int
	clock          string
	seed           uint64

	mode          string
	interval      int
	windowCount   int64
	stability     float64
	trials        int
	percentile    int
	warmup        int64
	requestCount  int64
	maxErrors     share
	allowUnstable bool

	batch        int
	data         []string
	folder       string
	zero         bool
	shapes       []string
	stringLength int
	stringData   string
	randomStyle  string
	inFormat     string
	outFormat    string
	parameters   []string
	headers      []string
	compression  string
	shared       string
	outputSize   int
	sequence     sequenceFlags
	trace        traceFlags
	tls          tlsFlags

	verbose    int
	csv        string
	verboseCSV bool
	export     string
	json       string
	serverPID  int
	pictures   pictureFlags

	goalFlags
	replayFlags

	metrics         bool
	metricsURL      string
	composing       string
	metricsInterval int
}

func (f *flags) add(cmd *cobra.Command) {
	g := command.NewGroup(cmd, "What to measure")
	g.Set.StringVarP(&f.model, "model-name", "m", "", "`name` of the model; required")
	g.Note("model-name")
	g.Set.StringVarP(&f.version, "model-version", "x", "", "`number` of the version (default: the newest)")
	g.Note("model-version")
	g.Set.StringVarP(&f.url, "url", "u", "", "`host:port` of the server, a URL, or unix:///path of its socket; https:// uses TLS (default localhost:8000, gRPC localhost:8001)")
	g.Note("url")
	g.Set.StringVarP(&f.protocol, "protocol", "i", "http", "`http|grpc`")
	g.Note("protocol")
	g.Text(&f.service, "service-kind", perf.Triton, "`triton|torchserve`; triton is any server that speaks KServe v2, torchserve sends the files that --input-data names to /predictions (default port 8080)")

	g = command.NewGroup(cmd, "Load")
	g.Text(&f.concurrency, "concurrency-range", "1", "closed loop: requests in flight, as `start:end:step`; an end of 0 goes on until --latency-threshold")
	g.Text(&f.rate, "request-rate-range", "", "open loop: requests per second, as `start:end:step`")
	g.Text(&f.distribution, "request-distribution", result.Constant, "gaps of the open loop, `constant|poisson`")
	g.Text(&f.intervals, "request-intervals", "", "open loop with the gaps in a `file`, repeatedly; one number of microseconds per line")
	f.replayFlags.add(g)
	g.Text(&f.periodic, "periodic-concurrency-range", "", "growing number of requests, as `start:end:step`, each sent once over a stream; for --profile-export-file")
	g.Number(&f.period, "request-period", 10, "`answers` that the latest requests of --periodic-concurrency-range must have got before more are sent")
	g.Toggle(&f.binarySearch, "binary-search", "look for the highest level within --latency-threshold, to the precision of step")
	g.Set.Float64VarP(&f.threshold, "latency-threshold", "l", 0, "latency limit in `milliseconds` that ends the search; 0 means none")
	g.Note("latency-threshold")
	g.Number(&f.maxOutstanding, "max-outstanding", 512, "open loop: most `requests` in flight; further ones wait, which counts as latency")
	g.Text(&f.clock, "latency-clock", result.ScheduleClock, "open loop: where latency begins, `schedule|send`: when a request was due, or when it was sent")
	g.Set.BoolVarP(&f.async, "async", "a", false, "accept a level when only its throughput is stable")
	g.Note("async")
	g.Toggle(&f.sync, "sync", "the opposite of --async (default)")
	g.Toggle(&f.streaming, "streaming", "gRPC: send over streams, one for each caller; needs --async")
	g.Set.Uint64Var(&f.seed, "seed", 1, "seed `number` of random inputs and poisson gaps")
	g.Note("seed")

	g = command.NewGroup(cmd, "Measurement")
	g.Text(&f.mode, "measurement-mode", result.TimeWindows, "`time_windows|count_windows`")
	g.Set.IntVarP(&f.interval, "measurement-interval", "p", 5000, "`milliseconds` of a time window, which lasts 1.2 times that, as in perf_analyzer")
	g.Note("measurement-interval")
	g.Set.Int64Var(&f.windowCount, "measurement-request-count", 50, "least `requests` of a count window, which lasts at least a second")
	g.Note("measurement-request-count")
	g.Set.Float64VarP(&f.stability, "stability-percentage", "s", 10, "`percent` by which the last three windows may differ in throughput and latency")
	g.Note("stability-percentage")
	g.Set.IntVarP(&f.trials, "max-trials", "r", 10, "most `windows` of a level")
	g.Note("max-trials")
	g.Number(&f.percentile, "percentile", -1, "judge by this `percentile` of the latency rather than the mean")
	g.Set.Int64Var(&f.warmup, "warmup-request-count", 0, "`requests` to send before measuring; single level only")
	g.Note("warmup-request-count")
	g.Set.Int64Var(&f.requestCount, "request-count", 0, "send exactly this many `requests` instead of measuring in windows; single level only")
	g.Note("request-count")
	f.maxErrors.share = 0.01
	g.Set.Var(&f.maxErrors, "max-error-rate", "`percent` of requests that may fail: more end the run. If the flag is given, fewer do not change the exit code; otherwise any failure makes it 99")
	g.Note("max-error-rate")
	g.Toggle(&f.allowUnstable, "allow-unstable", "exit 0 even if a level did not become stable")
	f.goalFlags.add(g)

	f.addData(cmd)
	f.addOutput(cmd)
	f.trace.add(command.NewGroup(cmd, "Tracing"))
	addRefused(command.NewGroup(cmd, "Not here"))
	f.addOld(cmd.Flags())
}

func (f *flags) addData(cmd *cobra.Command) {
	g := command.NewGroup(cmd, "What to send")
	g.Set.IntVarP(&f.batch, "batch-size", "b", 1, "`rows` of each request")
	g.Note("batch-size")
	g.Texts(&f.data, "input-data", "`random|zero|path`: suitable values, zeros, a folder with a file for each input, or JSON files; repeat the flag for several (default random)")
	g.Texts(&f.shapes, "shape", "`name:d1,d2` for an input whose shape varies, without the batch dimension")
	g.Number(&f.stringLength, "string-length", 128, "`characters` of random strings")
	g.Text(&f.stringData, "string-data", "", "`text` to send instead of random strings")
	g.Text(&f.randomStyle, "random-style", "typed", "random inputs, `typed|bytes`: values that a model accepts, or any bytes including infinities, as perf_analyzer sends")
	g.Text(&f.inFormat, "input-tensor-format", "binary", "HTTP: send tensors as `binary|json`")
	g.Text(&f.outFormat, "output-tensor-format", "binary", "HTTP: ask for tensors as `binary|json`")
	g.Texts(&f.parameters, "request-parameter", "gRPC: parameter `name:value:type` of each request; the type is bool, int, float or string")
	g.Set.StringArrayVarP(&f.headers, "header", "H", nil, "HTTP header or gRPC metadata `Name:value` of each request")
	g.Note("header")
	g.Text(&f.compression, "grpc-compression-algorithm", "none", "gRPC: `none|gzip|deflate`")
	g.Text(&f.shared, "shared-memory", "none", "`none|system`: pass tensors in shared memory to a server on this machine that allows it")
	g.Number(&f.outputSize, "output-shared-memory-size", 100<<10, "`bytes` of shared memory for an output of unknown size")
	f.sequence.add(command.NewGroup(cmd, "Sequences"))
	f.tls.add(command.NewGroup(cmd, "TLS"))
}

func (f *flags) addOutput(cmd *cobra.Command) {
	g := command.NewGroup(cmd, "Output")
	g.Set.CountVarP(&f.verbose, "verbose", "v", "show each window, finer times, the mean batch, CPU of client and server")
	g.Note("verbose")
	g.Set.StringVarP(&f.csv, "csv", "f", "", "write the levels to this `file` as CSV, by rising throughput")
	g.Note("csv")
	g.Toggle(&f.verboseCSV, "verbose-csv", "more columns in the CSV")
	g.Text(&f.json, "json", "", "write all measurements, including histograms, to this `file`; with - they go to standard output, and the report to standard error")
	g.Text(&f.export, "profile-export-file", "", "write every request and answer to this new `file`, in perf_analyzer's layout")
	f.pictures.add(g)
	g.Text(&f.composing, "bls-composing-models", "", "`models` that the model calls, such as modelA:3,modelB: their statistics are shown, too, as those of an ensemble's models are")
	g.Toggle(&f.metrics, "collect-metrics", "read the server's GPU metrics while measuring")
	g.Text(&f.metricsURL, "metrics-url", "", "`URL` of the metrics (default: the server's host, port 8002, /metrics)")
	g.Number(&f.metricsInterval, "metrics-interval", 1000, "`milliseconds` between two readings of the metrics")
	g.Number(&f.serverPID, "server-pid", 0, "`process` id of the server, for its CPU time with -v (default: the process that listens, if it is on this machine)")
}

// addRefused adds perf_analyzer's flags that do nothing here: each is refused
// with its reason, or accepted where it makes no difference.
func addRefused(g *command.Group) {
	g.Refused("it goes with --service-kind=openai, which is not spoken here", "session-concurrency", "fixed-schedule")
	g.Refused("several processes in step are not supported; one process makes the load of many", "enable-mpi")
	for _, name := range []string{"fixed-schedule", "enable-mpi"} { // they have no value
		g.Set.Lookup(name).NoOptDefVal = "true"
	}
	// The last three belong to kinds of service that are refused; perf_analyzer
	// accepts them with other kinds.
	g.Ignored("it belongs to a kind of service that is not spoken here", "model-signature-name", "endpoint", "model-repository", "triton-server-directory")
}

// addOld adds the short flags that perf_analyzer keeps from its first versions.
func (f *flags) addOld(set *pflag.FlagSet) {
	set.IntVar(&f.maxThreads, "max-threads", 1, "")
	set.IntVarP(&f.callers, "callers", "t", 0, "")
	set.BoolVarP(&f.zero, "zero", "z", false, "")
	set.StringVar(&f.folder, "data-directory", "", "")
	set.BoolVarP(&f.dynamic, "dynamic", "d", false, "")
	set.IntVarP(&f.maxCallers, "max-concurrency", "c", 0, "")
	for _, name := range []string{"max-threads", "callers", "zero", "data-directory", "dynamic", "max-concurrency"} {
		set.Lookup(name).Hidden = true
	}
}

// share is a percentage, with or without its sign.
type share struct{ share float64 }

func (s *share) String() string { return strconv.FormatFloat(100*s.share, 'g', -1, 64) }
func (s *share) Type() string   { return "percent" }
func (s *share) Set(text string) error {
	v, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(v >= 0 && v <= 100) {
		return fmt.Errorf("%q is not a percentage from 0 to 100", text)
	}
	s.share = v / 100
	return nil
}
