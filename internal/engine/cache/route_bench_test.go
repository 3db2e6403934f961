package cache

import (
	"testing"
	"time"
)

// BenchmarkRoute measures what the choice of a tier costs per sample, by which tiers have it.
func BenchmarkRoute(b *testing.B) {
	for _, c := range []struct {
		name string
		file int64
		r    *Request
	}{
		{"source alone", 0, &Request{}},
		{"file", 400, &Request{Due: soon(0)}},
		{"node", 0, &Request{Peers: farPeer(1), Due: soon(0)}},
		{"file and node", 400, &Request{Peers: farPeer(1), Due: soon(0)}},
		{"file and node, in time", 400, &Request{Peers: farPeer(1), Due: soon(1e6)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			o := plain(4)
			o.file, o.dir = c.file, b.TempDir()
			g := newRig(b, o)
			defer g.close()
			if _, _, err := g.fetched(b, &Request{}, 0); err != nil {
				b.Fatal(err)
			}
			g.cache.Flush()
			now := time.Now()
			inProgress := g.cache.meters[Source].Begin(now, 100)
			for b.Loop() {
				g.cache.route(c.r, 0)
			}
			g.cache.meters[Source].End(now, inProgress, nil)
		})
	}
}
