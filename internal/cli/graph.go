package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"shoal/internal/cli/command"
	"shoal/internal/client"
	"shoal/internal/diagram"
	"shoal/internal/model/modelpb"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/repository"
)

// graphFlags are the flags of the graph command.
type graphFlags struct {
	url          string
	repositories []string
	interval     time.Duration
	format       string
	out          string
}

func newGraph() *cobra.Command {
	f := &graphFlags{}
	cmd := &cobra.Command{
		Use:   "graph MODEL [flags]",
		Short: "Draw an ensemble: its models, the tensors between them and where the time goes",
		Long: `Graph draws a model and the models that it is made of, with the types and shapes
of the tensors. From a running server, a Triton too, it also shows how long
requests are in each model: since the server started, or with --interval for a
while from now. The figures of a model are of all its requests, also those that
came another way.`,
		Example: `  shoal graph ocr -o ocr.svg              from the server on this machine
  shoal graph ocr --url gpu1:8000 --interval 10s -o ocr.svg
  shoal graph ocr --model-repository ./models --format mermaid`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return command.Misused(cmd, errors.New("name the model to draw"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			draw, err := f.drawer()
			if err != nil {
				return command.Misused(cmd, err)
			}
			ctx, cancel := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer cancel()
			g, err := f.graph(ctx, args[0])
			if err != nil {
				return err
			}
			if f.out != "" {
				return os.WriteFile(f.out, []byte(draw(g)), 0o644)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), draw(g))
			return err
		},
	}
	cmd.ValidArgsFunction = command.ModelNames(f.open)
	g := command.NewGroup(cmd, "What to draw")
	g.Text(&f.url, "url", defaultServer, "`URL` of a running server")
	g.Texts(&f.repositories, "model-repository", "`folder` of models to read instead of asking a server; may be given several times")
	g.Span(&f.interval, "interval", 0, "`time` to watch the server; 0 shows what it did since it started")
	g = command.NewGroup(cmd, "How to draw it")
	g.Text(&f.format, "format", "", "svg, dot or mermaid; by the name of the file, and otherwise svg")
	cmd.Flags().StringVarP(&f.out, "output", "o", "", "`file` to write; standard output when empty")
	g.Note("output")
	cmd.SetUsageFunc(command.GroupedUsage)
	cmd.SetFlagErrorFunc(command.FlagMisused)
	return cmd
}

// drawer returns what writes the graph in the format that is wanted.
func (f *graphFlags) drawer() (func(*diagram.Graph) string, error) {
	if f.interval < 0 || f.interval > 0 && f.repositories != nil {
		return nil, errors.New("--interval is a time to watch a server, and does not go with --model-repository")
	}
	format := f.format
	if format == "" {
		format = map[string]string{".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".mermaid": "mermaid"}[strings.ToLower(filepath.Ext(f.out))]
	}
	switch format {
	case "", "svg":
		return (*diagram.Graph).SVG, nil
	case "dot":
		return (*diagram.Graph).DOT, nil
	case "mermaid":
		return (*diagram.Graph).Mermaid, nil
	}
	return nil, fmt.Errorf("--format is %q, want svg, dot or mermaid", format)
}

// open returns the API of the running server.
func (f *graphFlags) open() (client.API, error) {
	address, err := client.ParseAddress(f.url, 8000)
	if err != nil {
		return nil, err
	}
	return client.OpenHTTP(client.Options{Address: address.Host}, address.Prefix), nil
}

// graph reads the model from the repositories or the server.
func (f *graphFlags) graph(ctx context.Context, name string) (*diagram.Graph, error) {
	if f.repositories != nil {
		return f.stored(name)
	}
	api, err := f.open()
	if err != nil {
		return nil, err
	}
	defer api.Close()
	cfg, err := api.Config(ctx, name, "")
	if err != nil {
		if errors.Is(err, client.ErrUnreachable) {
			err = fmt.Errorf("%w; name another server with --url, or --model-repository", err)
		}
		return nil, err
	}
	watched := watchedModels{api: api, before: make(map[string][]*pb.ModelStatistics), after: make(map[string][]*pb.ModelStatistics)}
	names := []string{name}
	for _, s := range cfg.GetEnsembleScheduling().GetStep() {
		names = append(names, s.ModelName)
	}
	if f.interval > 0 {
		watched.read(ctx, watched.before, names)
		select {
		case <-time.After(f.interval):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	watched.read(ctx, watched.after, names)
	part := func(name string, version int64) *modelpb.ModelConfig {
		text := ""
		if version > 0 {
			text = strconv.FormatInt(version, 10)
		}
		cfg, err := api.Config(ctx, name, text)
		if err != nil {
			return nil // it is drawn without shapes
		}
		return cfg
	}
	return diagram.New(cfg, part, watched.times), nil
}

// stored reads the model from the repositories. Models without a configuration are
// drawn without shapes.
func (f *graphFlags) stored(name string) (*diagram.Graph, error) {
	read := func(name string) (*modelpb.ModelConfig, error) {
		entry, err := repository.Set{Roots: f.repositories}.Find(name)
		if err != nil {
			return nil, err
		}
		cfg, err := entry.Config("")
		if err == nil && cfg.GetName() == "" {
			cfg.Name = name
		}
		return cfg, err
	}
	cfg, err := read(name)
	if err != nil {
		return nil, err
	}
	part := func(name string, _ int64) *modelpb.ModelConfig {
		cfg, err := read(name)
		if err != nil {
			return nil
		}
		return cfg
	}
	return diagram.New(cfg, part, func(string, int64) *diagram.Times { return nil }), nil
}

// watchedModels are the statistics of models at two times.
type watchedModels struct {
	api           client.API
	before, after map[string][]*pb.ModelStatistics
}

// read reads the statistics of the models into one of the maps. A model that is
// not loaded has none.
func (w *watchedModels) read(ctx context.Context, into map[string][]*pb.ModelStatistics, names []string) {
	for _, name := range names {
		if stats, err := w.api.Statistics(ctx, name, ""); err == nil {
			into[name] = stats
		}
	}
}

// times returns what a model did meanwhile; nil when it did nothing.
func (w *watchedModels) times(name string, version int64) *diagram.Times {
	var t diagram.Times
	var total, queue, compute uint64
	add := func(list []*pb.ModelStatistics, sign uint64) {
		for _, s := range list {
			if version > 0 && s.GetVersion() != strconv.FormatInt(version, 10) {
				continue
			}
			is := s.GetInferenceStats()
			t.Requests += sign * is.GetSuccess().GetCount()
			total += sign * is.GetSuccess().GetNs()
			queue += sign * is.GetQueue().GetNs()
			compute += sign * (is.GetComputeInput().GetNs() + is.GetComputeInfer().GetNs() + is.GetComputeOutput().GetNs())
		}
	}
	add(w.after[name], 1)
	add(w.before[name], ^uint64(0))            // -1
	if t.Requests == 0 || t.Requests > 1<<62 { // it was loaded anew meanwhile
		return nil
	}
	mean := func(ns uint64) time.Duration { return time.Duration(ns / t.Requests) }
	t.Total, t.Queue, t.Compute = mean(total), mean(queue), mean(compute)
	return &t
}
