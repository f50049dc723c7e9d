package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A Group adds flags that help shows together under a title.
type Group struct {
	Set   *pflag.FlagSet
	title string
}

const groupKey = "shoal_group"

// NewGroup returns a way to add flags to cmd under a title.
func NewGroup(cmd *cobra.Command, title string) *Group { return &Group{cmd.Flags(), title} }

// Note adds a flag that was defined in Set to the group.
func (g *Group) Note(name string) *pflag.Flag {
	f := g.Set.Lookup(name)
	if f.Annotations == nil {
		f.Annotations = make(map[string][]string)
	}
	f.Annotations[groupKey] = []string{g.title}
	return f
}

// Text adds a flag with a text.
func (g *Group) Text(p *string, name, value, help string) {
	g.Set.StringVar(p, name, value, help)
	g.Note(name)
}

// Texts adds a flag that may be given again, with text.
func (g *Group) Texts(p *[]string, name, help string) {
	g.Set.StringArrayVar(p, name, nil, help)
	g.Note(name)
}

// Number adds a flag with a whole number.
func (g *Group) Number(p *int, name string, value int, help string) {
	g.Set.IntVar(p, name, value, help)
	g.Note(name)
}

// Span adds a flag with a duration.
func (g *Group) Span(p *time.Duration, name string, value time.Duration, help string) {
	g.Set.DurationVar(p, name, value, help)
	g.Note(name)
}

// Decimal adds a flag with a number.
func (g *Group) Decimal(p *float64, name string, value float64, help string) {
	g.Set.Float64Var(p, name, value, help)
	g.Note(name)
}

// Size adds a flag with a 64-bit number.
func (g *Group) Size(p *int64, name string, value int64, help string) {
	g.Set.Int64Var(p, name, value, help)
	g.Note(name)
}

// Truth adds a flag that takes true or false as its value, in the forms that
// Triton takes: --flag=false, --flag false, on/off, 1/0.
func (g *Group) Truth(p *bool, name string, value bool, help string) {
	*p = value
	g.Set.Var((*truth)(p), name, help)
	g.Note(name)
}

// Toggle adds a flag without a value.
func (g *Group) Toggle(p *bool, name, help string) {
	g.Set.BoolVar(p, name, false, help)
	g.Note(name)
}

// Ignored adds flags of the original that are accepted and do nothing, for this
// reason.
func (g *Group) Ignored(reason string, names ...string) {
	for _, name := range names {
		g.Set.Var(&Ignored{Reason: reason}, name, reason)
		g.Note(name).Hidden = true
	}
}

// IgnoredNumbers is Ignored for flags whose values must be whole numbers all the same.
func (g *Group) IgnoredNumbers(reason string, names ...string) {
	g.Ignored(reason, names...)
	for _, name := range names {
		g.Set.Lookup(name).Value.(*Ignored).number = true
	}
}

// Refused adds flags of the original that are refused for this reason, which
// says what to do instead.
func (g *Group) Refused(reason string, names ...string) {
	for _, name := range names {
		g.Set.Var(&Refused{Reason: reason}, name, reason)
		g.Note(name).Hidden = true
	}
}

// RefusedSwitches is Refused for flags that are true or false; false is
// accepted.
func (g *Group) RefusedSwitches(reason string, names ...string) {
	for _, name := range names {
		g.Set.Var(&Refused{Reason: reason, onlyTrue: true}, name, reason)
		g.Note(name).Hidden = true
	}
}

// truth is a boolean flag that needs a value.
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

// An Ignored is the value of a flag that does nothing.
type Ignored struct {
	Reason string
	number bool
	value  string
}

func (i *Ignored) String() string { return i.value }

// Type implements pflag.Value.
func (i *Ignored) Type() string { return "value" }

// Set implements pflag.Value.
func (i *Ignored) Set(s string) error {
	if _, err := strconv.ParseInt(s, 10, 64); err != nil && i.number {
		return errors.New("want a whole number")
	}
	i.value = s
	return nil
}

// A Refused is the value of a flag that is known and not supported.
type Refused struct {
	Reason   string
	onlyTrue bool // false is accepted
}

func (r *Refused) String() string { return "" }

// Type implements pflag.Value.
func (r *Refused) Type() string { return "value" }

// Set implements pflag.Value.
func (r *Refused) Set(s string) error {
	var wanted truth
	if r.onlyTrue && wanted.Set(s) == nil && !bool(wanted) {
		return nil
	}
	return errors.New(r.Reason)
}

// GroupedUsage prints a command's flags by group, in the order of definition.
func GroupedUsage(cmd *cobra.Command) error {
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
	fmt.Fprint(w, part.FlagUsagesWrapped(columns))
}

// columns is how wide help is.
var columns = 110

// FitHelp has help fit the terminal that it is written to.
func FitHelp(w io.Writer) {
	if file, ok := w.(*os.File); ok && term.IsTerminal(file.Fd()) {
		if width, _, err := term.GetSize(file.Fd()); err == nil && width > 0 {
			columns = min(columns, width)
		}
	}
}
