package daemon

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
	"github.com/hdmlp/hdmlp/internal/daemon/socket"
)

// answerTimeout is how long a daemon may take to answer. For its answer it waits for the other
// nodes of a job for at most 2 s.
const answerTimeout = 10 * time.Second

// Client is a connection of a command to the daemon. It is not safe for concurrent use.
type Client struct {
	conn    *net.UnixConn
	r       *bufio.Reader
	address string
	pid     int             // the daemon's, from the kernel; 0: in a PID namespace not visible here
	last    uint64          // ID of the last call
	ctx     context.Context // the connection is closed when it ends
	release func() bool     // stops watching ctx
}

// Dial connects to a running daemon of the given version; the connection is closed when ctx ends.
// If the daemon has another version or protocol, Dial returns a *protocol.ErrorMessage of
// KindVersion.
func Dial(ctx context.Context, a *net.UnixAddr, version string) (*Client, error) {
	c, welcome, err := dial(ctx, a, version)
	if err == nil && welcome.Version != version {
		err = versionsDiffer(welcome.Version, welcome.PID, version, os.Getpid())
	}
	if err != nil && c != nil {
		c.Close()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// dial connects to a daemon of any version. If the daemon answers HELLO with an error, dial returns
// both the error and a client, which may only be closed.
func dial(ctx context.Context, a *net.UnixAddr,
	version string,
) (*Client, *protocol.WelcomeMessage, error) {
	conn, err := net.DialUnix("unix", nil, a)
	switch {
	case notListening(err):
		return nil, nil, &absentError{a.Name, err}
	case errors.Is(err, unix.EAGAIN):
		return nil, nil, fmt.Errorf("the process that listens at %s does not accept connections; "+
			"it is stopped or overloaded (`fuser %[1]s` or `ss -xlp` shows which "+
			"process it is): %w",
			a.Name, err)
	case err != nil:
		return nil, nil, fmt.Errorf("connect to the daemon at %s: %w", a.Name, err)
	}
	cred, err := socket.Peer(conn)
	if err == nil && int(cred.Uid) != os.Geteuid() {
		err = socket.Foreign(a, cred.Uid)
	}
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	c := &Client{
		conn:    conn,
		r:       bufio.NewReader(conn),
		address: a.Name,
		pid:     int(cred.Pid),
		ctx:     ctx,
	}
	c.release = context.AfterFunc(ctx, func() { conn.Close() })
	payload, err := c.ask(protocol.Hello,
		protocol.HelloMessage{Protocol: protocol.Version, Version: version, PID: os.Getpid()},
		protocol.Welcome)
	welcome := new(protocol.WelcomeMessage)
	if err == nil {
		err = json.Unmarshal(payload, welcome)
	}
	return c, welcome, err
}

// absentError reports that no daemon is running.
type absentError struct {
	address string
	cause   error // ECONNREFUSED or ENOENT, which adds nothing
}

func (e *absentError) Error() string {
	return fmt.Sprintf("no daemon is running for this user at %s: training processes start one by "+
		"themselves, `hdmlp serve` starts one by hand", e.address)
}

func (e *absentError) Unwrap() error { return e.cause }

// notListening reports whether a connection failed because nothing listens there.
func notListening(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT)
}

// Find connects to the user's daemon. If none listens at the endpoint of this process's
// environment, it tries the endpoint of a daemon that was started with a different one.
func Find(ctx context.Context, e socket.Endpoint, version string) (*Client, error) {
	c, err := Dial(ctx, e.Addr, version)
	if notListening(err) && e.Other != nil {
		other, otherErr := Dial(ctx, e.Other, version)
		if otherErr == nil || isVersion(otherErr) {
			return other, otherErr
		}
	}
	return c, err
}

// isVersion reports whether err means that the daemon has another version.
func isVersion(err error) bool {
	var m *protocol.ErrorMessage
	return errors.As(err, &m) && m.Kind == protocol.KindVersion
}

// versionsDiffer is the error for a daemon and a process of different versions.
func versionsDiffer(daemon string, daemonPID int, process string,
	processPID int,
) *protocol.ErrorMessage {
	return &protocol.ErrorMessage{
		Kind: protocol.KindVersion,
		Message: fmt.Sprintf("the daemon (pid %d) is hdmlp %s, but this process (pid %d) is "+
			"hdmlp %s: both must have the same version; stop the daemon with `hdmlp stop`, and "+
			"the next process starts one of its own version, or set HDMLP_SOCKET to another "+
			"path or name to run a second daemon",
			daemonPID, daemon, processPID, process),
		Details: map[string]any{"daemon": daemon, "process": process, "pid": daemonPID},
	}
}

// Close ends the connection.
func (c *Client) Close() error {
	c.release()
	return c.conn.Close()
}

// Call calls a method of the daemon and decodes its answer into result. An error from the daemon is
// a *protocol.ErrorMessage.
func (c *Client) Call(method string, params, result any) error {
	p, err := json.Marshal(params)
	if err != nil {
		return err
	}
	c.last++
	payload, err := c.ask(protocol.Call,
		protocol.CallMessage{ID: c.last, Method: method, Params: p}, protocol.Reply)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	var reply struct {
		ID     uint64                 `json:"id"`
		Result json.RawMessage        `json:"result"`
		Error  *protocol.ErrorMessage `json:"error"`
	}
	if err := json.Unmarshal(payload, &reply); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	if reply.Error != nil {
		return reply.Error
	}
	return json.Unmarshal(reply.Result, result)
}

// ask sends a message, and returns the payload of the answer, a frame of type answer.
func (c *Client) ask(t protocol.Type, v any, answer protocol.Type) ([]byte, error) {
	err := c.conn.SetDeadline(time.Now().Add(answerTimeout))
	if err == nil {
		err = c.send(t, v)
	}
	var payload []byte
	if err == nil {
		payload, err = c.receive(answer)
	}
	switch {
	case err != nil && c.ctx.Err() != nil:
		return nil, c.ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, c.noAnswer()
	}
	if errors.Is(err, protocol.ErrProtocol) {
		return nil, fmt.Errorf("the process that answers at %s is not an HDMLP daemon (`ss -xlp` "+
			"shows which process it is); set HDMLP_SOCKET to another path or name: %w", c.address,
			err)
	}
	return payload, err
}

// noAnswer is the error for a daemon that does not answer in time.
func (c *Client) noAnswer() error {
	text := fmt.Sprintf("the daemon at %s did not answer within %v: it is stopped or overloaded, "+
		"or another program listens there; ", c.address, answerTimeout)
	if c.pid <= 0 {
		return errors.New(text +
			"its process is in another PID namespace and not visible here: resume it (kill " +
			"-CONT) or end it (kill -KILL) there")
	}
	return fmt.Errorf("%sits process is %d: see `ps -o pid,stat,args -p %[2]d`; `kill -CONT "+
		"%[2]d` resumes a stopped one, `kill -KILL %[2]d` ends it, and the jobs that it "+
		"serves then fail", text, c.pid)
}

func (c *Client) send(t protocol.Type, v any) error {
	frame, err := protocol.AppendJSON(nil, t, v)
	if err == nil {
		_, err = c.conn.Write(frame)
	}
	return err
}

// receive reads frames up to the first of type t.
func (c *Client) receive(t protocol.Type) ([]byte, error) {
	for {
		var header [8]byte
		if _, err := io.ReadFull(c.r, header[:]); err != nil {
			return nil, errors.Join(errors.New("the daemon closed the connection"), err)
		}
		size := binary.LittleEndian.Uint32(header[:])
		if size > protocol.MaxPayload {
			return nil, fmt.Errorf("%w: frame of %d bytes", protocol.ErrProtocol, size)
		}
		payload := make([]byte, size)
		if _, err := io.ReadFull(c.r, payload); err != nil {
			return nil, err
		}
		switch protocol.Type(header[4]) {
		case t:
			return payload, nil
		case protocol.Error:
			m := new(protocol.ErrorMessage)
			if err := json.Unmarshal(payload, m); err != nil {
				return nil, err
			}
			return nil, m
		}
	}
}
