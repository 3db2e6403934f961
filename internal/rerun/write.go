package rerun

// writer writes copies of samples into a class, one after another (writeback.Writer).
type writer struct {
	rate    float64 // MB/s; 0: at once
	queue   []int32 // what is being written comes first
	waiting float64 // MB of queue
}

// writeMemory is how many MB copies that wait may take (writeback.Memory).
const writeMemory = 32 * 1 << 20 / mega

// keep puts a sample that was read into its class, or has it written there, and likewise into
// classes that keep everything. If there is no memory for a copy it is left out, unless it was read
// ahead of time: its read waited for the memory.
func (n *node) keep(k int32, patient bool) {
	own, number, holds := n.class(k)
	if own != nil && !holds && (own.Memory || own.Write == 0) {
		n.in[k] |= there
		if !own.Memory {
			n.c.written[own.Name] += n.mb(k)
		}
	}
	for j := range n.writers {
		w, mb := &n.writers[j], n.mb(k)
		if w.rate == 0 || number != j+1 && !n.spec.Classes[j].KeepAll || n.in[k]&copied != 0 ||
			number == j+1 && holds ||
			w.waiting > 0 && w.waiting+mb > writeMemory && !patient {
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

// room reports whether classes may be filled: copies for fills take at most three quarters of the
// memory.
func (n *node) room() bool {
	for i := range n.writers {
		if n.writers[i].waiting >= writeMemory*3/4 {
			return false
		}
	}
	return true
}
