package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// comparePage is memory that the processes of a comparison share, on one machine: the clock of the
// source's limit, the barrier at which ranks wait for each other after each step, as gradients are
// exchanged in training, and how far each node is. It is a file, so that processes in other
// namespaces map it by its path.
//
// Layout, in words of 8 bytes: 0 the limit's clock, in nanoseconds of the monotonic clock; 1 the
// barrier's count of those that have arrived and, in its upper half, its generation; from 8 on the
// steps that each node has finished.
type comparePage struct{ memory []byte }

const (
	pageBytes  = 4096
	pageSteps  = 8 // first word of the steps
	pageLimit  = 0
	pageArrive = 8  // byte of the count
	pageTurn   = 12 // byte of the generation
)

// createComparePage makes the file.
func createComparePage(path string) (*comparePage, error) {
	if err := os.WriteFile(path, make([]byte, pageBytes), 0o600); err != nil {
		return nil, err
	}
	return openComparePage(path)
}

// openComparePage maps the file. Its Close unmaps it.
func openComparePage(path string) (*comparePage, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	memory, err := unix.Mmap(int(f.Fd()), 0, pageBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return &comparePage{memory}, nil
}

func (p *comparePage) Close() error { return unix.Munmap(p.memory) }

func (p *comparePage) word(k int) *atomic.Int64 {
	return (*atomic.Int64)(unsafe.Pointer(&p.memory[8*k]))
}

func (p *comparePage) half(at int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&p.memory[at]))
}

// steps counts the steps that a node has finished.
func (p *comparePage) steps(node int) *atomic.Int64 { return p.word(pageSteps + node) }

// monotonic returns the time of the clock that all processes of the machine have, in nanoseconds.
func monotonic() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it never fails
	return now.Nano()
}

// reserve takes so many bytes of a rate in MB/s, behind what others took before, and returns when
// they have passed, as monotonic does.
func (p *comparePage) reserve(bytes int64, rate float64) (end int64) {
	clock, takes := p.word(pageLimit), int64(float64(bytes)*1e3/rate)
	for {
		was := clock.Load()
		end = max(was, monotonic()) + takes
		if clock.CompareAndSwap(was, end) {
			return end
		}
	}
}

// await waits until monotonic returns end.
func await(ctx context.Context, end int64) error {
	left := time.Duration(end - monotonic())
	if left <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	futexWait = 0
	futexWake = 1
	// futexTick is after how many nanoseconds a wait looks whether its context has ended.
	futexTick = 50_000_000
)

// barrier waits until so many processes have called it.
func (p *comparePage) barrier(ctx context.Context, processes int) error {
	if processes == 1 {
		return ctx.Err()
	}
	turn := p.half(pageTurn)
	now := turn.Load()
	if arrived := p.half(pageArrive); arrived.Add(1) == uint32(processes) {
		arrived.Store(0) // none arrives for the next turn before this one is over
		turn.Add(1)
		_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(turn)), futexWake,
			uintptr(processes), 0, 0, 0)
		return ctx.Err()
	}
	for turn.Load() == now {
		if err := ctx.Err(); err != nil {
			return err
		}
		limit := unix.NsecToTimespec(futexTick)
		_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(turn)), futexWait,
			uintptr(now), uintptr(unsafe.Pointer(&limit)), 0, 0)
	}
	return nil
}
