package cli

import (
	"context"
	"log/slog"

	"golang.org/x/sys/unix"
)

// metricsConnections is how many connections the metrics endpoint accepts: a
// few scrapers and `shoal top`.
const metricsConnections = 32

// manyConnections are enough for most: that there are no more is said with --log-verbose only.
const manyConnections = 2048

// minKept is the least number of file descriptors reserved for models, workers
// and logs.
const minKept = 64

// fitDescriptors lowers the limits of connections to the number of files that
// the process may open, with a reserve for everything else.
func (f *serveFlags) fitDescriptors(log *slog.Logger) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return // the system has no limit
	}
	var http, grpc int
	if f.http.allow {
		http = f.http.maxConnections
	}
	if f.grpc.allow {
		grpc = f.grpc.maxConnections
	}
	fitHTTP, fitGRPC := fitConnections(files.Cur, http, grpc)
	if fitHTTP == http && fitGRPC == grpc {
		return
	}
	f.http.maxConnections, f.grpc.maxConnections = max(fitHTTP, 1), max(fitGRPC, 1)
	level := slog.LevelInfo
	if fitHTTP >= min(http, manyConnections) && fitGRPC >= min(grpc, manyConnections) {
		level = slog.LevelDebug
	}
	log.Log(context.Background(), level, "connections are limited by the limit of open files (ulimit -n); raise it to allow as many as the flags do",
		"open_files", files.Cur, "http", fitHTTP, "grpc", fitGRPC)
}

// fitConnections returns how many connections each protocol may have when the
// process may open files files. A quarter is reserved. A protocol may use what
// the other does not need.
func fitConnections(files uint64, http, grpc int) (int, int) {
	rest := int(min(files, 1<<30))
	rest -= max(minKept, rest/4) + metricsConnections
	rest = max(rest, 2)
	if http+grpc <= rest {
		return http, grpc
	}
	half := rest / 2
	switch {
	case http <= half:
		return http, rest - http
	case grpc <= half:
		return rest - grpc, grpc
	}
	return half, rest - half
}
