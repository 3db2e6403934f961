package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/daemon/socket"
)

// stopTimeout is how long Stop waits for the daemon to end: for connections that hang
// (shutdownTimeout), and for caches that are written to disk.
const stopTimeout = 30 * time.Second

// Stop ends the user's daemon, which may have another version, and returns once its process is
// gone, so that what it held can be used or removed. Unless force is set, it fails if jobs are
// running. Of a daemon in another PID namespace, or in this process, it waits for the connection's
// end alone.
func Stop(ctx context.Context, e socket.Endpoint, version string, force bool) error {
	c, _, err := dial(ctx, e.Addr, version)
	if notListening(err) && e.Other != nil {
		other, _, otherErr := dial(ctx, e.Other, version)
		switch {
		case otherErr == nil || isVersion(otherErr):
			c, err = other, otherErr
		case other != nil:
			other.Close()
		}
	}
	if c == nil {
		return err
	}
	defer c.Close()
	process := -1
	if c.pid > 0 && c.pid != os.Getpid() {
		// The daemon has just answered, so the PID has not been reused.
		if fd, openErr := unix.PidfdOpen(c.pid, 0); openErr == nil {
			process = fd
			defer unix.Close(fd)
		}
	}
	switch {
	case err == nil:
		err = c.Call("shutdown", map[string]any{"force": force}, &struct{}{})
	case !isVersion(err):
	case !force:
		return fmt.Errorf("%w: it cannot be asked whether jobs are running; `hdmlp stop --force` "+
			"ends it anyway, and running jobs then fail with an error", err)
	case c.pid <= 0:
		return fmt.Errorf("%w: its process is in another PID namespace and not visible here; "+
			"end it there", err)
	default:
		if err = unix.Kill(c.pid, unix.SIGTERM); err != nil {
			return fmt.Errorf("end the daemon, process %d: %w", c.pid, err)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) { // EOF: it ended before it could answer
		return err
	}
	return c.awaitEnd(process)
}

// awaitEnd waits until the daemon has closed the connection, and its process, if a descriptor of it
// is given, has ended.
func (c *Client) awaitEnd(process int) error {
	deadline := time.Now().Add(stopTimeout)
	err := c.conn.SetDeadline(deadline)
	if err == nil {
		_, err = io.Copy(io.Discard, c.r)
	}
	for process >= 0 && c.ctx.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		if time.Now().After(deadline) {
			err = os.ErrDeadlineExceeded
			break
		}
		events := []unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}
		if n, _ := unix.Poll(events, 100); n > 0 {
			return nil
		}
	}
	switch {
	case c.ctx.Err() != nil:
		return c.ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return c.notEnded()
	}
	return nil // a connection that was reset has ended as well
}

// notEnded is the error for a daemon that does not end in time.
func (c *Client) notEnded() error {
	text := fmt.Sprintf("the daemon at %s has been asked to end, but has not within %v: its log "+
		"says what it waits for; ", c.address, stopTimeout)
	if c.pid <= 0 {
		return errors.New(text + "its process is in another PID namespace and not visible here: " +
			"end it (kill -KILL) there")
	}
	return fmt.Errorf("%sits process is %d: `kill -KILL %[2]d` ends it at once", text, c.pid)
}
