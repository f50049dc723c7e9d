package kservehttp

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheGuideHasEveryRoute compares the guide for those who come from Triton
// with the routes: each that it names is served, and each that is served is
// named.
func TestTheGuideHasEveryRoute(t *testing.T) {
	text, err := os.ReadFile("../../../docs/from-triton.md")
	if err != nil {
		t.Fatal(err)
	}
	var named [actionCount]bool
	for _, m := range regexp.MustCompile("`(GET|POST) (/v2[^`]*)`").FindAllStringSubmatch(string(text), -1) {
		path := strings.NewReplacer("MODEL", "m", "REGION", "r", "VERSION", "1").Replace(m[2])
		rt := parseRoute([]byte(path))
		if rt.action == actNone || !actions[rt.action].takes(m[1]) {
			t.Errorf("the guide names %s, which is not served", m[0])
		}
		named[rt.action] = true
	}
	for a := actNone + 1; a < actionCount; a++ {
		if !named[a] {
			t.Errorf("the guide does not name the route of action %d, of class %v", a, actions[a].api)
		}
	}
}

// TestAddressesOfTheDocumentsAreServed reads the addresses that the documents have curl ask.
func TestAddressesOfTheDocumentsAreServed(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, page := range append(pages, "../../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`localhost:8000(/v2[^\s'";`+"`"+`]*)`).FindAllStringSubmatch(string(text), -1) {
			checked++
			if parseRoute([]byte(m[1])).action == actNone {
				t.Errorf("%s: %s is not served", page, m[1])
			}
		}
	}
	if checked < 10 {
		t.Errorf("got %d addresses in the documents, want more than 10: are they still found?", checked)
	}
}
