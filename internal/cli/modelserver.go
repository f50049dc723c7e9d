package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"shoal/internal/backend/python"
	"shoal/internal/engine"
	"shoal/internal/modelstore"
	"shoal/internal/protocol/grpcserver"
	"shoal/internal/protocol/httpserver"
	"shoal/internal/protocol/modelserver"
	"shoal/internal/tempdir"
)

// A modelServer is the part of a server that speaks the dialect of Multi Model
// Server or TorchServe.
type modelServer struct {
	config *modelServerConfig
	store  *modelstore.Store
	server *modelserver.Server
	keys   *modelserver.Keys
	save   func(kind string) // writes a snapshot; nil for none
	ready  atomic.Bool       // the models of the start are registered
	logs   *modelServerLogs
	meter  *modelserver.Meter // nil when nobody wants metrics
	stop   chan struct{}      // closed when the server ends
	work   sync.WaitGroup

	selfSigned sync.Once // makes the two below, for https without a certificate
	ownCert    tls.Certificate
	ownCertErr error
}

// environment returns the variables for workers.
func (c *modelServerConfig) environment(env []string) []string {
	if c == nil || c.hidden == nil {
		return env
	}
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return c.hidden.MatchString(name)
	})
}

// openModelServer makes the model server of a configuration. It serves nothing yet.
func openModelServer(c *modelServerConfig, e *engine.Engine, l *life, workers *python.Backend, temp *tempdir.Dir) (*modelServer, error) {
	m := &modelServer{config: c, logs: c.logs, stop: make(chan struct{})}
	dir, err := temp.Path()
	if err != nil {
		return nil, err
	}
	gpus := workers.GPUs()
	if c.gpus >= 0 {
		gpus = min(gpus, c.gpus)
	}
	if c.showMetrics || m.logs.metrics != nil {
		m.meter = modelserver.NewMeter(modelserver.MeterOptions{TorchServe: c.dialect == modelstore.TorchServe, Log: lines(m.logs.metrics), Only: c.onlyMetrics})
	}
	var install func(ctx context.Context, dir, requirements string) error
	if c.install {
		install = installRequirements(cmp.Or(c.python, "python3"))
	}
	if m.store, err = modelstore.Open(modelstore.Options{
		Models: c.models, Install: install,
		Dialect: c.dialect, Engine: e, Folder: c.store, Temp: dir, DefaultHandler: c.handler, Workers: c.workers, QueueSize: c.queueSize,
		ResponseTimeout: c.response, StartupTimeout: c.startup, UnregisterTimeout: c.unregister, MaxResponseSize: c.maxResponse,
		RawInput: c.rawInput, Envelope: c.envelope, AnyImageSize: c.anyImage, GPUs: gpus, Allowed: c.allowed, Log: l.log,
		Metrics: m.logs.modelMetrics != nil || c.showMetrics, Loaded: m.workerLoaded, Changed: func() {
			if m.save != nil && m.ready.Load() {
				m.save("snapshot")
			}
		},
	}); err != nil {
		return nil, err
	}
	opt := modelserver.Options{
		Engine: e, Store: m.store, MaxRequestSize: c.maxRequest, Memory: l.memory,
		AllowOrigin: c.cors[0], AllowMethods: c.cors[1], AllowHeaders: c.cors[2],
		ModelAPI: c.modelAPI, OpenInference: c.openInference, Access: lines(m.logs.accesses), Log: l.log,
		Meter: m.meter, ShowMetrics: c.showMetrics,
	}
	if c.dialect == modelstore.TorchServe && !c.noTokens {
		path, err := filepath.Abs("key_file.json")
		if err == nil {
			m.keys, err = modelserver.NewKeys(path, c.tokenLife)
		}
		if err != nil {
			m.store.Close()
			return nil, fmt.Errorf("write the file with the keys of clients: %w; --disable-token-auth serves without keys", err)
		}
		opt.Keys = m.keys
		l.log.Info("clients need the keys in key_file.json", "file", path)
	}
	m.server = modelserver.New(opt)
	if m.meter != nil && !c.noSystem {
		m.work.Go(m.watchSystem)
	}
	if !c.noSnapshots {
		m.save = m.snapshots(c.snapshots, l.log)
	}
	if keys := c.unknown(); len(keys) > 0 {
		l.log.Warn("the configuration has keys that are not known", "keys", strings.Join(keys, ", "))
	}
	if c.management.open() {
		l.log.Warn("the management API can be reached from other machines: whoever reaches it can run code here", "address", c.management.text)
	}
	return m, nil
}

