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

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/protocol"
)

const (
	// viewFiles is how many descriptors a view has: the dataset's root and "/".
	viewFiles = 2
	// mostFiles is how many descriptors may have come and not been asked for.
	mostFiles = 4 * viewFiles
	// renewTime is how long a process may take to open its view again: it answers when it next
	// waits for a batch.
	renewTime = 30 * time.Second
)

// inbox reads a connection, and keeps the descriptors that come with its bytes, in order. It
// belongs to the connection's reader.
type inbox struct {
	conn  *net.UnixConn
	oob   []byte
	files []*os.File
}

func newInbox(conn *net.UnixConn) *inbox {
	return &inbox{conn: conn, oob: make([]byte, unix.CmsgSpace(4*mostFiles))}
}

// Read is io.Reader's.
func (in *inbox) Read(p []byte) (int, error) {
	n, oobn, flags, _, err := in.conn.ReadMsgUnix(p, in.oob)
	if oobn > 0 {
		if taken := in.take(in.oob[:oobn]); err == nil {
			err = taken
		}
	}
	if flags&unix.MSG_CTRUNC != 0 && err == nil {
		err = fmt.Errorf("%w: descriptors were lost on the way: too many at once, or too many "+
			"open files (ulimit -n)", protocol.ErrProtocol)
	}
	n = max(n, 0) // it is -1 with an error
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
			continue // it carries none
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			in.files = append(in.files, os.NewFile(uintptr(fd), "view"))
		}
	}
	if len(in.files) > mostFiles {
		return fmt.Errorf("%w: %d descriptors that belong to no frame", protocol.ErrProtocol,
			len(in.files))
	}
	return nil
}

// view takes the two descriptors of a frame that says it brought them.
func (in *inbox) view() (*dataset.View, error) {
	if len(in.files) < viewFiles {
		return nil, fmt.Errorf("%w: a frame that is to bring %d descriptors brought %d",
			protocol.ErrProtocol, viewFiles, len(in.files))
	}
	v := &dataset.View{Root: in.files[0], Slash: in.files[1]}
	in.files = in.files[viewFiles:]
	return v, nil
}

// file takes the one descriptor of a frame that brings one.
func (in *inbox) file() (*os.File, error) {
	if len(in.files) == 0 {
		return nil, fmt.Errorf("%w: a frame that is to bring a list of samples came without "+
			"its descriptor", protocol.ErrProtocol)
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

// renewal is a process's view of its dataset that is asked for again.
type renewal struct {
	one sync.Mutex // held while one is asked for

	mu      sync.Mutex // guards what follows
	answers chan renewed
}

type renewed struct {
	view *dataset.View
	err  error
}

// renew has the process open its dataset's root and "/" again.
func (x *conn) renew(ctx context.Context) (*dataset.View, error) {
	x.renewal.one.Lock()
	defer x.renewal.one.Unlock()
	ctx, cancel := context.WithTimeout(ctx, renewTime)
	defer cancel()
	answers := make(chan renewed, 1)
	x.renewal.mu.Lock()
	x.renewal.answers = answers
	x.renewal.mu.Unlock()
	defer func() { // an answer that is late is nobody's
		x.renewal.mu.Lock()
		defer x.renewal.mu.Unlock()
		x.renewal.answers = nil
		select {
		case late := <-answers:
			_ = late.view.Close()
		default:
		}
	}()
	// ends when the process reads, or with the connection. No task, which the connection may be
	// waiting for already
	go func() {
		_ = x.send(protocol.AppendFrame(nil, protocol.Renew, nil))
	}()
	select {
	case a := <-answers:
		return a.view, a.err
	case <-x.over:
		return nil, errors.New("the process that opened it is gone")
	case <-ctx.Done():
		return nil, fmt.Errorf("the process that opened it did not open it again: %w", ctx.Err())
	}
}

// viewed handles a VIEW.
func (x *conn) viewed(p []byte, in *inbox) error {
	var m protocol.ViewMessage
	if err := protocol.DecodeJSON(p, &m); err != nil {
		return err
	}
	a := renewed{err: errors.New(m.Error)}
	if m.View {
		view, err := in.view()
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
