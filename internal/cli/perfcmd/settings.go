package perfcmd

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"shoal/internal/client"
	"shoal/internal/perf"
	"shoal/internal/perf/drive"
	"shoal/internal/perf/input"
	"shoal/internal/perf/result"
	"shoal/internal/tensor"
)

// settings turns the flags into perf's settings. It reports all errors
// together.
func (f *flags) settings(cmd *cobra.Command) (*perf.Settings, error) {
	set := cmd.Flags()
	b := &builder{flags: f, given: set.Changed}
	s := &perf.Settings{
		Tool: "shoal " + f.product, Command: withoutSecrets(os.Args), Seed: f.seed,
		Model: f.model, Version: f.version, Streaming: f.streaming, ServerPID: f.serverPID, Export: f.export != "",
	}
	b.target(s)
	b.load(s)
	b.plan(s)
	b.data(s)
	s.Sequences = b.sequences()
	s.Sync = f.sync
	b.stats(s)
	b.replay(s)
	b.metrics(s)
	if f.composing != "" {
		var err error
		if s.Composing, err = perf.ParseParts(f.composing); err != nil {
			b.add(fmt.Errorf("--bls-composing-models: %w", err))
		}
	}
	return s, errors.Join(b.errs...)
}

// A builder collects the errors of the flags.
type builder struct {
	flags *flags
	given func(name string) bool
	errs  []error
}

func (b *builder) wrong(is bool, format string, args ...any) {
	if is {
		b.errs = append(b.errs, fmt.Errorf(format, args...))
	}
}

func (b *builder) add(err error) {
	if err != nil {
		b.errs = append(b.errs, err)
	}
}

// choice checks that a flag's value is one of all.
func (b *builder) choice(name, value string, all ...string) {
	for _, c := range all {
		if c == value {
			return
		}
	}
	b.wrong(true, "--%s is %q, want %s", name, value, strings.Join(all, " or "))
}

var serviceReasons = map[string]string{
	"triton_c_api": "runs a Triton library inside the tool; start a server and measure that",
	"tfserving":    "is not spoken",
	"openai":       "is not spoken",
	"dynamic_grpc": "is not spoken",
}

func (b *builder) target(s *perf.Settings) {
	f := b.flags
	if reason, known := serviceReasons[f.service]; known {
		b.wrong(true, "--service-kind=%s %s", f.service, reason)
	} else {
		b.choice("service-kind", f.service, perf.Triton, perf.TorchServe)
	}
	s.Service = f.service
	s.Protocol = strings.ToLower(f.protocol)
	b.choice("protocol", s.Protocol, result.HTTP, result.GRPC)
	var err error
	s.Address, err = f.address(s.Protocol)
	b.add(err)
	s.TLS, err = f.tls.config(s.Protocol, s.Address.TLS)
	b.add(err)
	for _, line := range f.headers {
		h, err := client.ParseHeader(line)
		b.add(inFlag("header", err))
		s.Header = append(s.Header, h)
	}
	b.choice("grpc-compression-algorithm", f.compression, "none", "gzip", "deflate")
	if f.compression != "none" {
		s.Compression = f.compression
	}
	b.wrong(f.shared == "cuda", "--shared-memory=cuda is not supported: it hands over memory of a GPU; system shares memory of this machine")
	if f.shared != "cuda" {
		b.choice("shared-memory", f.shared, "none", "system")
	}
	s.SharedMemory, s.OutputSize = f.shared == "system", f.outputSize
	s.Trace = f.trace.settings(b.given)
}

func (b *builder) load(s *perf.Settings) {
	f := b.flags
	modes := 0
	for _, name := range []string{"concurrency-range", "request-rate-range", "request-intervals", "periodic-concurrency-range", "callers"} {
		if b.given(name) {
			modes++
		}
	}
	b.wrong(modes > 1, "--concurrency-range, --request-rate-range, --request-intervals and --periodic-concurrency-range are different loads: give one of them")
	b.choice("request-distribution", f.distribution, result.Constant, result.Poisson)
	var err error
	switch {
	case f.capacity != "" && f.rate == "":
		s.Mode, s.Distribution = result.RequestRate, f.distribution
		s.Range = perf.Range{Single: true} // the search begins with the rate of one caller
	case f.rate != "":
		s.Mode, s.Distribution = result.RequestRate, f.distribution
		s.Range, err = perf.ParseRange(f.rate, false)
		err = inFlag("request-rate-range", err)
	case f.intervals != "":
		s.Mode, s.Distribution = result.Intervals, result.File
		s.Intervals, err = readIntervals(f.intervals)
		s.Range = perf.RateOf(s.Intervals)
	case f.periodic != "":
		s.Mode = result.Periodic
		s.Periodic, s.Range, err = parsePeriodic(f.periodic, f.period)
	default:
		text := f.concurrency
		if f.callers > 0 {
			text = strconv.Itoa(f.callers)
		}
		if f.dynamic {
			text = fmt.Sprintf("%d:%d", max(1, f.callers), f.maxCallers)
		}
		s.Mode = result.Concurrency
		s.Range, err = perf.ParseRange(text, true)
		err = inFlag("concurrency-range", err)
	}
	b.add(err)
	b.wrong(s.Mode == result.Concurrency && s.Range.Start > maxCallers, "--concurrency-range starts at %.0f, want %d or less", s.Range.Start, maxCallers)
}

// inFlag adds the flag to an error.
func inFlag(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--%s: %w", name, err)
}

// maxCallers is more connections than a machine has ports for.
const maxCallers = 60000

func readIntervals(path string) ([]time.Duration, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--request-intervals: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	gaps, err := drive.ParseIntervals(file)
	if err != nil {
		return nil, fmt.Errorf("--request-intervals %s: %w", path, err)
	}
	return gaps, nil
}

