package main

import (
	"strings"
	"testing"
)

func TestMissedNamesEachFloor(t *testing.T) {
	small := result{Name: "Shoal", floors: &shoalFloors, BinaryMB: 20, Starts: []once{{ReadyMS: 900, RSSMB: 50}, {ReadyMS: 100, RSSMB: 50}, {ReadyMS: 120, RSSMB: 50}}}
	large := result{Name: "Shoal", floors: &shoalFloors, BinaryMB: 41, Starts: []once{{ReadyMS: 151, RSSMB: 61}}}
	free := result{Name: "Triton", BinaryMB: 500, Starts: []once{{ReadyMS: 2000, RSSMB: 100}}}
	for _, c := range []*result{&small, &large, &free} {
		c.summarise()
	}
	if got := (results{Cases: []result{small, free}}).missed(); len(got) != 0 {
		t.Errorf("got %q, want nothing missed: the median start takes 120 ms", got)
	}
	got := strings.Join((results{Cases: []result{large, free}}).missed(), ", ")
	if want := "exec to ready 151.0 ms (at most 150), idle RSS 61.0 MB (at most 60), binary 41.0 MB (at most 40)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if page := (results{Cases: []result{large}}).page(); strings.Count(page, "MISSED") != 3 {
		t.Errorf("got %q, want three MISSED in it", page)
	}
}
