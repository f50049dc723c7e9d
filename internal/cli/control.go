package cli

import (
	"errors"
	"fmt"
	"slices"

	"shoal/internal/cli/command"
)

// What --model-control-mode may be.
const (
	controlNone     = "none"
	controlPoll     = "poll"
	controlExplicit = "explicit"
)

// everyModel is what --load-model takes for all models.
const everyModel = "*"

// controlFlags say which models are loaded, and who may change that.
type controlFlags struct {
	mode        string
	pollSeconds int
	load        []string
}

func (f *controlFlags) add(g *command.Group) {
	g.Text(&f.mode, "model-control-mode", controlNone, "none: load every model at start; poll: follow what changes in the repositories, too; explicit: load what --load-model names and what clients ask for")
	g.Number(&f.pollSeconds, "repository-poll-secs", 15, "how often --model-control-mode=poll looks at the repositories")
	g.Texts(&f.load, "load-model", "`model` to load at start under --model-control-mode=explicit, * for all; may be given several times")
}

// check finds faults in the values.
func (f *controlFlags) check() error {
	switch f.mode {
	case controlNone, controlPoll:
		if len(f.load) > 0 {
			return errors.New("--load-model requires --model-control-mode=explicit as well")
		}
	case controlExplicit:
		if slices.Contains(f.load, everyModel) && len(f.load) > 1 {
			return errors.New("--load-model=* loads every model, so that it must be the only --load-model")
		}
	default:
		return fmt.Errorf("--model-control-mode is %q, want none, explicit or poll", f.mode)
	}
	return nil
}

// startup returns the models to load at start; nil is all.
func (f *controlFlags) startup() []string {
	if f.mode != controlExplicit || slices.Contains(f.load, everyModel) {
		return nil
	}
	return append([]string{}, f.load...)
}