func (b *builder) plan(s *perf.Settings) {
	f := b.flags
	b.choice("measurement-mode", f.mode, result.TimeWindows, result.CountWindows)
	b.choice("latency-clock", f.clock, result.ScheduleClock, result.SendClock)
	b.wrong(f.async && f.sync, "--async and --sync are opposites: give one of them")
	b.wrong(f.threshold < 0, "--latency-threshold is %v, want 0 or more", f.threshold)
	b.wrong(b.given("percentile") && f.percentile < 1 && f.percentile != -1, "--percentile is %d, want 1 to 99", f.percentile)
	b.wrong(f.maxThreads < 1, "--max-threads is %d, want 1 or more", f.maxThreads)
	b.wrong(f.period < 1 && f.periodic == "", "--request-period is %d, want 1 or more", f.period)
	b.wrong(f.requestCount < 0 || f.warmup < 0, "--request-count and --warmup-request-count count from 0 up")
	s.Plan = result.Plan{
		BatchSize: f.batch, Mode: f.mode, Window: time.Duration(f.interval) * time.Millisecond, WindowCount: f.windowCount,
		RequestCount: f.requestCount, Warmup: f.warmup, Stability: f.stability / 100, MaxTrials: f.trials,
		Percentile: max(0, f.percentile), LatencyLimit: time.Duration(f.threshold * float64(time.Millisecond)),
		Async: f.async || f.streaming, BinarySearch: f.binarySearch, MaxOutstanding: f.maxOutstanding,
		Ranged: !s.Range.Single && s.Range.End != 1,
	}
	if s.Plan.Ranged {
		s.Plan.Limit = s.Range.End
	}
	if (result.Load{Mode: s.Mode}).Open() {
		s.Plan.LatencyClock = f.clock
	}
	if s.Mode == result.Periodic {
		s.Plan.RequestCount = int64(s.Periodic.End)
	}
	if s.Plan.RequestCount > 0 {
		s.Plan.Mode = result.RequestCount
	}
}

func (b *builder) data(s *perf.Settings) {
	f := b.flags
	b.choice("random-style", f.randomStyle, "typed", "bytes")
	b.choice("input-tensor-format", f.inFormat, "binary", "json")
	b.choice("output-tensor-format", f.outFormat, "binary", "json")
	b.wrong(f.stringLength < 0, "--string-length is %d, want 0 or more", f.stringLength)
	if f.inFormat == "json" {
		s.InFormat = client.JSON
	}
	if f.outFormat == "json" {
		s.OutFormat = client.JSON
	}
	s.Input = input.Options{
		Sources: f.data, Shapes: make(map[string]tensor.Shape), StringLength: f.stringLength,
		RawRandom: f.randomStyle == "bytes", Seed: f.seed,
	}
	if f.zero {
		s.Input.Sources = []string{"zero"}
	}
	if f.folder != "" {
		s.Input.Sources = []string{f.folder}
	}
	if b.given("string-data") {
		s.Input.StringData = &f.stringData
	}
	for _, text := range f.shapes {
		name, shape, err := input.ParseShape(text)
		b.add(inFlag("shape", err))
		s.Input.Shapes[name] = shape
	}
	for _, text := range f.parameters {
		p, err := parseParameter(text)
		b.add(err)
		s.Parameters = append(s.Parameters, p)
	}
}

// parseParameter reads name:value:type. The value may have colons in it.
func parseParameter(text string) (client.Parameter, error) {
	wrong := fmt.Errorf("--request-parameter %q is not name:value:type, where type is bool, int, float or string", text)
	first, last := strings.IndexByte(text, ':'), strings.LastIndexByte(text, ':')
	if first < 1 || first == last {
		return client.Parameter{}, wrong
	}
	p := client.Parameter{Name: text[:first]}
	value := text[first+1 : last]
	var err error
	switch strings.ToLower(text[last+1:]) {
	case "bool":
		p.Value, err = strconv.ParseBool(strings.ToLower(value))
	case "int":
		p.Value, err = strconv.ParseInt(value, 10, 64)
	case "float", "double":
		p.Value, err = strconv.ParseFloat(value, 64)
	case "string":
		p.Value = value
	default:
		err = wrong
	}
	if err != nil {
		return client.Parameter{}, wrong
	}
	return p, nil
}

func (b *builder) metrics(s *perf.Settings) {
	f := b.flags
	b.wrong(!f.metrics && (b.given("metrics-url") || b.given("metrics-interval")), "--metrics-url and --metrics-interval go with --collect-metrics")
	b.wrong(f.metricsInterval < 1, "--metrics-interval is %d, want 1 or more", f.metricsInterval)
	if f.metrics {
		s.MetricsURL = perf.MetricsURL(f.metricsURL, s.Address.Host)
		s.MetricsInterval = time.Duration(f.metricsInterval) * time.Millisecond
	}
}

// address returns where the server is.
func (f *flags) address(protocol string) (client.Address, error) {
	port := 8000
	switch {
	case protocol == result.GRPC:
		port = 8001
	case f.service == perf.TorchServe:
		port = 8080
	}
	return client.ParseAddress(cmp.Or(f.url, "localhost"), port)
}

// api returns the API of the server, for names of models.
func (f *flags) api() (client.API, error) {
	protocol := strings.ToLower(f.protocol)
	at, err := f.address(protocol)
	if err != nil {
		return nil, err
	}
	o := client.Options{Address: at.Host}
	if o.TLS, err = f.tls.config(protocol, at.TLS); err != nil {
		return nil, err
	}
	if protocol == result.GRPC {
		return client.OpenGRPC(o)
	}
	return client.OpenHTTP(o, at.Prefix), nil
}
