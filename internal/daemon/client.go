package daemon

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"github.com/hdmlp/hdmlp/internal/protocol"
)

// Address is the abstract Unix socket of this user's daemon, or the one that
// HDMLP_SOCKET names.
func Address(environment func(string) string) *net.UnixAddr {
	name := environment("HDMLP_SOCKET")
	if name == "" {
		name = "hdmlp-" + strconv.Itoa(os.Geteuid())
	}
	return &net.UnixAddr{Name: "@" + name, Net: "unix"}
}

// Client is a connection that commands use to ask the daemon. It is not safe for
// concurrent use.
type Client struct {
	conn *net.UnixConn
	r    *bufio.Reader
	last uint64
}

// Dial connects to a running daemon.
func Dial(a *net.UnixAddr, version string) (*Client, error) {
	conn, err := net.DialUnix("unix", nil, a)
	if err != nil {
		return nil, fmt.Errorf("no daemon is running for this user at %s: %w", a.Name, err)
	}
	cred, err := peer(conn)
	if err == nil && int(cred.Uid) != os.Geteuid() {
		err = fmt.Errorf("the daemon at %s belongs to user %d", a.Name, cred.Uid)
	}
	c := &Client{conn: conn, r: bufio.NewReader(conn)}
	if err == nil {
		err = c.send(protocol.Hello, protocol.HelloMessage{Protocol: protocol.Version, Version: version, PID: os.Getpid()})
	}
	if err == nil {
		_, err = c.receive(protocol.Welcome)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Call asks the daemon and decodes its answer into result. What the daemon
// refuses is a *protocol.ErrorMessage.
func (c *Client) Call(method string, params, result any) error {
	p, err := json.Marshal(params)
	if err != nil {
		return err
	}
	c.last++
	if err := c.send(protocol.Call, protocol.CallMessage{ID: c.last, Method: method, Params: p}); err != nil {
		return err
	}
	payload, err := c.receive(protocol.Reply)
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
			return nil, errors.Join(errors.New("the daemon ended the connection"), err)
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