// close ends what the model server has started. Nothing is served any more.
func (m *modelServer) close() {
	if m.save != nil && m.ready.Load() {
		m.save("shutdown")
	}
	close(m.stop)
	m.work.Wait()
	m.store.Close()
	if m.keys != nil {
		m.keys.Remove()
	}
}

// workerLoaded records how long a worker took to load its model.
func (m *modelServer) workerLoaded(name string, took time.Duration) {
	if m.meter != nil {
		m.meter.WorkerLoaded(name, took)
	}
}

// watchSystem records the state of the machine now and then.
func (m *modelServer) watchSystem() {
	tick := time.NewTicker(m.config.metricInterval)
	defer tick.Stop()
	for {
		m.meter.System()
		select {
		case <-tick.C:
		case <-m.stop:
			return
		}
	}
}

// A modelListener is an endpoint of a model server.
type modelListener struct {
	name string
	at   modelServerAddress
	apis modelserver.API
	grpc bool
}

// listeners returns the endpoints: APIs with the same address share one.
func (m *modelServer) listeners() []modelListener {
	c := m.config
	list := []modelListener{{"inference", c.inference, modelserver.Inference, false}}
	add := func(name string, at modelServerAddress, api modelserver.API) {
		for i := range list {
			if same := list[i].at; same.host == at.host && same.port == at.port && (at.port != 0 || strings.HasPrefix(at.host, unixPrefix)) {
				list[i].apis |= api
				return
			}
		}
		list = append(list, modelListener{name, at, api, false})
	}
	add("management", c.management, modelserver.Management)
	if c.dialect == modelstore.TorchServe {
		add("model_metrics", c.metrics, modelserver.Metrics)
		list = append(list, modelListener{"grpc_inference", c.grpcInference, modelserver.Inference, true},
			modelListener{"grpc_management", c.grpcManagement, modelserver.Management, true})
	}
	return list
}

// endpoint returns where a listener listens.
func (ml *modelListener) endpoint() endpoint {
	key := strings.TrimPrefix(ml.name, "model_") + "_address"
	if ml.grpc {
		return endpoint{protocol: ml.name, address: ml.at.host, port: ml.at.port, addrFlag: key, portFlag: ml.name + "_port"}
	}
	return endpoint{protocol: ml.name, address: ml.at.host, port: ml.at.port, addrFlag: key, portFlag: key}
}

