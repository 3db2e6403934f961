package clustersim

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/judge"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// unwell adds what is wrong with a node.
func (w *world) unwell(node int, format string, args ...any) {
	w.history.Add(judge.Event{
		Kind: judge.Broken, Rank: node, Text: fmt.Sprintf(format, args...),
	})
}

// left adds what a node that has ended has left open.
func (w *world) left(n int, b *box, memory string) {
	if w.script.Has(script.SourceHang, script.DiskHang) {
		return // what hangs when its last job ends stays until the process exits
	}
	if memory != "" {
		w.unwell(n, "%s", memory)
	}
	if open := b.disk.Files(); open > 0 {
		w.unwell(n, "%d files are left open", open)
	}
	if conns, listeners, sockets := w.network.Open(b.host); conns+listeners+sockets > 0 {
		w.unwell(n, "%d connections, %d listeners and %d sockets are left", conns, listeners, sockets)
	}
}
