package cluster

import "sync"

// outbox is an unbounded queue between a sender that must not block (the hub, under its lock) and a
// receiver that may. It refers to payloads and does not copy them.
type outbox[T any] struct {
	mu     sync.Mutex // guards queue and closed
	queue  []T
	closed bool
	wake   chan struct{} // has a token if the queue may have changed
}

func newOutbox[T any]() *outbox[T] { return &outbox[T]{wake: make(chan struct{}, 1)} }

func (o *outbox[T]) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// put appends v, unless the box is closed.
func (o *outbox[T]) put(v T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.queue = append(o.queue, v)
		o.signal()
	}
}

// close makes take return false once the queue is empty.
func (o *outbox[T]) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.signal()
}

// take waits for the next value. It returns false when the box is closed and empty, or done is
// closed. Only one goroutine may take at a time.
func (o *outbox[T]) take(done <-chan struct{}) (v T, ok bool) {
	for {
		o.mu.Lock()
		if len(o.queue) > 0 {
			v, o.queue = o.queue[0], o.queue[1:]
			o.mu.Unlock()
			return v, true
		}
		closed := o.closed
		o.mu.Unlock()
		if closed {
			return v, false
		}
		select {
		case <-o.wake:
		case <-done:
			return v, false
		}
	}
}
