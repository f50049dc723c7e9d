package peer

// Halves splits n cores between servers and clients; a single one they share.
func Halves(n int) (servers, clients []int) {
	if n < 2 {
		return []int{0}, []int{0}
	}
	for i := range n {
		if i < n/2 {
			servers = append(servers, i)
		} else {
			clients = append(clients, i)
		}
	}
	return servers, clients
}
