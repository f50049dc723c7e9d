package repository

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

func TestVersionsAreTheFoldersWithNumbers(t *testing.T) {
	dir := tree(t, map[string]string{
		"10/": "", "2/": "", "0/": "", "9223372036854775807/": "",
		"warmup/": "", "configs/": "", "initial_state/": "", "3": "a file",
		"01/": "", "-1/": "", "+1/": "", "1a/": "", "9223372036854775808/": "", "old/": "",
	})
	var warned []string
	got, err := Entry{Name: "m", Dir: dir}.Versions(func(msg string) { warned = append(warned, msg) })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{0, 2, 10, 9223372036854775807}, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	names := []string{"+1", "-1", "01", "1a", "9223372036854775808", "old"}
	if len(warned) != len(names) {
		t.Fatalf("warnings: got %q, want one for each of %q", warned, names)
	}
	for i, name := range names {
		if !strings.Contains(warned[i], `"`+name+`"`) {
			t.Errorf("warning %d: got %q, want one about %q", i, warned[i], name)
		}
	}
}

func TestVersionsOfAFolderThatIsGone(t *testing.T) {
	_, err := Entry{Name: "m", Dir: filepath.Join(t.TempDir(), "m")}.Versions(nil)
	checkError(t, err, status.NotFound, `model "m": read `)
}

func TestAFolderWithModelPyAloneHasVersion1(t *testing.T) {
	e := Entry{Name: "m", Dir: tree(t, map[string]string{"model.py": "", "weights/w": "", "__pycache__/x": ""})}
	warn := func(msg string) { t.Errorf("warned %q, want no warning", msg) }
	got, err := e.Versions(warn)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{1}, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	if got := e.VersionDir(1); got != e.Dir {
		t.Errorf("folder of version 1: got %s, want the model's own, %s", got, e.Dir)
	}
}

func TestVersionFoldersGoBeforeAModelPyBesideThem(t *testing.T) {
	e := Entry{Name: "m", Dir: tree(t, map[string]string{"model.py": "", "3/model.py": ""})}
	got, err := e.Versions(nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{3}, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	if got, want := e.VersionDir(3), filepath.Join(e.Dir, "3"); got != want {
		t.Errorf("folder of version 3: got %s, want %s", got, want)
	}
}

func TestSelect(t *testing.T) {
	latest := func(n uint32) *modelpb.ModelVersionPolicy {
		return &modelpb.ModelVersionPolicy{PolicyChoice: &modelpb.ModelVersionPolicy_Latest_{Latest: &modelpb.ModelVersionPolicy_Latest{NumVersions: n}}}
	}
	specific := func(v ...int64) *modelpb.ModelVersionPolicy {
		return &modelpb.ModelVersionPolicy{PolicyChoice: &modelpb.ModelVersionPolicy_Specific_{Specific: &modelpb.ModelVersionPolicy_Specific{Versions: v}}}
	}
	all := &modelpb.ModelVersionPolicy{PolicyChoice: &modelpb.ModelVersionPolicy_All_{All: &modelpb.ModelVersionPolicy_All{}}}
	for _, c := range []struct {
		name            string
		policy          *modelpb.ModelVersionPolicy
		chosen, missing []int64
	}{
		{"no policy is the latest version", nil, []int64{10}, nil},
		{"the latest two", latest(2), []int64{3, 10}, nil},
		{"more than there are", latest(9), []int64{1, 3, 10}, nil},
		{"the most that can be asked for", latest(1<<32 - 1), []int64{1, 3, 10}, nil},
		{"the latest none", latest(0), nil, nil},
		{"all", all, []int64{1, 3, 10}, nil},
		{"a policy that says nothing", &modelpb.ModelVersionPolicy{}, []int64{1, 3, 10}, nil},
		{"named ones in any order", specific(10, 1, 10), []int64{1, 10}, nil},
		{"named ones that are not there", specific(7, 3, 2), []int64{3}, []int64{2, 7}},
		{"none named", specific(), nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			onDisk := []int64{10, 1, 3}
			chosen, missing := Select(c.policy, onDisk)
			if len(chosen)+len(c.chosen) > 0 && !cmp.Equal(chosen, c.chosen) {
				t.Errorf("chosen: got %v, want %v", chosen, c.chosen)
			}
			if len(missing)+len(c.missing) > 0 && !cmp.Equal(missing, c.missing) {
				t.Errorf("missing: got %v, want %v", missing, c.missing)
			}
			if !cmp.Equal(onDisk, []int64{10, 1, 3}) {
				t.Errorf("the caller's versions: got %v, want them as they were", onDisk)
			}
		})
	}
}
