package python

import (
	"os"
	"path/filepath"
	"testing"
)

func TestGPUsAreThoseThatTheServerMaySee(t *testing.T) {
	two := t.TempDir()
	for _, name := range []string{"0000:01:00.0", "0000:02:00.0"} {
		if err := os.Mkdir(filepath.Join(two, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name, folder string
		env          []string
		want         int
	}{
		{"no driver", filepath.Join(two, "nosuch"), nil, 0},
		{"all", two, nil, 2},
		{"one by its number", two, []string{"CUDA_VISIBLE_DEVICES=1"}, 1},
		{"one by its name", two, []string{"CUDA_VISIBLE_DEVICES=GPU-8932f937"}, 1},
		{"none", two, []string{"CUDA_VISIBLE_DEVICES="}, 0},
		{"none, as people write it", two, []string{"CUDA_VISIBLE_DEVICES=-1"}, 0},
		{"those before the first that is wrong", two, []string{"CUDA_VISIBLE_DEVICES=0,-1,1"}, 1},
		{"more than there are", two, []string{"CUDA_VISIBLE_DEVICES=0,1,2,3"}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := countGPUs(tt.folder, newVariables(tt.env)); got != tt.want {
				t.Errorf("got %d GPUs, want %d", got, tt.want)
			}
		})
	}
}
