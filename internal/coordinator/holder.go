package coordinator

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/exchange"
)

// holder serves what a cache has, and, where samples are read once for all nodes, what it has to
// read.
type holder struct {
	samples  Samples
	readOnce func(context.Context) (bool, error)
	read     func(bytes int64) // told of what was read from the source
}

// Held is exchange.Holder's.
func (h *holder) Held(id int32) ([]byte, uint32, bool) { return h.samples.Held(int(id)) }

// Sample is exchange.Holder's.
func (h *holder) Sample(ctx context.Context, id int32, send func([]byte, uint32) error) error {
	if !h.samples.Has(int(id)) {
		switch once, err := h.readOnce(ctx); {
		case err != nil:
			return err
		case !once:
			return exchange.ErrNotHeld
		}
	}
	source, err := h.samples.Serve(ctx, int(id), send)
	if source > 0 {
		h.read(source)
	}
	if errors.Is(err, dataset.ErrNoSample) {
		return exchange.ErrNotHeld
	}
	return err
}

// refusals are the hosts whose connections were refused. Each is named once, and only so many: the
// log lies in memory, and a flood must not fill it.
type refusals struct {
	mu    sync.Mutex
	hosts map[string]bool
}

const mostRefusals = 16

// first says whether this is to be told: the first one of its host.
func (r *refusals) first(addr net.Addr) bool {
	host, _, _ := net.SplitHostPort(addr.String())
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hosts[host] || len(r.hosts) == mostRefusals {
		return false
	}
	if r.hosts == nil {
		r.hosts = map[string]bool{}
	}
	r.hosts[host] = true
	return true
}
