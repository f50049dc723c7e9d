package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"shoal/internal/backend"
	"shoal/internal/backend/cuda"
	"shoal/internal/backend/example/identity"
	"shoal/internal/backend/example/repeat"
	"shoal/internal/backend/example/square"
	"shoal/internal/backend/onnx"
	"shoal/internal/backend/onnx/library"
	"shoal/internal/backend/python"
	"shoal/internal/cli/command"
	"shoal/internal/demo"
	"shoal/internal/engine"
	"shoal/internal/inflight"
	"shoal/internal/reject"
	"shoal/internal/repository"
	"shoal/internal/shm"
	"shoal/internal/tempdir"
)

func newServe(def serveDefaults) *cobra.Command { return serveCommand(&serveFlags{}, def) }

// ServeWith runs "shoal serve" with the arguments, with backends that wrap returns in
// place of the usual ones. Benchmarks use it.
func ServeWith(wrap func(backend.Backend) backend.Backend, args []string, stdout, stderr io.Writer) int {
	cmd := alone(serveCommand(&serveFlags{wrap: wrap}, shoalDefaults), "shoal serve")
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	if err := cmd.Execute(); err != nil {
		return report(stderr, "shoal", err)
	}
	return exitDone
}

func serveCommand(f *serveFlags, def serveDefaults) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the models of a repository over HTTP and gRPC",
		Long: `Serve loads every model of the repositories, answers the KServe v2 protocol over
HTTP (port 8000) and gRPC (port 8001), and gives metrics on port 8002. It runs
until SIGTERM or SIGINT, then finishes what is in flight; a second signal stops
it at once.`,
		Example: `  shoal serve --demo
  shoal serve --model-repository ./models
  shoal serve --model resnet.py --reload
  shoal serve --model-repository ./models --http-port 0 --allow-grpc=false`,
		Args: onlyFlags,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return command.Misused(cmd, err)
			}
			f.unused = withoutEffect(cmd.Flags())
			setTunables()
			return serve(f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.add(cmd, def)
	cmd.SetUsageFunc(command.GroupedUsage)
	cmd.SetFlagErrorFunc(command.FlagMisused)
	return cmd
}

// onlyFlags refuses arguments, and says by which flag they would be served.
func onlyFlags(cmd *cobra.Command, args []string) error {
	err := command.NoArgs(cmd, args)
	if err == nil {
		return nil
	}
	info, missing := os.Stat(args[0])
	switch {
	case fileBackends[filepath.Ext(args[0])] != "":
		return fmt.Errorf("%w; did you mean --model %s?", err, args[0])
	case missing != nil || info.IsDir():
		return fmt.Errorf("%w; did you mean --model-repository %s?", err, args[0])
	}
	return err
}

