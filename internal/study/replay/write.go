package replay

import "github.com/hdmlp/hdmlp/internal/model/routing"

// writer writes copies of samples into a class, one after another (writeback.Writer).
type writer struct {
	rate     float64 // MB/s; 0: at once
	queue    []int32 // what is being written comes first
	waiting  float64 // MB of queue
	reserved map[int32]bool
	promised float64 // MB of reserved
}

const (
	// writeMemory is how many MB copies that wait may take, and writeAhead for a sample to be read
	// ahead of time (writeback.Writer).
	writeMemory = routing.CopyMemory / perMega
	writeAhead  = routing.AheadMemory / perMega
)

func (w *writer) taken() float64 { return w.waiting + w.promised }

func (w *writer) fits(mb float64) bool {
	return len(w.queue)+len(w.reserved) == 0 || w.taken()+mb <= writeMemory
}

// writes reports whether a sample that was read is to be written to class j (from 0).
func (n *node) writes(k int32, j int) bool {
	_, number, holds := n.class(k)
	return n.writers[j].rate > 0 && (number == j+1 || n.spec.Classes[j].KeepAll) &&
		n.in[k]&copied == 0 && (number != j+1 || !holds)
}

// reserve reserves memory for the copies of a sample that is to be read ahead of time, and reports
// whether there was some (writeback.Writers).
func (n *node) reserve(k int32) bool {
	mb := n.mb(k)
	for j := range n.writers {
		w := &n.writers[j]
		switch {
		case w.reserved[k] || !n.writes(k, j):
		case w.taken() >= writeAhead || !w.fits(mb):
			n.unreserve(k)
			return false
		default:
			if w.reserved == nil {
				w.reserved = map[int32]bool{}
			}
			w.reserved[k] = true
			w.promised += mb
		}
	}
	return true
}

// unreserve returns the memory that was reserved for copies that did not come.
func (n *node) unreserve(k int32) {
	for j := range n.writers {
		n.writers[j].unreserve(k, n.mb(k))
	}
}

func (w *writer) unreserve(k int32, mb float64) {
	if w.reserved[k] {
		delete(w.reserved, k)
		w.promised -= mb
	}
}

// keep puts a sample that was read into its class, or has it written there, and likewise into
// classes that keep everything. If there is no memory for a copy it is left out.
func (n *node) keep(k int32) {
	own, number, holds := n.class(k)
	if own != nil && !holds && (own.Memory || own.Write == 0) {
		n.in[k] |= there
		if !own.Memory {
			n.c.written[own.Name] += n.mb(k)
		}
	}
	for j := range n.writers {
		w, mb := &n.writers[j], n.mb(k)
		w.unreserve(k, mb)
		if !n.writes(k, j) || !w.fits(mb) {
			continue
		}
		if number == j+1 {
			n.in[k] |= copied
		}
		w.waiting += mb
		if w.queue = append(w.queue, k); len(w.queue) == 1 {
			n.write(j)
		}
	}
}

// write writes what is first in the queue of class j's writer.
func (n *node) write(j int) {
	w := &n.writers[j]
	k := w.queue[0]
	n.files[j].Occupy(int(n.c.job.Sizes[k]))
	n.c.events.after(n.mb(k)/w.rate, func() {
		n.files[j].Occupy(-int(n.c.job.Sizes[k]))
		if n.in[k]&copied != 0 {
			n.in[k] = n.in[k]&^copied | there
		}
		w.waiting -= n.mb(k)
		n.c.written[n.spec.Classes[j].Name] += n.mb(k)
		if w.queue = w.queue[1:]; len(w.queue) > 0 {
			n.write(j)
		}
		n.dispatch() // there may be room for fills again
	})
}
