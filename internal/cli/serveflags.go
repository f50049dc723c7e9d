package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"shoal/internal/accesslog"
	"shoal/internal/arrivals"
	"shoal/internal/backend"
	"shoal/internal/backend/python"
	"shoal/internal/cli/command"
	"shoal/internal/engine"
	"shoal/internal/metrics"
	"shoal/internal/model"
	"shoal/internal/reject"
	"shoal/internal/usermetric"
)

// serveDefaults are the differences between `shoal serve` and `tritonserver`.
type serveDefaults struct {
	id      string
	service string // its name among those that send traces
}

var (
	shoalDefaults  = serveDefaults{id: "shoal", service: "shoal"}
	tritonDefaults = serveDefaults{id: "triton", service: "triton-inference-server"}
)

// serveFlags are the flags of the serve command. Those that tritonserver has
// too have the same names and defaults.
type serveFlags struct {
	wrap           func(backend.Backend) backend.Backend // nil outside benchmarks
	repositories   []string
	models         []string
	demo           bool
	reload         bool
	archives       string
	archiveConfig  string
	id             string
	configName     string
	control        controlFlags
	cache          cacheFlags
	noAutoComplete bool
	namespaces     bool
	strictConfig   bool
	strictReady    bool
	exitOnError    bool
	clientMemory   bool
	maxRegions     int
	responseQueue  int64
	loadThreads    int
	loadRetries    int
	backendConfig  []string
	pinned         int64
	loadLimits     []string
	library        string
	python         string
	mps            string
	batching       string
	policy         model.Batching // of batching, by check
	rateLimit      string
	rateResources  []string

	http     httpFlags
	grpc     grpcFlags
	sessions sessionFlags
	metrics  metricsFlags
	log      logFlags
	trace    traceFlags
	service  string // for traces; no flag

	memory memoryFlags

	modelServer *modelServerConfig // of --model-server, or of the command of that name; nil for none
	registry    *modelServer       // no flag
	workers     *python.Backend    // no flag
	serving     func()             // called once the server listens; nil for nothing

	exitTimeout int
	preStop     int
	stopWith    int

	userRepositories []string // of --model-repository; no flag

	unused       []unusedFlag        // the given flags that have no effect; no flag
	rejects      *reject.Counter     // rejected requests; no flag
	dropped      func() uint64       // lines of the log; no flag
	access       *accesslog.Log      // of --access-log; nil for none
	traceDropped func() uint64       // traces; no flag
	userMetrics  usermetric.Registry // models' own metrics; no flag
	pprof        string
	record       string
	tap          arrivals.Tap // arrivals, for --record-arrivals and the metrics port
}

type httpFlags struct {
	allow          bool
	address        string
	port           int
	reuse          bool
	maxInput       int64
	maxBody        int64
	maxHeader      int
	maxConnections int
	headerTimeout  int
	bodyTimeout    int
	idleTimeout    int
	secure         secureFlags
	forward        string
	restricted     []string
}

type grpcFlags struct {
	allow          bool
	address        string
	port           int
	reuse          bool
	maxMessage     int
	maxConnections int
	maxStreams     int
	headerTimeout  int
	messageTimeout int
	compression    string
	secure         secureFlags
	keepalive      int
	keepaliveWait  int
	permitNoCalls  bool
	minPing        int
	maxAge         int
	maxAgeGrace    int
	forward        string
	restricted     []string
}

type metricsFlags struct {
	allow    bool
	address  string
	port     int
	cpu, gpu bool
	interval float64
	config   []string
	secure   secureFlags

	settings metrics.Settings // of config, by check
}

