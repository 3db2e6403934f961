package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
	"github.com/hdmlp/hdmlp/internal/source"
)

const (
	// viewFiles is the number of descriptors of a view: the dataset's root and "/".
	viewFiles = 2
	// maxPendingFiles is the limit on received descriptors that no frame has claimed yet.
	maxPendingFiles = 4 * viewFiles
	// renewTimeout is how long a process may take to reopen its view: it answers when it next waits
	// for a batch.
	renewTimeout = 30 * time.Second
)

// inbox reads a connection, and queues the descriptors that come with its bytes. It belongs to the
// connection's reader.
type inbox struct {
	conn  *net.UnixConn
	oob   []byte
	files []*os.File
}

func newInbox(conn *net.UnixConn) *inbox {
	return &inbox{conn: conn, oob: make([]byte, unix.CmsgSpace(4*maxPendingFiles))}
}

// Read implements io.Reader.
func (in *inbox) Read(p []byte) (int, error) {
	n, oobn, flags, _, err := in.conn.ReadMsgUnix(p, in.oob)
	if oobn > 0 {
		if taken := in.take(in.oob[:oobn]); err == nil {
			err = taken
		}
	}
	if flags&unix.MSG_CTRUNC != 0 && err == nil {
		err = fmt.Errorf("%w: file descriptors were lost in transit: too many at once, or too "+
			"many open files (ulimit -n)", protocol.ErrProtocol)
	}
	n = max(n, 0) // it is -1 if there is an error
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (in *inbox) take(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // it carries no descriptors
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			in.files = append(in.files, os.NewFile(uintptr(fd), "view"))
		}
	}
	if len(in.files) > maxPendingFiles {
		return fmt.Errorf("%w: %d file descriptors belong to no frame", protocol.ErrProtocol,
			len(in.files))
	}
	return nil
}

// view returns what comes with a frame that announces a view: two descriptors or, of a URL, one
// from which its Access is read.
func (in *inbox) view(url bool) (*source.View, error) {
	if url {
		return in.access()
	}
	if len(in.files) < viewFiles {
		return nil, fmt.Errorf("%w: a frame that must carry %d file descriptors carried %d",
			protocol.ErrProtocol, viewFiles, len(in.files))
	}
	v := &source.View{Root: in.files[0], Slash: in.files[1]}
	in.files = in.files[viewFiles:]
	return v, nil
}

// access reads an Access from a descriptor, and closes that.
func (in *inbox) access() (*source.View, error) {
	if len(in.files) == 0 {
		return nil, fmt.Errorf("%w: a frame that must carry how a URL is reached came without its "+
			"file descriptor", protocol.ErrProtocol)
	}
	f := in.files[0]
	in.files = in.files[1:]
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() { // reading something else might take forever
		err = errors.New("it is no file in memory")
	}
	if err == nil {
		var a *source.Access
		if a, err = source.ReadAccess(io.NewSectionReader(f, 0, info.Size())); err == nil {
			return &source.View{Access: a}, nil
		}
	}
	return nil, fmt.Errorf("%w: how a URL is reached: %w", protocol.ErrProtocol, err)
}

// file returns the descriptor of a frame that must carry one.
func (in *inbox) file() (*os.File, error) {
	if len(in.files) == 0 {
		return nil, fmt.Errorf("%w: a frame that must carry a list of samples came without its "+
			"file descriptor", protocol.ErrProtocol)
	}
	f := in.files[0]
	in.files = in.files[1:]
	return f, nil
}

func (in *inbox) close() {
	for _, f := range in.files {
		_ = f.Close()
	}
	in.files = nil
}

// renewal is the state of a request to the process to reopen its view of the dataset.
type renewal struct {
	serial sync.Mutex // held during a request, so that there is one at a time

	mu      sync.Mutex   // guards answers
	answers chan renewed // nil: no request is pending
}

type renewed struct {
	view *source.View
	err  error
}

// renew asks the process to reopen its dataset's root and "/", and waits for the descriptors.
func (x *conn) renew(ctx context.Context) (*source.View, error) {
	x.renewal.serial.Lock()
	defer x.renewal.serial.Unlock()
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	answers := make(chan renewed, 1)
	x.renewal.mu.Lock()
	x.renewal.answers = answers
	x.renewal.mu.Unlock()
	defer func() { // close an answer that comes too late
		x.renewal.mu.Lock()
		defer x.renewal.mu.Unlock()
		x.renewal.answers = nil
		select {
		case late := <-answers:
			_ = late.view.Close()
		default:
		}
	}()
	// Ends when the process reads, or with the connection. It is not one of x.tasks, which the
	// connection may be waiting for already.
	go func() {
		_ = x.send(protocol.AppendFrame(nil, protocol.Renew, nil))
	}()
	select {
	case a := <-answers:
		return a.view, a.err
	case <-x.ended:
		return nil, errors.New("the process that opened the dataset is gone")
	case <-ctx.Done():
		return nil, fmt.Errorf("the process that opened the dataset did not reopen it: %w", ctx.Err())
	}
}

// viewed handles VIEW, the answer to RENEW.
func (x *conn) viewed(p []byte, in *inbox) error {
	var m protocol.ViewMessage
	if err := protocol.DecodeJSON(p, &m); err != nil {
		return err
	}
	a := renewed{err: errors.New(m.Error)}
	if m.View {
		view, err := in.view(x.atURL)
		if err != nil {
			return err
		}
		a = renewed{view: view}
	}
	x.renewal.mu.Lock()
	defer x.renewal.mu.Unlock()
	if x.renewal.answers == nil {
		_ = a.view.Close()
		return nil
	}
	x.renewal.answers <- a
	x.renewal.answers = nil
	return nil
}