// start serves a listener.
func (m *modelServer) start(f *serveFlags, ml modelListener, l *life, ln net.Listener) (service, error) {
	if ml.at.tls {
		cert, err := m.certificate()
		if err != nil {
			_ = ln.Close()
			return service{}, err
		}
		if m.ownCert.PrivateKey != nil {
			l.log.Warn("https with a certificate that the server has made for itself; name one with private_key_file and certificate_file, or keystore", "listener", ml.name)
		}
		ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	}
	if ml.grpc {
		g := m.server.StartGRPC(ml.apis, grpcserver.Options{
			MaxReceive: int(m.config.maxRequest), MaxSend: math.MaxInt32, MaxConnections: f.grpc.maxConnections, MaxStreams: uint32(f.grpc.maxStreams),
			MaxUnpacked: m.config.maxRequest, MaxRatio: int64(f.memory.ratio), Memory: l.memory, Rejects: f.rejects, Access: f.access, Log: l.log,
		}, ln)
		return service{ml.name, g.Close, g.InFlight}, nil
	}
	o := modelserver.HTTP(httpserver.Options{
		Rejects: f.rejects, Access: f.access, Log: l.log, Memory: l.memory, MaxRatio: int64(f.memory.ratio), MaxConnections: f.http.maxConnections,
		IdleTimeout: seconds(f.http.idleTimeout), HeaderTimeout: seconds(f.http.headerTimeout), StallTimeout: seconds(f.http.bodyTimeout),
	}, m.config.maxRequest)
	o.MaxConnections = connections(o.MaxConnections, o.ConnMemory(), l.memory.Budget())
	s, err := httpserver.Start(o, m.server.Dialect(ml.apis), ln)
	if err != nil {
		return service{}, err
	}
	return service{ml.name, s.Close, s.InFlight}, nil
}

// installRequirements returns what installs the packages that an archive asks for
// into its folder.
func installRequirements(interpreter string) func(ctx context.Context, dir, requirements string) error {
	if info, err := os.Stat(interpreter); err == nil && info.IsDir() {
		interpreter = filepath.Join(interpreter, "bin", "python3")
	}
	return func(ctx context.Context, dir, requirements string) error {
		cmd := exec.CommandContext(ctx, interpreter, "-m", "pip", "install", "--disable-pip-version-check", "-U", "-t", dir, "-r", requirements)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", cmd, err, out[max(len(out)-2000, 0):])
		}
		return nil
	}
}

// load registers the models of the start, side by side. Failures are logged.
func (m *modelServer) load(ctx context.Context, log *slog.Logger) {
	var wg sync.WaitGroup
	for _, r := range m.startup(log) {
		wg.Go(func() {
			if _, err := m.store.Register(ctx, r); err != nil {
				log.Error("failed to load model", "url", r.URL, "err", err)
			}
		})
	}
	wg.Wait()
}

// startup returns the models of the start.
func (m *modelServer) startup(log *slog.Logger) []modelstore.Registration {
	c := m.config
	if c.snapshot != "" {
		list, err := modelstore.ParseSnapshot(c.snapshot)
		if err != nil {
			log.Error("the snapshot cannot be read", "err", err)
		}
		return list
	}
	var list []modelstore.Registration
	add := func(name, url string) {
		workers := c.startWorkers
		list = append(list, modelstore.Registration{URL: url, HasURL: true, Name: name, InitialWorkers: &workers, Synchronous: true, Startup: true})
	}
	switch load := strings.TrimSpace(c.load); {
	case load == "":
	case strings.EqualFold(load, "all"):
		files, err := os.ReadDir(c.store)
		if err != nil {
			log.Error("the model store cannot be read", "err", err)
		}
		for _, f := range files {
			name := f.Name()
			if strings.HasPrefix(name, ".") {
				continue
			}
			ext := path.Ext(name)
			if f.IsDir() || ext == ".mar" || ext == ".model" || c.dialect == modelstore.TorchServe && strings.HasSuffix(name, ".tar.gz") {
				add("", name)
			}
		}
	default:
		for item := range strings.SplitSeq(load, ",") {
			if item = strings.TrimSpace(item); item == "" {
				continue
			}
			name, url, ok := strings.Cut(item, "=")
			if !ok {
				name, url = "", item
			}
			add(name, url)
		}
	}
	return list
}

// loadModelServer registers the models of the start, unless a signal comes first,
// and says that the server has started.
func (f *serveFlags) loadModelServer(l *life, stdout io.Writer) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-l.asked:
			cancel()
		case <-ctx.Done():
		}
	}()
	f.registry.load(ctx, l.log)
	if !l.stopping() {
		f.registry.ready.Store(true)
		if f.registry.save != nil {
			f.registry.save("startup")
		}
		fmt.Fprintln(stdout, "Model server started.")
	}
}
