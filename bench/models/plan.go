package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"shoal/bench/internal/peer"
	"shoal/bench/internal/shapes"
)

// Protocols and generators of the cells.
const (
	http = "http"
	grpc = "grpc"
	ours = "ours"
	tool = "tool"
)

// A setting is one way to serve a model.
type setting struct {
	name      string
	instances int
	batching  string // lines of config.pbtxt
	// floor is the least share of Triton's throughput at several callers.
	floor float64
}

var allSettings = []setting{
	{"plain", 1, "", 0.98},
	{"dynamic", 1, "dynamic_batching { }\n", 1.05},
	{"dynamic2", 2, "dynamic_batching { }\n", 1.15},
}

// A static is one setting of the batcher under Triton's rules.
type static struct {
	delay     int // microseconds
	preferred int // rows; 0 is none
}

// tritonRules makes a model follow Triton's rules exactly.
const tritonRules = "parameters [ { key: \"SHOAL_BATCHING\" value: { string_value: \"triton\" } } ]\n"

func (s static) String() string {
	text := fmt.Sprintf("delay %d us", s.delay)
	if s.preferred > 0 {
		text += fmt.Sprintf(", preferred %d", s.preferred)
	}
	return text
}

// batching returns the setting's lines of config.pbtxt.
func (s static) batching() string {
	preferred := ""
	if s.preferred > 0 {
		preferred = fmt.Sprintf("preferred_batch_size: [ %d ] ", s.preferred)
	}
	return fmt.Sprintf("dynamic_batching { %smax_queue_delay_microseconds: %d }\n", preferred, s.delay) + tritonRules
}

// grids returns the static settings that are tried: those of a grid with a name, or a
// list such as "1000/8,0/0", the delay in microseconds and the preferred rows of each.
func grids(name string) ([]static, error) {
	switch name {
	case "none":
		return nil, nil
	case "small":
		return []static{{0, 0}, {1000, 0}, {0, 16}, {1000, 8}, {4000, 32}}, nil
	case "full":
		var all []static
		for _, preferred := range []int{0, 4, 8, 16, 32} {
			for _, delay := range []int{0, 200, 1000, 4000} {
				all = append(all, static{delay, preferred})
			}
		}
		return all, nil
	}
	var all []static
	for _, w := range split(name) {
		delay, preferred, _ := strings.Cut(w, "/")
		d, err1 := strconv.Atoi(delay)
		p, err2 := strconv.Atoi(preferred)
		if err1 != nil || err2 != nil || d < 0 || p < 0 {
			return nil, fmt.Errorf("--grid %q: want full, small, none or a list of settings such as 1000/8,0/0: the delay in microseconds and the preferred rows", name)
		}
		all = append(all, static{d, p})
	}
	return all, nil
}

// A cell is one load on one model in one setting.
type cell struct {
	model     peer.Model
	setting   setting
	callers   int
	protocol  string
	generator string
}

func (c cell) name() string {
	return fmt.Sprintf("%s %s c%d %s %s", c.model.Name, c.setting.name, c.callers, c.protocol, c.generatorName())
}

// generatorName returns the name of the program that makes the load.
func (c cell) generatorName() string {
	switch {
	case c.generator == ours:
		return ours
	case c.protocol == grpc:
		return "ghz"
	}
	return "wrk"
}

// A group is the cells of one model in one setting: the servers are started once
// for them.
type group struct {
	model   peer.Model
	setting setting
	statics []static
	cells   []cell
}

// plan returns what to measure, as the options want it.
func plan(o options) ([]group, error) {
	if o.rounds < 1 {
		return nil, fmt.Errorf("--rounds %d: at least one is needed", o.rounds)
	}
	if o.slices < 1 && o.grid != "none" {
		return nil, fmt.Errorf("--slices %d: at least one is needed; --grid none goes without static settings", o.slices)
	}
	callers, err := numbers(o.callers)
	if err != nil {
		return nil, err
	}
	statics, err := grids(o.grid)
	if err != nil {
		return nil, err
	}
	models, err := choose("--model", o.models, shapes.All(o.work), func(m peer.Model) string { return m.Name })
	if err != nil {
		return nil, err
	}
	settings, err := choose("--setting", o.settings, allSettings, func(s setting) string { return s.name })
	if err != nil {
		return nil, err
	}
	same := func(s string) string { return s }
	protocols, err := choose("--protocol", o.protocols, []string{http, grpc}, same)
	if err != nil {
		return nil, err
	}
	generators, err := choose("--generator", o.generator, []string{ours, tool}, same)
	if err != nil {
		return nil, err
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return nil, fmt.Errorf("--only: %w", err)
	}
	var groups []group
	for _, m := range models {
		for _, s := range settings {
			g := group{model: m, setting: s}
			if s.batching != "" {
				g.statics = statics
			}
			for _, protocol := range protocols {
				for _, generator := range generators {
					for _, n := range callers {
						if c := (cell{m, s, n, protocol, generator}); only.MatchString(c.name()) {
							g.cells = append(g.cells, c)
						}
					}
				}
			}
			if len(g.cells) > 0 {
				groups = append(groups, g)
			}
		}
	}
	if len(groups) == 0 {
		return nil, fmt.Errorf("--only %q: no cell has such a name; they are like %q", o.only, "gru dynamic2 c16 http wrk")
	}
	return groups, nil
}

// choose returns those of all whose names are in the list, all when it is empty.
func choose[T any](flag, list string, all []T, name func(T) string) ([]T, error) {
	words := split(list)
	if len(words) == 0 {
		return all, nil
	}
	var names []string
	var chosen []T
	for _, one := range all {
		names = append(names, name(one))
		if slices.Contains(words, name(one)) {
			chosen = append(chosen, one)
		}
	}
	for _, w := range words {
		if !slices.Contains(names, w) {
			return nil, fmt.Errorf("%s %q: want some of %s", flag, w, strings.Join(names, ", "))
		}
	}
	return chosen, nil
}

func numbers(list string) ([]int, error) {
	var all []int
	for _, w := range split(list) {
		n, err := strconv.Atoi(w)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("--callers %q: want numbers of at least 1", w)
		}
		all = append(all, n)
	}
	return all, nil
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
