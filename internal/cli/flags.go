package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A flagGroup adds flags that help shows together under a title.
type flagGroup struct {
	set   *pflag.FlagSet
	title string
}

const groupKey = "shoal_group"

// group returns a way to add flags to cmd under a title.
func group(cmd *cobra.Command, title string) *flagGroup { return &flagGroup{cmd.Flags(), title} }

func (g *flagGroup) note(name string) *pflag.Flag {
	f := g.set.Lookup(name)
	if f.Annotations == nil {
		f.Annotations = make(map[string][]string)
	}
	f.Annotations[groupKey] = []string{g.title}
	return f
}

func (g *flagGroup) text(p *string, name, value, help string) {
	g.set.StringVar(p, name, value, help)
	g.note(name)
}

func (g *flagGroup) texts(p *[]string, name, help string) {
	g.set.StringArrayVar(p, name, nil, help)
	g.note(name)
}

func (g *flagGroup) number(p *int, name string, value int, help string) {
	g.set.IntVar(p, name, value, help)
	g.note(name)
}

func (g *flagGroup) span(p *time.Duration, name string, value time.Duration, help string) {
	g.set.DurationVar(p, name, value, help)
	g.note(name)
}

func (g *flagGroup) decimal(p *float64, name string, value float64, help string) {
	g.set.Float64Var(p, name, value, help)
	g.note(name)
}

func (g *flagGroup) size(p *int64, name string, value int64, help string) {
	g.set.Int64Var(p, name, value, help)
	g.note(name)
}

// truth adds a flag that takes true or false as its value, in the forms that
// Triton takes: --flag=false, --flag false, on/off, 1/0.
func (g *flagGroup) truth(p *bool, name string, value bool, help string) {
	*p = value
	g.set.Var((*truth)(p), name, help)
	g.note(name)
}

// toggle adds a flag without a value.
func (g *flagGroup) toggle(p *bool, name, help string) {
	g.set.BoolVar(p, name, false, help)
	g.note(name)
}

// ignored adds flags that are taken for Triton's sake and do nothing.
func (g *flagGroup) ignored(names ...string) {
	for _, name := range names {
		g.set.Var(new(ignored), name, "accepted for compatibility; nothing here needs it")
		g.note(name).Hidden = true
	}
}

// truth is a boolean flag that wants its value spelt out.
type truth bool

func (t *truth) String() string { return fmt.Sprint(bool(*t)) }
func (t *truth) Type() string   { return "boolean" }
func (t *truth) Set(s string) error {
	switch strings.ToLower(s) {
	case "true", "on", "1":
		*t = true
	case "false", "off", "0":
		*t = false
	default:
		return fmt.Errorf("%q is neither true nor false", s)
	}
	return nil
}

// ignored is a flag whose value does not matter.
type ignored string

func (i *ignored) String() string     { return string(*i) }
func (i *ignored) Type() string       { return "value" }
func (i *ignored) Set(s string) error { *i = ignored(s); return nil }

// groupedUsage prints a command's flags by group, in the order of definition.
func groupedUsage(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	fmt.Fprintf(w, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	for _, title := range groupTitles(cmd.Flags()) {
		fmt.Fprintf(w, "\n%s:\n", title)
		writeFlags(w, cmd.Flags(), title)
	}
	return nil
}

const otherFlags = "Other"

func groupOf(f *pflag.Flag) string {
	if t := f.Annotations[groupKey]; len(t) > 0 {
		return t[0]
	}
	return otherFlags
}

func groupTitles(set *pflag.FlagSet) []string {
	var titles []string
	seen := map[string]bool{}
	set.SortFlags = false
	set.VisitAll(func(f *pflag.Flag) {
		if t := groupOf(f); !f.Hidden && !seen[t] {
			seen[t] = true
			titles = append(titles, t)
		}
	})
	return titles
}

func writeFlags(w io.Writer, set *pflag.FlagSet, title string) {
	part := pflag.NewFlagSet(title, pflag.ContinueOnError)
	part.SortFlags = false
	set.VisitAll(func(f *pflag.Flag) {
		if groupOf(f) == title {
			part.AddFlag(f)
		}
	})
	fmt.Fprint(w, part.FlagUsagesWrapped(110))
}
