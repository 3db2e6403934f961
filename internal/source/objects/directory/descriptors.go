package directory

import (
	"container/list"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// descriptors are open files, those that were used last. It is safe for concurrent use.
type descriptors struct {
	limit int

	mu     sync.Mutex // guards the following
	byName map[string]*descriptor
	idle   list.List // of *descriptor that no read uses, the one used last in front
	closed bool
}

// descriptor is an open file.
type descriptor struct {
	number int
	name   string
	order  order
	// guarded by descriptors.mu
	reads   int           // in progress
	dropped bool          // it is not in byName, and is closed after the last read
	at      *list.Element // in idle, or nil
}

// advise has the kernel read ahead of ranges that are read in order, but not around others, which
// would be half as much again as samples of 25 KB.
func (f *descriptor) advise(offset int64) {
	random, changed := f.order.next(offset)
	switch {
	case changed && random:
		_ = unix.Fadvise(f.number, 0, 0, unix.FADV_RANDOM)
	case changed:
		_ = unix.Fadvise(f.number, 0, 0, unix.FADV_NORMAL)
	}
}

// announced has the kernel not read ahead on its own: what follows is asked for ahead.
func (f *descriptor) announced() {
	f.order.score.Store(-mostScore)
	if !f.order.random.Swap(true) {
		_ = unix.Fadvise(f.number, 0, 0, unix.FADV_RANDOM)
	}
}

// order finds whether reads of a file follow one another in the file. It is safe for concurrent
// use; reads at the same time may be in any order, as those of one batch are.
type order struct {
	at     atomic.Int64 // where the last read began
	score  atomic.Int32 // reads in order less others, from -mostScore to mostScore
	random atomic.Bool  // what was returned last
}

const (
	near      = 256 << 10 // how far apart reads begin that are in order
	mostScore = 4
)

// next takes the next read, and returns whether reads are anywhere, and whether they were not
// before. The first read of a file is anywhere.
func (o *order) next(offset int64) (random, changed bool) {
	last := o.at.Swap(offset+1) - 1 // -1: there was none
	step := int32(-1)
	if last >= 0 && max(last, offset)-min(last, offset) <= near {
		step = 1
	}
	score := min(max(o.score.Load()+step, -mostScore), mostScore)
	o.score.Store(score)
	random = score < 0
	return random, o.random.Swap(random) != random
}

func newDescriptors(limit int) *descriptors {
	return &descriptors{limit: limit, byName: map[string]*descriptor{}}
}

// take returns the file of that name, which it opens if it is not open. put must follow.
func (d *descriptors) take(name string, open func() (int, error)) (*descriptor, error) {
	if f := d.find(name); f != nil {
		return f, nil
	}
	number, err := open()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f := &descriptor{number: number, name: name, reads: 1}
	if d.byName[name] != nil || d.closed { // another read has opened it meanwhile
		f.dropped = true
		return f, nil
	}
	d.byName[name] = f
	d.trim()
	return f, nil
}

func (d *descriptors) find(name string) *descriptor {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.byName[name]
	if f == nil {
		return nil
	}
	if f.at != nil {
		d.idle.Remove(f.at)
		f.at = nil
	}
	f.reads++
	return f
}

// put ends a read.
func (d *descriptors) put(f *descriptor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.reads--; f.reads > 0 {
		return
	}
	if f.dropped {
		_ = unix.Close(f.number)
		return
	}
	f.at = d.idle.PushFront(f)
	d.trim()
}

// drop has a file that a read uses closed after it: the next read opens what is there then.
func (d *descriptors) drop(f *descriptor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(f)
}

// forget drops all files, and reports whether there were any.
func (d *descriptors) forget() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	any := len(d.byName) > 0
	for _, f := range d.byName {
		d.remove(f)
	}
	return any
}

// close drops all files for good.
func (d *descriptors) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.forget()
}

// remove removes f; mu is held.
func (d *descriptors) remove(f *descriptor) {
	if f.dropped {
		return
	}
	f.dropped = true
	delete(d.byName, f.name)
	if f.at != nil {
		d.idle.Remove(f.at)
		f.at = nil
		_ = unix.Close(f.number)
	}
}

// trim closes those that were used least recently; mu is held. Files in use count, and stay.
func (d *descriptors) trim() {
	for len(d.byName) > d.limit && d.idle.Len() > 0 {
		d.remove(d.idle.Back().Value.(*descriptor))
	}
}
