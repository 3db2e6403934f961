// Package outbox is a queue between goroutines.
package outbox

import (
	"sync"
)

// Box is a queue between a sender that must not block (the hub, under its lock) and a receiver
// that may. It refers to payloads and does not copy them. With a limit, it refuses what is put over
// that.
type Box[T any] struct {
	limit int // values; 0: no limit

	mu     sync.Mutex // guards queue, closed and given
	queue  []T
	closed bool
	given  bool          // up: the receiver does not take what is put
	wake   chan struct{} // has a token if the queue may have changed
}

// New returns a queue of at most so many values, or of any number if limit is 0.
func New[T any](limit int) *Box[T] {
	return &Box[T]{limit: limit, wake: make(chan struct{}, 1)}
}

func (o *Box[T]) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Put appends v, unless the box is closed. It returns false if the box is full.
func (o *Box[T]) Put(v T) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return true
	}
	if o.limit > 0 && len(o.queue) >= o.limit {
		return false
	}
	o.queue = append(o.queue, v)
	o.signal()
	return true
}

// Close makes Take return false once the queue is empty.
func (o *Box[T]) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.signal()
}

// Abandon closes the box and drops what is queued.
func (o *Box[T]) Abandon() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.given = true
	o.queue = nil
	o.signal()
}

// Abandoned reports whether Abandon was called.
func (o *Box[T]) Abandoned() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.given
}

// Take waits for the next value. It returns false when the box is closed and empty, or done is
// closed. Only one goroutine may take at a time.
func (o *Box[T]) Take(done <-chan struct{}) (v T, ok bool) {
	for {
		if v, ok = o.TakeIf(func(T) bool { return true }); ok {
			return v, true
		}
		o.mu.Lock()
		over := o.closed && len(o.queue) == 0
		o.mu.Unlock()
		if over {
			return v, false
		}
		select {
		case <-o.wake:
		case <-done:
			return v, false
		}
	}
}

// TakeIf returns the next value if there is one for which fits is true.
func (o *Box[T]) TakeIf(fits func(T) bool) (v T, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 || !fits(o.queue[0]) {
		return v, false
	}
	var none T
	v, o.queue[0] = o.queue[0], none // so that it can be freed before the queue's array is
	o.queue = o.queue[1:]
	return v, true
}
