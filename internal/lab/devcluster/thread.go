package devcluster

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// errClosed is returned by methods of a closed cluster's parts.
var errClosed = errors.New("the cluster is closed")

// thread is an operating-system thread in its own namespaces. It keeps them alive as long as it
// lives, and runs calls inside them: processes that it starts and sockets that it opens belong to
// its namespaces. It is never returned to Go's scheduler: it ends with its goroutine, and with it
// end its namespaces and the processes that have PDEATHSIG set.
//
// Rejected: entering a namespace held by a file descriptor for each call. A thread that shares
// file-system state with others cannot leave a mount namespace again.
type thread struct {
	tid   int
	calls chan func()
	quit  chan struct{}
	done  chan struct{}
}

// newThread starts a thread, which first runs setup to create its namespaces.
func newThread(setup func() error) (*thread, error) {
	t := &thread{calls: make(chan func()), quit: make(chan struct{}), done: make(chan struct{})}
	started := make(chan error)
	go t.run(setup, started)
	if err := <-started; err != nil {
		<-t.done
		return nil, err
	}
	return t, nil
}

func (t *thread) run(setup func() error, started chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		// The main thread must not move: other processes see its namespaces as those of the
		// process, and it cannot end. While it is locked here, another goroutine gets another
		// thread.
		answer := make(chan error)
		go t.run(setup, answer)
		err := <-answer
		runtime.UnlockOSThread()
		started <- err
		return
	}
	defer close(t.done)
	t.tid = unix.Gettid()
	err := setup()
	started <- err
	for err == nil {
		select {
		case call := <-t.calls:
			call()
		case <-t.quit:
			return
		}
	}
}

// do calls f on the thread.
func (t *thread) do(f func() error) error {
	result := make(chan error, 1)
	select {
	case t.calls <- func() { result <- f() }:
		return <-result
	case <-t.done:
		return errClosed
	}
}

// close ends the thread. It must be called only once.
func (t *thread) close() {
	close(t.quit)
	<-t.done
	// The goroutine has ended, and its thread ends right after it; /proc shows when.
	for range 1000 {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", t.tid)); err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// namespace returns the identity of the thread's network namespace.
func (t *thread) namespace() (namespace, error) {
	path := fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), t.tid)
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return namespace{}, fmt.Errorf("stat %s: %w", path, err)
	}
	return namespace{PID: os.Getpid(), TID: t.tid, Inode: s.Ino}, nil
}