// serve runs the server until a signal ends it.
func serve(f *serveFlags, stdout, stderr io.Writer) error {
	begin := time.Now()
	out, err := startOutput(&f.log, stdout, stderr)
	if err != nil {
		return err
	}
	defer out.close()
	f.dropped, f.access = out.dropped, out.access
	log := out.log
	if f.modelServer != nil {
		logs, err := openModelServerLogs(f.modelServer.dialect, os.Getenv)
		if err != nil {
			log.Warn("logs in files are not written", "err", err)
		}
		defer logs.close()
		f.modelServer.logs, log = logs, logs.logger(log)
		f.modelServer.python = cmp.Or(f.python, os.Getenv(library.PythonVariable))
	}
	for _, u := range f.unused {
		log.Warn("a flag has no effect", "flag", u.flag, "reason", u.reason)
	}
	if n := tempdir.Sweep(); n > 0 {
		log.Info("removed the temporary files of servers that were killed", "folders", n)
	}
	var temp tempdir.Dir
	defer func() { _ = temp.Close() }() // the next start removes what is left
	if err := f.writeRepositories(&temp); err != nil {
		return err
	}
	if f.mps != "auto" && f.mps != "off" {
		return fmt.Errorf("--cuda-mps %s: want auto or off", f.mps)
	}
	backends, err := f.backends(log, temp.Path)
	if err != nil {
		return err
	}
	defer f.workers.Close()
	limiter, err := f.limiter()
	if err != nil {
		return err
	}
	hold, err := holdBatches()
	if err != nil {
		return err
	}
	cache, err := f.cache.cache()
	if err != nil {
		return err
	}
	var memory *shm.Registry
	if f.clientMemory {
		memory = shm.NewRegistry(f.maxRegions)
		memory.OpenCUDA = openCUDA()
		defer memory.Close()
	}
	endRecord, err := f.recordArrivals(log)
	if err != nil {
		return err
	}
	defer endRecord()
	tracer, err := f.trace.start(f.service, log)
	if err != nil {
		return err
	}
	defer tracer.Close()
	f.traceDropped = tracer.Dropped
	e := engine.New(engine.Options{
		Arrived:      f.tap.Arrived,
		SharedMemory: memory, LogSettings: out.settings, Cache: cache, Tracer: tracer,
		Name: f.id, Version: Version, Repositories: f.repositories, Namespaces: f.namespaces, Backends: backends,
		ConfigName: f.configName, NoAutoComplete: f.noAutoComplete || f.strictConfig,
		AllOrNothing: f.exitOnError, LooseReadiness: !f.strictReady, Limiter: limiter, Batching: f.policy, HoldBatches: hold, LoadThreads: f.loadThreads,
		TempDir: temp.Path, LoadRetries: f.loadRetries, Control: f.control.mode == controlExplicit, Startup: f.control.startup(),
		ComputeTimes: f.metrics.settings.Summaries, ResponseQueueSize: f.responseQueue, Log: log,
	})
	f.rejects = reject.New(e.Lookup, log)
	defer f.rejects.Close()
	life := startLife(log, seconds(f.preStop), seconds(f.exitTimeout), out.flush)
	defer life.end()
	life.memory = f.memory.pool()
	defer watchMemory(life.memory.Budget(), e.Trim)()
	if err := life.stopWith(f.stopWith); err != nil {
		return err
	}
	if f.modelServer != nil {
		if f.registry, err = openModelServer(f.modelServer, e, life, f.workers, &temp); err != nil {
			_ = life.stop(e) // the cause is more important
			return err
		}
		defer f.registry.close()
	}
	if err := f.startServices(life, e); err != nil {
		_ = life.stop(e) // the cause is more important
		return err
	}
	if f.serving != nil {
		f.serving()
	}
	err = life.load(e)
	if life.stopping() {
		return life.stop(e)
	}
	writeTable(out.stderr, e, f.log.json, log)
	if err != nil {
		_ = life.stop(e) // the cause is more important
		return f.unloaded(err)
	}
	if f.registry != nil {
		f.loadModelServer(life, out.stdout)
		if life.stopping() {
			return life.stop(e)
		}
	}
	if len(tried(e)) == 0 && f.control.mode != controlExplicit && f.registry == nil {
		log.Warn("nothing is served: " + f.advice())
	}
	log.Info("ready", "after", time.Since(begin).Round(time.Millisecond))
	if f.reload {
		end, err := f.startReload(e, log)
		if err != nil {
			_ = life.stop(e) // the cause is more important
			return err
		}
		defer end()
	}
	if f.control.mode == controlPoll {
		e.StartPolling(seconds(f.control.pollSeconds))
	}
	if f.demo && !f.http.secure.on() { // the request would need the certificate
		showDemo(out.stdout, life.addresses["http"])
	}
	return life.wait(e)
}

// unloaded is the last line of a server whose models did not load: the log above
// it has the causes.
func (f *serveFlags) unloaded(err error) error {
	failed, ok := errors.AsType[*engine.LoadError](err)
	if !ok {
		return err
	}
	if advice := f.advice(); advice != "" {
		return errors.New("--model-repository: " + advice)
	}
	if f.log.onScreen() {
		return errors.New(failed.Brief())
	}
	return err
}

