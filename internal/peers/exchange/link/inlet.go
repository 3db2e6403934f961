package link

import (
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

const (
	inletSize = 64 << 10
	// Samples of at least this size are read directly into their destination, except for what
	// arrived together with their header. For smaller ones a read per sample costs more than a copy
	// from a buffer that holds many of them.
	directSize = 16 << 10
	lowatSize  = 64 << 10
)

// inlet reads a client's connection. It is used by one goroutine.
//
// From a TCP socket it reads with readv: the rest of the payload into its destination, and what
// follows into the buffer, in one non-blocking system call. It waits without touching the
// destination, as call requires. Other connections (TLS, pipes in tests) do not support that; their
// payloads go through the buffer.
type inlet struct {
	conn net.Conn
	raw  syscall.RawConn // nil: not a TCP socket
	buf  []byte
	r, w int // buf[r:w] was read and not yet consumed
	// ahead is how much is read beyond what is requested: one header if samples are large, so that
	// their payloads do not go through the buffer.
	ahead int

	// lowat is how many bytes must have arrived before the reader is woken: as many as are certain
	// to arrive, up to lowatSize. Otherwise the reader would wake for every packet on a network
	// link that is slower than memory.
	lowat int

	step func(fd uintptr) bool // in.try, to avoid an allocation per read
	vecs [][]byte
	call *call
	off  int
	end  int // of what is read
	n    int
	err  error
}

func newInlet(conn net.Conn) *inlet {
	in := &inlet{
		conn:  conn,
		buf:   make([]byte, inletSize),
		ahead: inletSize,
		lowat: 1,
		vecs:  make([][]byte, 0, 2),
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			in.raw = raw
		}
	}
	in.step = in.try
	return in
}

// peek returns the next n bytes without consuming them.
func (in *inlet) peek(n int) ([]byte, error) {
	if in.w-in.r < n && len(in.buf)-in.r < n {
		in.w = copy(in.buf, in.buf[in.r:in.w])
		in.r = 0
	}
	for in.w-in.r < n {
		if in.r == in.w {
			in.r, in.w = 0, 0
		}
		if in.lowat != 1 {
			if err := in.raw.Control(func(fd uintptr) { in.wakeAt(fd, 1) }); err != nil {
				return nil, err
			}
		}
		end := min(len(in.buf), max(in.r+n, in.w+in.ahead))
		got, err := in.conn.Read(in.buf[in.w:end])
		in.w += got
		if err != nil && in.w-in.r < n {
			if err == io.EOF && in.w > in.r {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return in.buf[in.r : in.r+n], nil
}

// holds reports whether the buffer has all of the frame whose header is next.
func (in *inlet) holds(h wire.Header) bool {
	return uint64(in.w-in.r) >= wire.HeaderSize+uint64(h.Length)
}

// take consumes the frame whose header is next, which the buffer holds. It returns the payload,
// which stays where it is until the next call of peek or payload, and copies the header.
func (in *inlet) take(h wire.Header, head *[wire.HeaderSize]byte) []byte {
	copy(head[:], in.buf[in.r:])
	from := in.r + wire.HeaderSize
	in.r = from + int(h.Length)
	in.expect(int(h.Length))
	return in.buf[from:in.r]
}

// expect has what is read next suit samples of this length.
func (in *inlet) expect(length int) {
	in.ahead = inletSize
	if length >= directSize {
		in.ahead = wire.HeaderSize
	}
}

// next returns the header of the frame that is next, if it is a sample that the buffer holds.
func (in *inlet) next() (h wire.Header, ok bool) {
	if in.w-in.r < wire.HeaderSize {
		return h, false
	}
	h, err := wire.Parse(in.buf[in.r:], true)
	return h, err == nil && h.Kind.Answers() && in.holds(h)
}

// payload reads a sample's bytes into c's destination, or discards them if the caller has left.
func (in *inlet) payload(c *call, length int) error {
	in.expect(length)
	for off := 0; off < length; {
		if have := min(in.w-in.r, length-off); have > 0 {
			c.mu.Lock()
			if c.dst != nil {
				copy(c.dst[off:], in.buf[in.r:in.r+have])
			}
			c.mu.Unlock()
			in.r += have
			off += have
			continue
		}
		in.r, in.w = 0, 0
		if in.raw == nil {
			n, err := in.conn.Read(in.buf)
			if err != nil && n == 0 {
				return cut(err)
			}
			in.w = n
			continue
		}
		in.call, in.off = c, off
		in.end = length
		if err := in.raw.Read(in.step); err != nil {
			return cut(err)
		}
		if in.err != nil {
			return cut(in.err)
		}
		n := in.n
		if rest := length - off; n > rest {
			in.w, n = n-rest, rest
		}
		off += n
	}
	return nil
}

// try makes one non-blocking read. It returns false if nothing has arrived yet.
func (in *inlet) try(fd uintptr) bool {
	c := in.call
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := in.end - in.off
	in.vecs = in.vecs[:0]
	if c.dst != nil {
		in.vecs = append(in.vecs, c.dst[in.off:in.end], in.buf[:in.ahead])
	} else {
		// The buffer receives what is discarded; w must not count it.
		in.vecs = append(in.vecs, in.buf[:min(rest, len(in.buf))])
	}
	for {
		in.n, in.err = unix.Readv(int(fd), in.vecs)
		switch {
		case in.err == unix.EINTR:
			continue
		case in.err == unix.EAGAIN:
			in.wakeAt(fd, min(rest, lowatSize))
			return false
		case in.err == nil && in.n == 0:
			in.err = io.EOF
		}
		return true
	}
}

// wakeAt sets lowat. Linux checks at once whether that many bytes have arrived, so no wakeup is
// lost between a read that found less and this call.
func (in *inlet) wakeAt(fd uintptr, n int) {
	if n != in.lowat && unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) == nil {
		in.lowat = n
	}
}

// cut returns the error for a connection that ends within a payload.
func cut(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
