package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"shoal/internal/cli/command"
	"shoal/internal/client"
	"shoal/internal/top"
)

// topFlags are the flags of the top command.
type topFlags struct {
	metrics  []string
	models   []string
	interval time.Duration
	timeout  time.Duration
	once     bool
	json     bool
}

func newTop() *cobra.Command {
	f := &topFlags{}
	cmd := &cobra.Command{
		Use:   "top [URL...]",
		Short: "Show how a running server is doing: rates, latency, batches, queues",
		Long: `Top shows the models of running servers, one line each, and what they do:
requests and rows a second, latency, the mean batch, requests that wait, busy
instances and failures. It reads /v2/models/stats, /v2/repository/index and the
metrics of each server; the first two suffice for most columns. A Triton server
works too.

URL is the server's HTTP address, http://localhost:8000 unless you say
otherwise, or unix:///path of its socket. Its metrics are looked for two ports
on; --metrics-url says where else.`,
		Example: `  shoal top                         the server on this machine
  shoal top gpu1:8000 gpu2:8000     two servers in one table
  shoal top --model ocr             an ensemble and the models in it
  shoal top --once                  a table of the next second, for a ticket
  shoal top --once --json | jq '.models[] | select(.p99_seconds > 0.1) | .model'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			targets, err := f.targets(args)
			if err == nil {
				err = f.check(cmd.OutOrStdout())
			}
			if err != nil {
				return command.Misused(cmd, err)
			}
			return f.run(cmd, targets)
		},
		Args: cobra.ArbitraryArgs,
	}
	g := command.NewGroup(cmd, "What to read")
	g.Texts(&f.metrics, "metrics-url", "`URL` of a server's metrics, when they are not two ports on; once for each server, in their order")
	g.Texts(&f.models, "model", "`model` to show, with the models in it when it is an ensemble; once for each, also for those that a Python model calls")
	g.Span(&f.interval, "interval", time.Second, "`time` between two readings, which rates and quantiles are of")
	g.Span(&f.timeout, "timeout", 5*time.Second, "`time` that a server may take to answer")
	g = command.NewGroup(cmd, "How to show it")
	g.Toggle(&f.once, "once", "show one interval as a table and leave")
	g.Toggle(&f.json, "json", "with --once: print JSON, with every figure and null for what is not known")
	cmd.SetUsageFunc(command.GroupedUsage)
	command.CompleteModels(cmd, "model", func() (client.API, error) {
		at, err := client.ParseAddress(defaultServer, 8000)
		if args := cmd.Flags().Args(); len(args) > 0 {
			at, err = client.ParseAddress(args[0], 8000)
		}
		return client.OpenHTTP(client.Options{Address: at.Host}, at.Prefix), err
	})
	return cmd
}

const defaultServer = "http://localhost:8000"

func (f *topFlags) targets(args []string) ([]top.Target, error) {
	if len(args) == 0 {
		args = []string{defaultServer}
	}
	if len(f.metrics) > len(args) {
		return nil, fmt.Errorf("--metrics-url is given %d times for %d servers", len(f.metrics), len(args))
	}
	var list []top.Target
	var errs []error
	for i, arg := range args {
		metrics := ""
		if i < len(f.metrics) {
			metrics = f.metrics[i]
		}
		t, err := top.ParseTarget(arg, metrics)
		t.Models = f.models
		list, errs = append(list, t), append(errs, err)
	}
	return list, errors.Join(errs...)
}

// minInterval keeps a typing error from becoming a load test.
const minInterval = 50 * time.Millisecond

func (f *topFlags) check(stdout io.Writer) error {
	if f.interval < minInterval {
		return fmt.Errorf("--interval is %v, want %v or more", f.interval, minInterval)
	}
	if f.timeout <= 0 {
		return fmt.Errorf("--timeout is %v, want more than 0", f.timeout)
	}
	if f.json && !f.once {
		return errors.New("--json goes with --once; for a series, run it repeatedly")
	}
	if file, ok := stdout.(*os.File); !f.once && (!ok || !term.IsTerminal(file.Fd())) {
		return errors.New("the live view needs a terminal; use --once for a table, or --once --json, for a pipe")
	}
	return nil
}

func (f *topFlags) run(cmd *cobra.Command, targets []top.Target) error {
	ctx, cancel := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	p := top.NewPoller(targets, f.timeout)
	if !f.once {
		return top.Run(ctx, p, f.interval, os.Stdin, cmd.OutOrStdout())
	}
	r, err := top.Once(ctx, p, f.interval)
	if err != nil {
		return err
	}
	return f.print(cmd, &r)
}

// print writes one report, and its gaps to standard error.
func (f *topFlags) print(cmd *cobra.Command, r *top.Report) error {
	faults := r.Faults()
	write := r.WriteTable
	switch {
	case f.json:
		write = r.WriteJSON
	case r.Failed():
		return errors.New(strings.Join(faults, "\n"))
	}
	for _, fault := range faults {
		fmt.Fprintf(cmd.ErrOrStderr(), "shoal: %s\n", fault)
	}
	if err := write(cmd.OutOrStdout()); err != nil {
		return err
	}
	if !r.Reached() {
		return errors.New("not every server could be read")
	}
	return nil
}
