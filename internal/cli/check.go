package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"shoal/internal/cli/command"
	"shoal/internal/engine"
	"shoal/internal/model"
	"shoal/internal/repository"
	"shoal/internal/status"
)

// checkFlags are the flags of the check command.
type checkFlags struct {
	serve serveFlags // those that say how models are loaded
	json  bool
	run   bool
}

func newCheck() *cobra.Command {
	f := &checkFlags{}
	cmd := &cobra.Command{
		Use:   "check REPOSITORY... [flags]",
		Short: "List what is wrong with the models of a repository, without serving them",
		Long: `Check loads the models of the repositories one after another, as serve does, and
frees them again: configurations, model files against them, labels, warm-up,
Python code, the steps of ensembles. It lists all faults by file and line, and
what serve would warn about.

Exit codes: 0 all models load; 1 some do not.`,
		Example: `  shoal check ./models
  shoal check ./models --run --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return command.Misused(cmd, errors.New("name the repository to check"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.check(cmd.Context(), args, cmd.OutOrStdout())
		},
	}
	g := command.NewGroup(cmd, "What to do")
	g.Toggle(&f.run, "run", "send each model a request of zeros, too")
	g.Toggle(&f.json, "json", "print the result as JSON")
	f.serve.addLoading(command.NewGroup(cmd, "How models are loaded"))
	cmd.SetUsageFunc(command.GroupedUsage)
	cmd.SetFlagErrorFunc(command.FlagMisused)
	return cmd
}

// A checkedModel is the result for one model.
type checkedModel struct {
	Name     string         `json:"name"`
	Folder   string         `json:"folder"`
	Faults   []checkedFault `json:"faults"`
	Warnings []string       `json:"warnings"`
}

// A checkedFault is one fault of a model.
type checkedFault struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`   // from 1 on
	Column  int    `json:"column,omitempty"` // likewise
	Version string `json:"version,omitempty"`
	Text    string `json:"text"`
}

// check checks the repositories and prints the result.
func (f *checkFlags) check(ctx context.Context, roots []string, stdout io.Writer) error {
	ctx, cancel := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer cancel()
	list, err := f.checkAll(ctx, roots)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		f.serve.repositories = roots
		return errors.New(f.serve.advice())
	}
	bad := 0
	for _, m := range list {
		if len(m.Faults) > 0 {
			bad++
		}
	}
	if f.json {
		out := json.NewEncoder(stdout)
		out.SetIndent("", "  ")
		err = out.Encode(struct {
			OK     bool           `json:"ok"`
			Models []checkedModel `json:"models"`
			GPUs   []string       `json:"gpus,omitempty"`
		}{bad == 0, list, gpuNames()})
	} else {
		text := checkText(list, bad)
		if gpus := gpuNames(); len(gpus) > 0 {
			text += "GPUs: " + strings.Join(gpus, ", ") + "\n"
		}
		_, err = io.WriteString(stdout, text)
	}
	if err == nil && bad > 0 {
		err = &command.ExitError{Code: exitFailed}
	}
	return err
}

// checkText is the result for people, a line for each fault as compilers print
// them.
func checkText(list []checkedModel, bad int) string {
	var b strings.Builder
	for _, m := range list {
		for _, x := range m.Faults {
			at := x.File
			if x.Line > 0 {
				at += ":" + strconv.Itoa(x.Line)
			}
			if x.Column > 0 {
				at += ":" + strconv.Itoa(x.Column)
			}
			who := "model " + m.Name
			if x.Version != "" {
				who += " version " + x.Version
			}
			fmt.Fprintf(&b, "%s: %s: %s\n", at, who, x.Text)
		}
		for _, text := range m.Warnings {
			fmt.Fprintf(&b, "%s: model %s: warning: %s\n", m.Folder, m.Name, text)
		}
	}
	fmt.Fprintf(&b, "%d of %d models load\n", len(list)-bad, len(list))
	return b.String()
}