// advice says why there is no model in the repositories and what would help;
// "" when one of them has folders that may be models.
func (f *serveFlags) advice() string {
	var list []string
	for _, root := range f.repositories {
		text := repository.Advice(root)
		if text == "" {
			return ""
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

// writeRepositories writes the repositories of --demo and --model.
func (f *serveFlags) writeRepositories(temp *tempdir.Dir) error {
	f.userRepositories = slices.Clone(f.repositories)
	if !f.demo && len(f.models) == 0 {
		return nil
	}
	dir, err := temp.Path()
	if err != nil {
		return fmt.Errorf("make a folder for temporary files: %w", err)
	}
	if f.demo {
		at := filepath.Join(dir, "demo")
		if err := demo.Write(at); err != nil {
			return fmt.Errorf("write the demo repository: %w", err)
		}
		f.repositories = append(f.repositories, at)
	}
	if len(f.models) > 0 {
		at := filepath.Join(dir, "models")
		if err := writeModels(at, f.models); err != nil {
			return err
		}
		f.repositories = append(f.repositories, at)
	}
	return nil
}

// holdVariable keeps the first requests of each batching model queued until
// there are that many. Triton's own tests, and tests written for Triton, use
// it.
const holdVariable = "TRITONSERVER_DELAY_SCHEDULER"

func holdBatches() (int, error) {
	text := os.Getenv(holdVariable)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("the environment variable %s is %q, want a whole number from 0 on", holdVariable, text)
	}
	return n, nil
}

// backends returns the server's backends. Temp is the folder for their temporary
// files.
func (f *serveFlags) backends(log *slog.Logger, temp func() (string, error)) ([]backend.Backend, error) {
	settings, err := f.backendSettings()
	if err != nil {
		return nil, err
	}
	limits, err := parseLoadLimits(f.loadLimits)
	if err != nil {
		return nil, err
	}
	cuda.LimitPinned(f.pinned)
	ort := onnx.New(onnx.Options{
		LoadLimits: limits, Receive: inflight.UseDirect,
		Library: func() (string, error) {
			return library.Find(library.Environment(f.library, os.Getenv).WithPython(f.python))
		},
		Config: mergeSettings(settings[""], settings["onnxruntime"]),
		Logger: log,
	})
	workers := python.New(python.Options{
		Python: cmp.Or(f.python, os.Getenv(library.PythonVariable)), Environ: f.modelServer.environment(os.Environ()), Cache: cacheFolder(),
		Spare:             filepath.Join(os.TempDir(), fmt.Sprintf("shoal-%d", os.Getuid())),
		Config:            mergeSettings(settings[""], settings["python"]),
		ResponseQueueSize: f.responseQueue,
		MPS:               f.mps == "auto", Temp: temp,
		Logger: log, Metrics: &f.userMetrics, HandlerMetrics: f.handlerMetric,
	})
	f.workers = workers
	all := []backend.Backend{identity.Backend{}, repeat.Backend{}, square.Backend{}, ort, workers}
	if f.wrap != nil {
		for i, b := range all {
			all[i] = f.wrap(b)
		}
	}
	return all, nil
}

// parseLoadLimits reads --model-load-gpu-limit: fractions by the number of a GPU.
func parseLoadLimits(list []string) (map[int]float64, error) {
	limits := make(map[int]float64)
	for _, text := range list {
		id, fraction, _ := strings.Cut(text, ":")
		gpu, err := strconv.Atoi(id)
		limit, failed := strconv.ParseFloat(fraction, 64)
		if err != nil || failed != nil || gpu < 0 || !(limit >= 0 && limit <= 1) {
			return nil, fmt.Errorf("--model-load-gpu-limit %s: want the number of a GPU and a fraction from 0 to 1, such as 0:0.8", text)
		}
		limits[gpu] = limit
	}
	return limits, nil
}

// cacheFolder returns the folder for unpacked files, "" when the user has none.
func cacheFolder() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "shoal")
}

// mergeSettings returns the settings for all backends, overridden by own.
func mergeSettings(all, own map[string]string) map[string]string {
	merged := make(map[string]string, len(all)+len(own))
	for _, m := range []map[string]string{all, own} {
		for k, v := range m {
			merged[k] = v
		}
	}
	return merged
}

// writeTable shows the state of every model; the log has the reasons.
func writeTable(w io.Writer, e *engine.Engine, json bool, log *slog.Logger) {
	if json {
		for _, m := range tried(e) {
			log.Info("model", "model", m.Name, "version", m.Version, "state", m.State, "reason", m.Reason)
		}
		return
	}
	models := tried(e)
	if len(models) == 0 {
		return
	}
	var table bytes.Buffer
	tw := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "MODEL\tVERSION\tSTATUS")
	for _, m := range models {
		version := "-"
		if m.Version != engine.NoVersion {
			version = fmt.Sprint(m.Version)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", m.Name, version, m.State)
	}
	_ = tw.Flush() // a buffer does not fail
	_, _ = w.Write(table.Bytes())
}

// tried returns the lines of the index without models that were never loaded.
func tried(e *engine.Engine) []engine.IndexEntry {
	return slices.DeleteFunc(e.Index(false), func(m engine.IndexEntry) bool { return m.State == "" })
}

// load loads the models, unless a signal comes first. It then returns by the
// deadline of the stop, even if a model is still loading.
func (l *life) load(e *engine.Engine) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- e.LoadAll(ctx) }()
	select {
	case err := <-done:
		return err
	case <-l.asked:
	}
	cancel()
	late := time.NewTimer(time.Until(l.deadline))
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C: // stop reports which models were still loading
		return errExitTimeout
	}
}