func (f *serveFlags) add(cmd *cobra.Command, def serveDefaults) {
	g := command.NewGroup(cmd, "Models")
	g.Texts(&f.repositories, "model-repository", "`folder` of models to serve; may be given several times")
	g.Texts(&f.repositories, "model-store", "another name for --model-repository")
	g.Set.Lookup("model-store").Hidden = true
	g.Texts(&f.models, "model", "serve one `model`: a .py or .onnx file, or a model's folder, by that name or as NAME=PATH; may be given several times")
	g.Toggle(&f.reload, "reload", "for development: load a model of --model or --model-repository anew when its files change; one that does not load is shown, and the one before it goes on")
	g.Text(&f.archives, "model-server", "", "also serve model archives (.mar), over the REST API of Multi Model Server (mms) or TorchServe (torchserve)")
	g.Text(&f.archiveConfig, "model-server-config", "", "configuration `file` for --model-server; config.properties in the working folder by default")
	g.Toggle(&f.demo, "demo", "serve the small repository inside this binary (models digits and add_sub)")
	g.Text(&f.id, "id", def.id, "the server's name in its metadata")
	f.addLoading(g)
	f.control.add(g)
	g.Truth(&f.strictConfig, "strict-model-config", false, "older name: true is --disable-auto-complete-config")
	g.Truth(&f.strictReady, "strict-readiness", true, "report ready only when every model is ready")
	g.Truth(&f.exitOnError, "exit-on-error", true, "exit if a model does not load")
	g.Number(&f.loadThreads, "model-load-thread-count", 4, "how many models load at once")
	g.Number(&f.loadRetries, "model-load-retry-count", 0, "how often a model that does not load is tried again")
	g.Text(&f.batching, "batching", "", "how requests are batched: triton, by Triton's rules for every model; auto, by what batches cost, for every model with max_batch_size above 1, with or without dynamic_batching and whatever delay it sets; when empty, as each model's configuration says")
	g.Text(&f.rateLimit, "rate-limit", "off", "execution_count: run instances only when the resources in their rate_limiter are free; off: no limit")
	g.Texts(&f.rateResources, "rate-limit-resource", "`amount` of a resource: name:count[:device]; without a device it is global, or the amount on every device")
	g.Size(&f.responseQueue, "response-queue-size", engine.DefaultResponseQueueSize, "`bytes` of a decoupled model's responses to one request that may wait for a slow client; a Python model waits in send(), and if a model sends on regardless, its request ends")
	f.cache.add(g)
	g = command.NewGroup(cmd, "Shared memory")
	g.Truth(&f.clientMemory, "allow-client-shm", false, "let clients on this machine pass tensors in their shared memory")
	g.Number(&f.maxRegions, "client-shm-max-regions", 4096, "`regions` of shared memory that clients may register; each holds a file open")
	f.memory.add(command.NewGroup(cmd, "Memory"))
	f.http.add(command.NewGroup(cmd, "HTTP"))
	f.grpc.add(command.NewGroup(cmd, "gRPC"))
	f.sessions.add(command.NewGroup(cmd, "Sessions"))
	f.metrics.add(command.NewGroup(cmd, "Metrics"))
	f.log.add(command.NewGroup(cmd, "Logging"))
	f.trace.add(command.NewGroup(cmd, "Tracing"))
	f.service = def.service
	g = command.NewGroup(cmd, "Process")
	g.Number(&f.exitTimeout, "exit-timeout-secs", 30, "how long requests in flight and models may take to end after SIGTERM or SIGINT")
	g.Number(&f.preStop, "pre-stop-delay-secs", 0, "how long the server goes on taking requests after SIGTERM or SIGINT, while it reports not ready, before it stops; for load balancers that need a while to notice")
	g.Number(&f.stopWith, "stop-with-process", 0, "stop, as on SIGTERM, when the process with this `number` ends; 0 is none")
	g.Text(&f.mps, "cuda-mps", "auto", "`auto|off`: several instances of a Python model on one GPU use it at the same time, through NVIDIA's MPS, which the server starts, or in turns")
	g.Text(&f.record, "record-arrivals", "", "write the time, model, shapes and sizes of each request to this `file`, for shoal perf --replay; if the disk is too slow, requests are left out and counted")
	g.Text(&f.pprof, "pprof-address", "", "serve Go's profiles under /debug/pprof on this `host:port`; off when empty")
	addWithoutEffect(command.NewGroup(cmd, "Triton's other flags"))
}

// addLoading adds the flags that say how a model is loaded.
func (f *serveFlags) addLoading(g *command.Group) {
	g.Text(&f.configName, "model-config-name", "", "read configs/`name`.pbtxt of a model that has it rather than config.pbtxt")
	g.Truth(&f.namespaces, "model-namespacing", false, "make each repository a namespace: several may have models of the same name; an ensemble uses those of its own repository, and a client that means one of them asks over gRPC for REPOSITORY::MODEL")
	g.Toggle(&f.noAutoComplete, "disable-auto-complete-config", "do not fill in configurations from the model files")
	g.Texts(&f.backendConfig, "backend-config", "`setting` of a backend: [backend,]name=value, such as onnxruntime,default-max-batch-size=8")
	g.Size(&f.pinned, "pinned-memory-pool-byte-size", 0, "the most host memory that is pinned for ONNX models on GPUs, in `bytes`; what does not fit is copied more slowly; 0 is any amount")
	g.Texts(&f.loadLimits, "model-load-gpu-limit", "refuse to load ONNX models onto a GPU of whose memory more than this `id:fraction` is in use, such as 0:0.8; may be given several times")
	g.Text(&f.library, "onnxruntime-library", "", "`path` of ONNX Runtime's library; `shoal runtime list` shows what is found without this flag")
	g.Text(&f.python, "python", "", "`path` of the Python (3.9 or newer, with numpy) that runs Python models, or of a virtual environment; python3 when empty")
}

