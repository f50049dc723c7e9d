package kserve

import (
	"strings"
	"testing"
)

func TestRestrictionsAreParsed(t *testing.T) {
	all, err := ParseRestrictions([]string{"health,model-repository:X-Key=a=b", "trace:other="})
	if err != nil {
		t.Fatal(err)
	}
	for api := range apiCount {
		got, want := all[api], (*Restriction)(nil)
		switch api {
		case Health, ModelRepository:
			want = &Restriction{"X-Key", "a=b"}
		case Trace:
			want = &Restriction{"other", ""}
		}
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%s: got %v, want %v", api, got, want)
		}
	}
}

func TestEveryWrongRuleIsNamed(t *testing.T) {
	wrong := []string{"", "health", "health:key", "health:=v", "nosuch:k=v", "logging,:k=v", "metadata:a=1", "metadata:b=2"}
	_, err := ParseRestrictions(wrong)
	if err == nil {
		t.Fatal("got no error")
	}
	for _, rule := range wrong {
		named := strings.Contains(err.Error(), `rule "`+rule+`": `)
		if named == (rule == "metadata:a=1") { // only the second is one too many
			t.Errorf("%q: got named %v in %q", rule, named, err)
		}
	}
}

func TestOnlyTheRightValueOpens(t *testing.T) {
	r := &Restriction{Value: "secret"}
	for value, want := range map[string]bool{"secret": true, "": false, "secre": false, "secrets": false, "Secret": false} {
		if got := r.Opens([]byte(value)); got != want {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
	}
	if empty := (&Restriction{}); !empty.Opens(nil) {
		t.Error("an empty value does not open what asks for it")
	}
}

func TestReservedNamesAreNotForwarded(t *testing.T) {
	for name, want := range map[string]bool{"timeout": true, "headers": true, "triton_x": true, "x-timeout": false, "": false} {
		if got := CheckForward(name) != nil; got != want {
			t.Errorf("%q: got refused %v, want %v", name, got, want)
		}
	}
}
