package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"shoal/internal/modelstore"
	"shoal/internal/properties"
	"shoal/internal/protocol/modelserver"
)

// A modelServerConfig is the configuration of a model server, Multi Model Server or
// TorchServe: config.properties, the environment and the command line.
type modelServerConfig struct {
	dialect modelstore.Dialect

	inference, management, metrics modelServerAddress
	grpcInference, grpcManagement  modelServerAddress

	store        string
	load         string
	workers      int
	startWorkers int // of models that are loaded at the start
	queueSize    int
	maxRequest   int64
	maxResponse  int
	response     time.Duration
	startup      time.Duration
	unregister   time.Duration
	gpus         int
	rawInput     bool
	handler      string
	hidden       *regexp.Regexp // of variables that workers do not get
	cors         [3]string
	key, cert    string
	keystore     string // PKCS12 or JKS
	keystorePass string
	models       map[string]map[string]map[string]any
	install      bool // the requirements of archives
	envelope     string
	anyImage     bool
	allowed      []*regexp.Regexp
	modelAPI     bool
	noTokens     bool
	tokenLife    time.Duration
	showMetrics  bool     // to Prometheus
	onlyMetrics  []string // nil for all
	noSystem     bool     // no metrics of the machine

	metricInterval time.Duration
	openInference  bool
	noSnapshots    bool
	snapshots      string // the folder for them
	snapshot       string // model_snapshot of the file that was read
	file           string // the file that was read; empty for none
	batching       string

	values map[string]string // as they were read, for snapshots

	logs   *modelServerLogs // set when the server starts
	python string           // the workers' interpreter; likewise
}

// A modelServerAddress is where an API listens.
type modelServerAddress struct {
	text string
	host string // or unix:///path
	port int
	tls  bool
}

// accepted are the keys that have no meaning for this server.
var accepted = []string{
	"number_of_netty_threads", "netty_client_threads", "async_logging", "vmargs", "plugins_path", "prefer_direct_buffer", "use_native_io", "io_ratio",
	"preload_model", "debug", "metric_time_interval", "enable_envvars_config", "model_server_home",
	"metrics_config", "model_metrics_auto_detect", "disable_system_metrics", "system_metrics_cmd", "enable_grpc_ssl",
	"grpc_inference_max_connection_age_ms", "grpc_management_max_connection_age_ms", "grpc_inference_max_connection_age_grace_ms", "grpc_management_max_connection_age_grace_ms",
	"initial_worker_port", "initial_distribution_port", "workflow_store", "cpu_launcher_enable", "cpu_launcher_args", "ipex_enable", "ipex_gpu_enable",
	"ts_header_key_sequence_id", "ts_header_key_sequence_start", "ts_header_key_sequence_end", "cpp_log_config", "use_env_allowed_urls",
	"enable_metrics_api", "tsConfigFile", "version",
}

// newModelServerConfig reads the configuration. Args are the keys that the command
// line sets; file is the one that it names, if it names one. With snapshots the
// newest snapshot takes the place of a file that nobody names.
func newModelServerConfig(d modelstore.Dialect, file string, snapshots bool, args map[string]string, env []string) (*modelServerConfig, error) {
	lookup := func(name string) (string, bool) {
		for _, e := range slices.Backward(env) {
			if n, v, ok := strings.Cut(e, "="); ok && n == name {
				return v, true
			}
		}
		return "", false
	}
	prefix := [...]string{"MMS_", "TS_"}[d]
	c := &modelServerConfig{dialect: d, values: map[string]string{}, noSnapshots: !snapshots || d != modelstore.TorchServe}
	c.snapshots = snapshotFolder(func(name string) string { v, _ := lookup(name); return v })
	if named, ok := lookup(prefix + "CONFIG_FILE"); ok && named != "" {
		file = named
	}
	if file == "" && !c.noSnapshots {
		if file = newestSnapshot(c.snapshots); file != "" {
			delete(args, "load_models")
		}
	}
	if file == "" {
		if _, err := os.Stat("config.properties"); err == nil {
			file = "config.properties"
		}
	}
	if file == "sagemaker" && d == modelstore.MMS {
		c.values, c.file = sagemaker(lookup), file
	} else if file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("the configuration cannot be read: %w", err)
		}
		if c.values, err = properties.Parse(string(b)); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		c.file = file
	}
	for key, value := range c.values {
		expanded, err := properties.Expand(value, lookup)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", said("Invalid configuration"), err)
		}
		c.values[key] = expanded
	}
	for key, value := range args {
		c.values[key] = value
	}
	if c.truth("enable_envvars_config", false) {
		for _, key := range modelServerKeys() {
			if key == "allowed_urls" && !c.truth("use_env_allowed_urls", false) {
				continue
			}
			if value, ok := lookup(prefix + strings.ToUpper(key)); ok {
				c.values[key] = value
			}
		}
	}
	if oip, _ := lookup("TS_OPEN_INFERENCE_PROTOCOL"); oip == "oip" {
		c.values["ts_open_inference_protocol"] = "true"
	}
	return c, c.read()
}

