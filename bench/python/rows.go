package main

import (
	"fmt"
	"slices"
	"strings"
)

// Names of the servers.
const (
	shoal    = "shoal"
	mosec    = "mosec"
	litserve = "litserve"
	uvicorn  = "uvicorn"
	triton   = "triton"
)

// A figure is what a floor is about.
type figure string

const (
	throughput figure = "req/s"
	p50        figure = "p50"
	cpu        figure = "CPU/req"
)

// A floor bounds the ratio of Shoal's figure to another server's: from below for
// the throughput, from above for the others.
type floor struct {
	against string
	figure  figure
	limit   float64
}

// A row is one load on several servers.
type row struct {
	load    string
	callers int
	servers []string
	floors  []floor
}

func (r row) name() string { return fmt.Sprintf("%s-c%d", r.load, r.callers) }

// The loads.
const (
	loadNoop       = "noop"
	loadMLP        = "mlp"
	loadTritonHTTP = "triton-http"
	loadTritonGRPC = "triton-grpc"
)

// tripRow is the name of what is measured without a server.
const tripRow = "trip"

var allRows = makeRows()

func makeRows() (rows []row) {
	for _, load := range []string{loadNoop, loadMLP} {
		for _, callers := range []int{1, 8, 32, 100} {
			r := row{load: load, callers: callers, servers: []string{shoal, mosec, litserve, uvicorn}}
			switch callers {
			case 1, 8:
				r.floors = []floor{{mosec, throughput, 1.2}, {mosec, p50, 0.5}}
			case 32:
				r.floors = []floor{{litserve, throughput, 5}}
			}
			rows = append(rows, r)
		}
	}
	for _, load := range []string{loadTritonHTTP, loadTritonGRPC} {
		for _, callers := range []int{1, 8} {
			rows = append(rows, row{load: load, callers: callers, servers: []string{shoal, triton}, floors: []floor{{triton, cpu, 0.6}}})
		}
	}
	return rows
}

// choose returns the rows with one of the words in their name, all when there are
// no words, and whether the round trip is one of them.
func choose(words []string) (rows []row, withTrip bool, err error) {
	fits := func(name string) bool {
		return len(words) == 0 || slices.ContainsFunc(words, func(w string) bool { return strings.Contains(name, w) })
	}
	names := []string{tripRow}
	for _, r := range allRows {
		names = append(names, r.name())
		if fits(r.name()) {
			rows = append(rows, r)
		}
	}
	withTrip = fits(tripRow)
	if len(rows) == 0 && !withTrip {
		err = fmt.Errorf("no row has one of %q in its name; there are: %s", words, strings.Join(names, " "))
	}
	return rows, withTrip, err
}
