package clustersim

import (
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/process"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// keep notes what a node's caches hold.
func (w *world) keep(node int, classes []process.Class) {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := map[string]int64{}
	for _, c := range classes {
		held[c.Name] = c.Used
	}
	w.kept[node] = held
}

// warm checks that a node has what its caches held before the launch, unless plans change, another
// dataset may need the room, or something has gone wrong.
func (l *launch) warm(rank int, classes []process.Class) {
	if !l.script.Calm() || l.script.Plans != "" || l.script.Beside == script.Other ||
		l.script.Takes > 0 { // what was being read counted as well
		return
	}
	held := l.held[rank/l.Ranks]
	for _, c := range classes {
		// What was being read when processes were killed counted as well.
		if c.AtStart < held[c.Name]-int64(inFlight*l.script.Largest) {
			l.broken(rank, "class %s begins with %d bytes; it had %d", c.Name, c.AtStart, held[c.Name])
		}
	}
}

// inFlight is how many samples a node reads at the same time at most, for two jobs and other nodes.
const inFlight = 16

// forget notes that a node has lost what its caches held: those in memory, and if its disk has lost
// writes, all.
func (w *world) forget(node int, disk bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.kept[node], "memory")
	if disk {
		delete(w.kept, node)
	}
}