// sagemaker is the configuration that comes with Multi Model Server for SageMaker.
func sagemaker(lookup func(string) (string, bool)) map[string]string {
	values := map[string]string{"decode_input_request": "false", "preload_model": "false", "enable_envvars_config": "true"}
	set := func(key, variable, other string, format string) {
		if v, ok := lookup(variable); ok {
			other = v
		}
		if other != "" {
			values[key] = fmt.Sprintf(format, other)
		}
	}
	set("model_store", "SAGEMAKER_MODEL_STORE", "/opt/ml/model", "%s")
	set("inference_address", "SAGEMAKER_BIND_TO_PORT", "8080", "http://0.0.0.0:%s")
	set("management_address", "SAGEMAKER_BIND_TO_PORT", "8080", "http://0.0.0.0:%s")
	set("default_response_timeout_seconds", "SAGEMAKER_RESPONSE_TIMEOUT", "", "%s")
	set("default_workers_per_model", "SAGEMAKER_NUM_MODEL_WORKERS", "", "%s")
	set("default_service_handler", "SAGEMAKER_HANDLER", "", "%s")
	set("max_response_size", "SAGEMAKER_MAX_RESPONSE_SIZE", "", "%s")
	set("max_request_size", "SAGEMAKER_MAX_REQUEST_SIZE", "", "%s")
	return values
}

// modelServerKeys returns the keys that the environment may set.
func modelServerKeys() []string {
	return append(slices.Clone(accepted),
		"inference_address", "management_address", "metrics_address", "model_store", "load_models", "default_workers_per_model", "job_queue_size",
		"max_request_size", "max_response_size", "default_response_timeout", "default_response_timeout_seconds", "default_startup_timeout",
		"unregister_model_timeout", "number_of_gpu", "decode_input_request", "default_service_handler", "blacklist_env_vars",
		"cors_allowed_origin", "cors_allowed_methods", "cors_allowed_headers", "private_key_file", "certificate_file", "service_envelope",
		"keystore", "keystore_pass", "keystore_type", "models", "install_py_dep_per_model",
		"limit_max_image_pixels", "allowed_urls", "enable_model_api", "disable_token_authorization", "token_expiration_min", "metrics_mode",
		"ts_open_inference_protocol", "grpc_inference_address", "grpc_management_address", "grpc_inference_port", "grpc_management_port",
		"model_snapshot", "batching")
}

