package devcluster

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// errClosed is what a closed cluster's parts answer.
var errClosed = errors.New("the cluster is closed")

// thread is an operating-system thread in namespaces of its own. It holds them
// for as long as it lives, and carries out what is to happen inside: processes
// that it starts and sockets that it opens belong to its namespaces. It is never
// given back to Go's scheduler: it ends with its goroutine, and its namespaces with
// it, as do the processes that asked for that (PDEATHSIG).
//
// Rejected: entering a namespace held by a file descriptor for each call. A
// mount namespace can not be left again by a thread that others share files with.
type thread struct {
	tid   int
	calls chan func()
	quit  chan struct{}
	done  chan struct{}
}

// newThread starts a thread, which runs setup first: to make its namespaces.
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
		// The process's main thread stays where it is: its namespaces are the
		// process's to everybody who looks, and it can not end. While it is
		// locked here, another goroutine gets another thread.
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

// close ends the thread; it must be called once.
func (t *thread) close() {
	close(t.quit)
	<-t.done
	// The goroutine has ended, its thread does at once; the kernel tells when.
	for range 1000 {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", t.tid)); err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// namespace names the thread's network namespace.
func (t *thread) namespace() (namespace, error) {
	path := fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), t.tid)
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return namespace{}, fmt.Errorf("stat %s: %w", path, err)
	}
	return namespace{PID: os.Getpid(), TID: t.tid, Inode: s.Ino}, nil
}
