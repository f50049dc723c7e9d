package cli

import "testing"

func TestConnectionsFitTheDescriptors(t *testing.T) {
	for _, c := range []struct {
		name               string
		files              uint64
		http, grpc         int
		wantHTTP, wantGRPC int
	}{
		{"enough", 1 << 20, 16384, 16384, 16384, 16384},
		{"no limit", 1<<64 - 1, 16384, 16384, 16384, 16384},
		{"few", 256, 16384, 16384, 80, 80},
		{"one protocol", 256, 16384, 0, 160, 0},
		{"one wants little", 256, 20, 16384, 20, 140},
		{"the other wants little", 256, 16384, 20, 140, 20},
		{"both want little", 256, 20, 20, 20, 20},
		{"hardly any", 10, 100, 100, 1, 1},
	} {
		http, grpc := fitConnections(c.files, c.http, c.grpc)
		if http != c.wantHTTP || grpc != c.wantGRPC {
			t.Errorf("%s: got %d and %d, want %d and %d", c.name, http, grpc, c.wantHTTP, c.wantGRPC)
		}
	}
}