func (f *httpFlags) add(g *command.Group) {
	g.Truth(&f.allow, "allow-http", true, "serve HTTP")
	g.Text(&f.address, "http-address", "0.0.0.0", "`host` to listen on, or unix:///path of a socket")
	g.Number(&f.port, "http-port", 8000, "0: the system chooses (see the log)")
	g.Truth(&f.reuse, "reuse-http-port", false, "let several servers share the port")
	g.Size(&f.maxInput, "http-max-input-size", 64<<20, "largest JSON, JSON tensor, raw request and decompressed body, in `bytes`")
	g.Size(&f.maxBody, "http-max-body-size", 1<<31-1, "largest request body of any kind, in `bytes`")
	g.Number(&f.maxHeader, "http-max-header-size", 16<<10, "largest request line with headers, in `bytes`; each connection reserves as much")
	g.Number(&f.maxConnections, "http-max-connections", 16384, "limit of connections; beyond it a new one replaces the longest idle one, and is refused when none is idle")
	g.Number(&f.headerTimeout, "http-header-timeout-secs", 10, "how long a client may take to send a request's headers")
	g.Number(&f.bodyTimeout, "http-body-timeout-secs", 30, "how long a client may pause within a request's body, or not read its answer")
	g.Number(&f.idleTimeout, "http-idle-timeout-secs", 300, "how long a connection may stay open without a request")
	f.secure.add(g, "http")
	g.Text(&f.forward, "http-header-forward-pattern", "", "pass headers whose name matches this regular `expression` to the model as parameters")
	g.Texts(&f.restricted, "http-restricted-api", "`rule` apis:header=value: these API classes require that header")
}

func (f *grpcFlags) add(g *command.Group) {
	g.Truth(&f.allow, "allow-grpc", true, "serve gRPC")
	g.Text(&f.address, "grpc-address", "0.0.0.0", "`host` to listen on, or unix:///path of a socket")
	g.Number(&f.port, "grpc-port", 8001, "0: the system chooses (see the log)")
	g.Truth(&f.reuse, "reuse-grpc-port", false, "let several servers share the port")
	g.Number(&f.maxMessage, "grpc-max-message-size", 1<<31-1, "largest message in either direction, in `bytes`")
	g.Number(&f.maxConnections, "grpc-max-connections", 16384, "limit of connections; beyond it a new one replaces the longest idle one, and is refused when none is idle")
	g.Number(&f.maxStreams, "grpc-max-concurrent-streams", 10000, "calls in flight on one connection; clients queue further calls")
	g.Number(&f.headerTimeout, "grpc-header-timeout-secs", 10, "how long a client may take to connect, and to send a call's headers")
	g.Number(&f.messageTimeout, "grpc-message-timeout-secs", 30, "how long a client may pause within a message, or not read its answer")
	g.Text(&f.compression, "grpc-infer-response-compression-level", "none", "compress answers: none, low, medium or high")
	f.secure.add(g, "grpc")
	g.Number(&f.keepalive, "grpc-keepalive-time", 7200000, "ping a silent client after this many `milliseconds`")
	g.Number(&f.keepaliveWait, "grpc-keepalive-timeout", 20000, "close the connection if a ping is not answered within this many `milliseconds`")
	g.Truth(&f.permitNoCalls, "grpc-keepalive-permit-without-calls", false, "allow pings from clients without calls")
	g.Number(&f.minPing, "grpc-http2-min-recv-ping-interval-without-data", 300000, "shortest time between a client's pings, in `milliseconds`")
	g.Number(&f.maxAge, "grpc-max-connection-age", 0, "close connections after this many `milliseconds`; 0 means never")
	g.Number(&f.maxAgeGrace, "grpc-max-connection-age-grace", 0, "how many `milliseconds` calls on such a connection may go on; 0 is no limit")
	g.Text(&f.forward, "grpc-header-forward-pattern", "", "pass metadata whose key matches this regular `expression` to the model as parameters")
	g.Texts(&f.restricted, "grpc-restricted-protocol", "`rule` protocols:key=value: these protocols require that metadata")
}

