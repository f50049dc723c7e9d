package peer

import "testing"

func TestHalvesShareNothingButASingleCore(t *testing.T) {
	tests := []struct{ cores, servers, clients int }{{1, 1, 1}, {2, 1, 1}, {3, 1, 2}, {8, 4, 4}}
	for _, tt := range tests {
		servers, clients := Halves(tt.cores)
		if len(servers) != tt.servers || len(clients) != tt.clients {
			t.Errorf("%d cores: got %v and %v, want %d and %d", tt.cores, servers, clients, tt.servers, tt.clients)
		}
	}
}