// read takes the values apart. It reports all errors at once.
func (c *modelServerConfig) read() error {
	var errs []error
	number := func(key string, other int) int {
		text, ok := c.values[key]
		if text = strings.TrimSpace(text); !ok || text == "" {
			return other
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is %q, want a whole number", key, text))
		}
		return n
	}
	address := func(key, other string, plain, secure int) modelServerAddress {
		a, err := parseAddress(cmp.Or(c.values[key], other), plain, secure)
		errs = append(errs, err)
		return a
	}
	ts := c.dialect == modelstore.TorchServe
	c.inference = address("inference_address", "http://127.0.0.1:8080", 80, 443)
	c.management = address("management_address", "http://127.0.0.1:8081", 8081, 8444)
	c.store, c.load = c.values["model_store"], c.values["load_models"]
	c.workers = number("default_workers_per_model", 0)
	c.queueSize = number("job_queue_size", 100)
	c.maxRequest = int64(number("max_request_size", 6553500))
	c.maxResponse = number("max_response_size", 6553500)
	response := number("default_response_timeout", 120)
	c.response = time.Duration(response) * time.Minute
	if n := number("default_response_timeout_seconds", -1); ts {
		c.response = time.Duration(response) * time.Second
	} else if n >= 0 {
		c.response = time.Duration(n) * time.Second
	}
	c.startup = time.Duration(number("default_startup_timeout", 120)) * time.Second
	c.unregister = time.Duration(number("unregister_model_timeout", 120)) * time.Second
	c.gpus = number("number_of_gpu", -1)
	if c.metricInterval = time.Duration(number("metric_time_interval", 60)) * time.Second; c.metricInterval <= 0 {
		errs = append(errs, fmt.Errorf("metric_time_interval is %q, want seconds", c.values["metric_time_interval"]))
	}
	c.noSystem = c.truth("disable_system_metrics", false)
	c.rawInput = !c.truth("decode_input_request", true)
	c.handler = c.values["default_service_handler"]
	c.cors = [3]string{c.values["cors_allowed_origin"], c.values["cors_allowed_methods"], c.values["cors_allowed_headers"]}
	c.key, c.cert = c.values["private_key_file"], c.values["certificate_file"]
	c.keystore, c.keystorePass = c.values["keystore"], cmp.Or(c.values["keystore_pass"], "changeit")
	if kind := c.values["keystore_type"]; c.keystore != "" && kind != "" && !strings.EqualFold(kind, "PKCS12") && !strings.EqualFold(kind, "JKS") {
		errs = append(errs, fmt.Errorf("keystore_type is %q, want PKCS12 or JKS (keytool -importkeystore -deststoretype PKCS12 converts others)", kind))
	}
	c.install = ts && c.truth("install_py_dep_per_model", false)
	if text := c.values["models"]; text != "" && ts {
		if err := json.Unmarshal([]byte(text), &c.models); err != nil {
			errs = append(errs, fmt.Errorf("models: %w", err))
		}
	}
	c.batching = c.values["batching"]
	if text := c.values["blacklist_env_vars"]; text != "" {
		var err error
		if c.hidden, err = regexp.Compile("^(?:" + text + ")$"); err != nil {
			errs = append(errs, fmt.Errorf("blacklist_env_vars: %w", err))
		}
	}
	for item := range strings.SplitSeq(c.values["allowed_urls"], ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		p, err := regexp.Compile("^(?i:" + item + ")$")
		if err != nil {
			errs = append(errs, fmt.Errorf("allowed_urls: %w", err))
			continue
		}
		c.allowed = append(c.allowed, p)
	}
	if ts {
		c.metrics = address("metrics_address", "http://127.0.0.1:8082", 8082, 8445)
		grpc := func(name string, port int) modelServerAddress {
			return modelServerAddress{text: name, host: cmp.Or(c.values["grpc_"+name+"_address"], "127.0.0.1"), port: number("grpc_"+name+"_port", port)}
		}
		c.grpcInference, c.grpcManagement = grpc("inference", 7070), grpc("management", 7071)
		c.envelope, c.anyImage = c.values["service_envelope"], !c.truth("limit_max_image_pixels", true)
		c.modelAPI, c.noTokens = c.truth("enable_model_api", false), c.truth("disable_token_authorization", false)
		c.openInference = c.truth("ts_open_inference_protocol", false)
		c.snapshot = c.values["model_snapshot"]
		minutes, err := strconv.ParseFloat(cmp.Or(c.values["token_expiration_min"], "60"), 64)
		if err != nil || !(minutes > 0 && minutes < 1e9) {
			errs = append(errs, fmt.Errorf("token_expiration_min is %q, want minutes", c.values["token_expiration_min"]))
		}
		c.tokenLife = time.Duration(minutes * float64(time.Minute))
		switch mode := strings.ToLower(cmp.Or(c.values["metrics_mode"], "log")); mode {
		case "log":
		case "prometheus":
			c.showMetrics = true
		case "legacy":
			c.showMetrics, c.onlyMetrics = true, modelserver.LegacyFamilies
		default:
			errs = append(errs, fmt.Errorf("metrics_mode is %q, want log, prometheus or legacy", mode))
		}
		if c.workers < 0 {
			errs = append(errs, errors.New("default_workers_per_model is negative"))
		}
	}
	c.startWorkers = c.workers
	if c.startWorkers <= 0 {
		c.startWorkers = runtime.GOMAXPROCS(0)
	}
	var all []error
	for _, err := range errs {
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", said("Invalid configuration"), err))
		}
	}
	return errors.Join(all...)
}

// truth returns a value that is true or false.
func (c *modelServerConfig) truth(key string, other bool) bool {
	text, ok := c.values[key]
	if !ok || text == "" {
		return other
	}
	return strings.EqualFold(strings.TrimSpace(text), "true")
}

// unknown returns the keys that nobody knows.
func (c *modelServerConfig) unknown() []string {
	known := modelServerKeys()
	var list []string
	for key := range c.values {
		if !slices.Contains(known, key) {
			list = append(list, key)
		}
	}
	slices.Sort(list)
	return list
}

// parseAddress reads http://host[:port], https://host[:port] or unix:/path.
func parseAddress(text string, plain, secure int) (modelServerAddress, error) {
	a := modelServerAddress{text: text}
	text = strings.TrimSpace(text)
	if len(text) > 5 && strings.EqualFold(text[:5], "unix:") {
		path := "/" + strings.TrimLeft(text[5:], "/")
		a.host = unixPrefix + filepath.Clean(path)
		return a, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Path != "" && u.Path != "/" {
		return a, said("Invalid binding address: " + text)
	}
	switch strings.ToLower(u.Scheme) {
	case "http":
		a.port = plain
	case "https":
		a.port, a.tls = secure, true
	default:
		return a, said("Invalid binding address: " + text)
	}
	a.host = u.Hostname()
	if p := u.Port(); p != "" {
		n, err := strconv.Atoi(p)
		if err != nil || n > 65535 {
			return a, said("Invalid port number: " + text)
		}
		a.port = n
	}
	return a, nil
}

// open reports whether an address can be reached from other machines.
func (a modelServerAddress) open() bool {
	if strings.HasPrefix(a.host, unixPrefix) || a.host == "localhost" {
		return false
	}
	ip := net.ParseIP(a.host)
	return ip == nil || !ip.IsLoopback()
}

// archiveConfig returns the configuration for --model-server.
func archiveConfig(dialect, file string) (*modelServerConfig, error) {
	for _, d := range []modelstore.Dialect{modelstore.MMS, modelstore.TorchServe} {
		if d.String() == dialect {
			return newModelServerConfig(d, file, false, map[string]string{}, os.Environ())
		}
	}
	return nil, fmt.Errorf("got %q, want mms or torchserve", dialect)
}