func (f *metricsFlags) add(g *command.Group) {
	g.Truth(&f.allow, "allow-metrics", true, "serve Prometheus metrics under /metrics")
	g.Text(&f.address, "metrics-address", "", "`host` to listen on, or unix:///path of a socket; empty means HTTP's host")
	g.Number(&f.port, "metrics-port", 8002, "0: the system chooses (see the log)")
	f.secure.add(g, "metrics")
	g.Truth(&f.gpu, "allow-gpu-metrics", true, "add the machine's GPUs to the metrics, if there are any")
	g.Truth(&f.cpu, "allow-cpu-metrics", true, "add the machine's CPU and memory use to the metrics")
	g.Decimal(&f.interval, "metrics-interval-ms", 2000, "how often CPU and memory use are read, in `milliseconds`; the models' metrics are always current")
	g.Texts(&f.config, "metrics-config", "`setting` of the metrics, name=value: counter_latencies (true), histogram_latencies (false), summary_latencies (false),\nsummary_quantiles (0.5:0.05,0.9:0.01,0.95:0.001,0.99:0.001,0.999:0.001)")
}

// check checks the values.
func (f *metricsFlags) check() (err error) {
	if !(f.interval >= 1 && f.interval <= maxInterval) {
		return fmt.Errorf("--metrics-interval-ms is %v, want 1 to %v", f.interval, maxInterval)
	}
	if f.settings, err = metrics.ParseSettings(f.config); err != nil {
		return fmt.Errorf("--metrics-config: %w", err)
	}
	return nil
}

// maxInterval is a day, in milliseconds.
const maxInterval = 24 * 60 * 60 * 1000

// check checks combinations of flags.
func (f *serveFlags) check() error {
	var errs []error
	if len(f.repositories) == 0 && len(f.models) == 0 && !f.demo && f.archives == "" {
		errs = append(errs, errors.New("--model-repository is required (or --model FILE.py, or --demo, to try the server without models of your own)"))
	}
	if f.reload && f.control.mode != controlNone {
		errs = append(errs, fmt.Errorf("--reload follows the files itself; leave --model-control-mode=%s out", f.control.mode))
	}
	if f.archives != "" {
		var err error
		if f.modelServer, err = archiveConfig(f.archives, f.archiveConfig); err != nil {
			errs = append(errs, fmt.Errorf("--model-server: %w", err))
		}
	}
	for _, r := range f.ranges() {
		errs = append(errs, r.check())
	}
	if f.batching != "" {
		var err error
		if f.policy, err = model.ParseBatching(f.batching); err != nil {
			errs = append(errs, fmt.Errorf("--batching %w", err))
		}
	}
	_, badLimit := f.limiter()
	_, badCache := f.cache.size()
	_, badSetting := f.backendSettings()
	_, badHTTP := f.http.options()
	_, badGRPC := f.grpc.options()
	f.metrics.secure.inherit(f.http.secure)
	errs = append(errs, f.http.secure.check(), f.grpc.secure.check(), f.metrics.secure.check())
	errs = append(errs, f.control.check(), f.sessions.check(), badCache, f.metrics.check(), f.log.check(), f.trace.check(), badLimit, badSetting, badHTTP, badGRPC)
	if !f.http.allow && !f.grpc.allow && f.sessions.socket == "" {
		errs = append(errs, errors.New("--allow-http and --allow-grpc are both false: clients could not reach this server"))
	}
	return errors.Join(errs...)
}

// backendSettings groups --backend-config by backend; "" has those for all.
func (f *serveFlags) backendSettings() (map[string]map[string]string, error) {
	all := make(map[string]map[string]string)
	for _, s := range f.backendConfig {
		backend, setting, ok := strings.Cut(s, ",")
		if !ok {
			backend, setting = "", s
		}
		name, value, ok := strings.Cut(setting, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--backend-config is %q, want [backend,]name=value", s)
		}
		if all[backend] == nil {
			all[backend] = make(map[string]string)
		}
		all[backend][name] = value
	}
	return all, nil
}
