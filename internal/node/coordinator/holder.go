package coordinator

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/peers/exchange"
	"github.com/hdmlp/hdmlp/internal/source"
)

// holder implements exchange.Holder: it serves the samples of a cache, and, where samples are read
// once for all nodes, those that it has to read.
type holder struct {
	samples  Samples
	readOnce func(context.Context) (bool, error)
	read     func(bytes int64) // called with the bytes read from the source
}

// Held implements exchange.Holder.
func (h *holder) Held(id int32, w exchange.Want) (exchange.Copy, bool) {
	c, held := h.samples.Held(int(id), w)
	return exchange.Copy(c), held
}

// Sample implements exchange.Holder.
func (h *holder) Sample(ctx context.Context, id int32, w exchange.Want,
	send func(exchange.Copy, bool) error,
) error {
	if !h.samples.Has(int(id)) {
		switch once, err := h.readOnce(ctx); {
		case err != nil:
			return err
		case !once:
			return exchange.ErrNotHeld
		}
	}
	src, err := h.samples.Serve(ctx, int(id), w, func(c cache.Copy, read bool) error {
		return send(exchange.Copy(c), read)
	})
	if src > 0 {
		h.read(src)
	}
	if errors.Is(err, source.ErrNoSample) {
		return exchange.ErrNotHeld
	}
	return err
}

// refusals tracks the hosts whose connections were refused. Each is logged once, and at most
// maxRefusals of them: the log is in memory, and a flood of connections must not fill it.
type refusals struct {
	mu    sync.Mutex // guards hosts
	hosts map[string]bool
}

const maxRefusals = 16

// first reports whether a refused connection is the first one from its host and is to be logged.
func (r *refusals) first(addr net.Addr) bool {
	host, _, _ := net.SplitHostPort(addr.String())
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hosts[host] || len(r.hosts) == maxRefusals {
		return false
	}
	if r.hosts == nil {
		r.hosts = map[string]bool{}
	}
	r.hosts[host] = true
	return true
}
