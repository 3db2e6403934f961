package remote

import (
	"context"
	"math/bits"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/source"
)

// A request that takes three times the median of its size is made a second time ("hedged"), as long
// as that is at most every 50th request: of 64 samples read at once from a server of 20 ms where
// 1 % of the requests take 500 ms longer, the slowest then takes 60 ms and not 265. A second
// request after the 99th percentile, as is usual, changes nothing: where 1 % are slow, that is slow
// itself. Where more than 2 % are slow, every 20th request may be made twice.
const (
	hedgeAfter = 3 // medians
	hedgeEvery = 50
	// hedgeOften is used if more than 1/hedgeEvery of the requests are slow.
	hedgeOften = 20
	// leastKnown is how many requests of a size have to be known.
	leastKnown = 16
	// leastHedge is the shortest time after which a second request is made: less is not slow.
	leastHedge = 5 * time.Millisecond
)

// pace is how long requests take, by size. The zero value is ready to use.
type pace struct {
	mu     sync.Mutex
	sizes  [64]times // by the number of bits of the request's length
	asked  int64     // requests
	slow   int64     // of these, longer than hedgeAfter medians
	hedged int64     // second requests
}

// times are how long the last requests took.
type times struct {
	known int
	last  [2*leastKnown + 1]time.Duration
}

func sizeClass(length int64) int { return bits.Len64(uint64(length)) - 1 }

// began counts a request, and returns after which time it is slow; 0: that is not known.
func (p *pace) began(length int64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	t := &p.sizes[sizeClass(length)]
	if t.known < leastKnown {
		return 0
	}
	return max(hedgeAfter*t.median(), leastHedge)
}

// median returns the median of what is known.
func (t *times) median() time.Duration {
	n := min(t.known, len(t.last))
	sorted := t.last
	for i := 1; i < n; i++ { // by insertion: they are few
		for j := i; j > 0 && sorted[j] < sorted[j-1]; j-- {
			sorted[j], sorted[j-1] = sorted[j-1], sorted[j]
		}
	}
	return sorted[n/2]
}

// ended notes how long a request took.
func (p *pace) ended(length int64, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &p.sizes[sizeClass(length)]
	t.last[t.known%len(t.last)] = took
	t.known++
}

// mayHedge notes that a request is slow, and reports whether a second one may be made.
func (p *pace) mayHedge() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow++
	every := int64(hedgeEvery)
	if p.slow*hedgeEvery > p.asked {
		every = hedgeOften
	}
	if (p.hedged+1)*every > p.asked {
		return false
	}
	p.hedged++
	return true
}

// came is an answer of one of two requests.
type came struct {
	object source.Object
	err    error
	second bool
}

// hedged makes a request, and a second one if it is slow. The second one has memory of its own: the
// first may still write to parts until it has ended, which is waited for.
func (p *Objects) hedged(ctx context.Context, r *request, parts [][]byte,
) (now source.Object, err error) {
	begin := time.Now()
	defer func() {
		if err == nil {
			p.pace.ended(r.length, time.Since(begin))
		}
	}()
	slow := p.pace.began(r.length)
	if p.options.NoHedges || slow == 0 {
		return p.get(ctx, r, parts)
	}
	answers := make(chan came, 2) // so that the one that comes late does not wait
	first, cancelFirst := context.WithCancel(ctx)
	defer cancelFirst()
	go func() {
		now, err := p.get(first, r, parts)
		answers <- came{now, err, false}
	}()
	timer := time.NewTimer(slow)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.object, a.err
	case <-timer.C:
	}
	if !p.pace.mayHedge() {
		a := <-answers
		return a.object, a.err
	}
	p.counts.hedges.Add(1)
	second, cancelSecond := context.WithCancel(ctx)
	defer cancelSecond()
	own := make([]byte, r.length)
	go func() {
		now, err := p.get(second, r, [][]byte{own})
		answers <- came{now, err, true}
	}()
	a := <-answers
	if a.err != nil { // the other one may succeed
		a = <-answers
	} else if a.second {
		cancelFirst()
		<-answers
	}
	if a.err == nil && a.second {
		p.counts.won.Add(1)
		for _, part := range parts {
			own = own[copy(part, own):]
		}
	}
	return a.object, a.err
}
