package grpcserver

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// BenchmarkAttack shows what a byte of each flood costs here and in grpc-go, in
// nanoseconds of CPU, the client's part included. A thousand calls with answers
// of a megabyte wait for their windows meanwhile.
func BenchmarkAttack(b *testing.B) {
	for name, prepare := range floods() {
		b.Run(name+"/shoal", func(b *testing.B) {
			s := start(b, Options{Enforcement: keepalive.EnforcementPolicy{MinTime: 1, PermitWithoutStream: true}})
			attack(b, s, prepare)
		})
		b.Run(name+"/grpc-go", func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			server := grpc.NewServer(grpc.MaxRecvMsgSize(64<<20), grpc.MaxSendMsgSize(64<<20),
				grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 1, PermitWithoutStream: true}))
			server.RegisterService(&echoDesc, newEcho())
			go func() { _ = server.Serve(l) }()
			b.Cleanup(server.Stop)
			attack(b, &testServer{addr: l.Addr()}, prepare)
		})
	}
}

func attack(b *testing.B, s *testServer, prepare func(*rawClient) []byte) {
	const bytes, streams = 4 << 20, 1000
	var cpu time.Duration
	var taken int
	for b.Loop() {
		c := s.raw(b, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		go func() { _, _ = io.Copy(io.Discard, c.conn) }()
		frames := prepare(c)
		for i := range streams {
			id := uint32(2*i + 3)
			c.open(id, false, usual("Count")...)
			c.check(c.framer.WriteData(id, true, rawMessage(10_000)))
		}
		before := cpuTime(b)
		taken += <-c.flood(frames, bytes)
		cpu += cpuTime(b) - before
		_ = c.conn.Close()
	}
	b.ReportMetric(float64(cpu.Nanoseconds())/float64(taken), "cpu-ns/byte")
	b.ReportMetric(cpu.Seconds()*1e3/float64(b.N), "cpu-ms/attack")
	b.ReportMetric(float64(taken)/float64(b.N)/1024, "KB/attack")
}

func cpuTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