// checkAll loads each model in turn.
func (f *checkFlags) checkAll(ctx context.Context, roots []string) ([]checkedModel, error) {
	warned := &warnings{keptWarnings: &keptWarnings{byModel: make(map[string][]string)}}
	log := slog.New(warned)
	backends, err := f.serve.backends(log, nil)
	if err != nil {
		return nil, err
	}
	found, ambiguous, err := repository.Set{Roots: roots}.Scan()
	if err != nil {
		return nil, err
	}
	e := engine.New(engine.Options{
		Name: "shoal", Version: Version, Repositories: roots, Backends: backends, ConfigName: f.serve.configName,
		NoAutoComplete: f.serve.noAutoComplete, LoadThreads: 4, Control: true, Startup: []string{}, Log: log,
	})
	defer func() { _ = e.Close(context.WithoutCancel(ctx)) }() // the result is there
	if err := e.LoadAll(ctx); err != nil {
		return nil, err
	}
	list := []checkedModel{}
	for _, src := range found {
		m := checkedModel{Name: src.Name, Folder: src.Dir, Faults: []checkedFault{}}
		m.Faults = append(m.Faults, f.try(ctx, e, src)...)
		m.Warnings = warned.about(src.Name)
		if ctx.Err() != nil {
			return nil, errors.New("interrupted")
		}
		list = append(list, m)
	}
	for _, name := range ambiguous {
		m := checkedModel{Name: name, Warnings: []string{}}
		for _, root := range roots {
			dir := filepath.Join(root, name)
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				m.Folder = dir
				m.Faults = append(m.Faults, checkedFault{File: dir, Text: "model appears in two or more repositories"})
			}
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b checkedModel) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// try loads a model, runs it if that is asked for, and frees it.
func (f *checkFlags) try(ctx context.Context, e *engine.Engine, src repository.Entry) (list []checkedFault) {
	failed := e.Load(ctx, src.Name, engine.Override{})
	faults := e.Faults(src.Name)
	if failed != nil && len(faults) == 0 {
		faults = []engine.Fault{{Version: engine.NoVersion, Err: failed}}
	}
	if f.run {
		faults = append(faults, e.TryZeros(ctx, src.Name)...)
	}
	_ = e.Unload(ctx, src.Name, true) // only an interrupt ends it
	path, text := src.ConfigFile(f.serve.configName)
	for _, fault := range faults {
		list = append(list, located(src, fault, path, text)...)
	}
	return list
}

// located returns the faults in an error, each with its place. path and text are
// the model's configuration file, empty when it has none.
func located(src repository.Entry, fault engine.Fault, path string, text []byte) (list []checkedFault) {
	at := checkedFault{File: src.Dir}
	if fault.Version != engine.NoVersion {
		at.Version = strconv.FormatInt(fault.Version, 10)
		at.File = src.VersionDir(fault.Version)
	}
	parts := []model.Fault{{Text: status.Public(fault.Err)}}
	if invalid, ok := errors.AsType[*model.InvalidError](fault.Err); ok {
		parts = invalid.Faults
	}
	for _, p := range parts {
		x := at
		x.Line, x.Column, x.Text = p.Line, p.Column, strings.TrimSuffix(strings.TrimSpace(p.Text), ";")
		if x.Line == 0 {
			// The model's own name is in most errors and says nothing about the place.
			x.Line = model.Locate(text, strings.ReplaceAll(p.Text, "'"+src.Name+"'", ""))
		}
		if x.Line > 0 {
			x.File = path
		}
		list = append(list, x)
	}
	return list
}

// warnings is a log handler that keeps the warnings about each model.
type warnings struct {
	attrs []slog.Attr

	*keptWarnings
}

type keptWarnings struct {
	mu      sync.Mutex // protects the field below
	byModel map[string][]string
}

// Enabled implements slog.Handler. Errors are faults, which the engine returns.
func (w *warnings) Enabled(_ context.Context, level slog.Level) bool { return level == slog.LevelWarn }

// WithAttrs implements slog.Handler.
func (w *warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &warnings{append(slices.Clip(w.attrs), attrs...), w.keptWarnings}
}

// WithGroup implements slog.Handler.
func (w *warnings) WithGroup(string) slog.Handler { return w }

// Handle implements slog.Handler.
func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	name, text := "", r.Message
	add := func(a slog.Attr) bool {
		if a.Key == "model" {
			name = a.Value.String()
		} else {
			text += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		}
		return true
	}
	for _, a := range w.attrs {
		add(a)
	}
	r.Attrs(add)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.byModel[name], text) {
		w.byModel[name] = append(w.byModel[name], text)
	}
	return nil
}

// about returns the warnings about a model.
func (w *warnings) about(name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{}, w.byModel[name]...)
}
