package pacing

import (
	"math"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Socket paces a TCP connection. It is not safe for concurrent use. A nil Socket paces nothing.
type Socket struct {
	conn   *net.TCPConn
	pace   Pace
	unsent int // most bytes that the kernel may have to send, besides those on their way
	// What the kernel has:
	limit uint64 // bytes/s
	low   int    // bytes; see unsent
}

// none is no limit.
const none = math.MaxUint64

// Of returns a Socket for a connection, of which the kernel is to have no more to send than so many
// bytes, besides those on their way; nil if it is not one of TCP.
func Of(conn net.Conn, unsent int) *Socket {
	if tcp, ok := conn.(*net.TCPConn); ok {
		return &Socket{conn: tcp, unsent: unsent, limit: none}
	}
	return nil
}

// Adjust has the kernel send no faster than the path allows. To be called before writes. What the
// kernel cannot tell, or set, leaves the connection as it is.
func (s *Socket) Adjust(now time.Time) {
	if s == nil || !s.pace.Due(now) {
		return
	}
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { s.adjust(int(fd), now) })
}

func (s *Socket) adjust(fd int, now time.Time) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return
	}
	limit := uint64(none)
	if rate := s.pace.Observe(now, Path{
		RTT:      time.Duration(info.Rtt) * time.Microsecond,
		Shortest: time.Duration(info.Min_rtt) * time.Microsecond,
		Acked:    int64(info.Bytes_acked),
		Unacked:  int(info.Unacked),
	}); rate > 0 {
		limit = uint64(rate)
	}
	if limit != s.limit && unix.SetsockoptUint64(fd, unix.SOL_SOCKET,
		unix.SO_MAX_PACING_RATE, limit) == nil {
		s.limit = limit
	}
	// So that a write returns when the limit may change again.
	if low := s.pace.Burst(s.unsent); low != s.low && unix.SetsockoptInt(fd, unix.IPPROTO_TCP,
		unix.TCP_NOTSENT_LOWAT, low) == nil {
		s.low = low
	}
}

// Burst returns how many bytes to write at most before Adjust is called again.
func (s *Socket) Burst(most int) int {
	if s == nil {
		return most
	}
	return s.pace.Burst(most)
}
