package report

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// A Command is what every benchmark's command line has: where the results go, and
// whether a floor that is missed fails it.
type Command struct {
	Name       string // the folder under bench, and the results' file names
	Out        string // folder for the results; empty writes none
	JSON       bool   // print JSON rather than tables
	ReportOnly bool   // exit 0 although a floor is missed
}

// NewCommand returns the command of the benchmark of that name and adds its flags.
func NewCommand(name string) *Command {
	c := &Command{Name: name}
	flag.StringVar(&c.Out, "out", "bench/results", "folder for the results, "+name+".json and "+name+".md; empty writes none")
	flag.BoolVar(&c.JSON, "json", false, "print JSON, not tables")
	flag.BoolVar(&c.ReportOnly, "report-only", false, "exit 0 even when a floor is missed")
	return c
}

// Main parses the command line, runs the benchmark, whose context ends with the
// first SIGINT or SIGTERM, and ends the process: with 1 when it fails or missed
// floors.
func (c *Command) Main(bench func(context.Context) (missed []string, err error)) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	missed, err := bench(ctx)
	stop()
	os.Exit(c.judge(os.Stderr, missed, err))
}

// judge tells what went wrong and returns the exit code.
func (c *Command) judge(w io.Writer, missed []string, err error) int {
	if err != nil {
		fmt.Fprintf(w, "bench/%s: %v\n", c.Name, err)
		return 1
	}
	if len(missed) == 0 {
		return 0
	}
	fmt.Fprintf(w, "bench/%s: floors missed: %s\n", c.Name, strings.Join(missed, "; "))
	if c.ReportOnly {
		return 0
	}
	return 1
}

// Publish prints the results to w, as tables or JSON, and writes them and their
// page to files.
func (c *Command) Publish(w io.Writer, results any, tables, page string) error {
	if err := c.Print(w, results, tables); err != nil || c.Out == "" {
		return err
	}
	return Write(c.Out, c.Name, results, page)
}

// Print prints the results to w, as tables or JSON.
func (c *Command) Print(w io.Writer, results any, tables string) error {
	if c.JSON {
		b, err := json.MarshalIndent(results, "", "  ")
		if err != nil {
			return err
		}
		tables = string(b) + "\n"
	}
	_, err := io.WriteString(w, tables)
	return err
}
