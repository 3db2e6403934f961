package pacing

import (
	"math/rand/v2"
	"testing"
	"time"
)

// link is the buffer before a link, in which all that passes it waits its turn.
type link struct {
	rate, buffer float64 // bytes/s; bytes
	queue        float64 // bytes
	rest         float64 // how much a round trip takes longer for other reasons, in seconds
	now          time.Time
	senders      []*sender
	cross        float64 // bytes/s of others, which take no notice
}

// sender is a connection that always has something to send.
type sender struct {
	Pace
	path  Path
	limit float64
	acked float64
	srtt  float64
}

const (
	tick     = time.Millisecond
	shortest = 100 * time.Microsecond
	ceiling  = 2e9 // bytes/s that a processor sends
)

func newLink(rate float64, senders int) *link {
	l := &link{rate: rate, buffer: max(rate/20, 128<<10), now: time.Unix(1, 0)}
	for range senders {
		l.senders = append(l.senders, &sender{srtt: shortest.Seconds()})
	}
	return l
}

// run passes a time, and returns the mean queue, in seconds, and what each sender sent, in bytes/s.
func (l *link) run(d time.Duration) (queue float64, sent []float64) {
	before := make([]float64, len(l.senders))
	for i, s := range l.senders {
		before[i] = s.acked
	}
	steps := int(d / tick)
	for range steps {
		l.step()
		queue += l.queue / l.rate / float64(steps)
	}
	for i, s := range l.senders {
		sent = append(sent, (s.acked-before[i])/d.Seconds())
	}
	return queue, sent
}

func (l *link) step() {
	dt := tick.Seconds()
	l.now = l.now.Add(tick)
	offered, rates := l.cross, make([]float64, len(l.senders))
	for i, s := range l.senders {
		if s.Due(l.now) {
			s.limit = s.Observe(l.now, s.path)
		}
		if rates[i] = ceiling; s.limit > 0 {
			rates[i] = min(s.limit, ceiling)
		}
		offered += rates[i]
	}
	wants := l.queue + offered*dt
	passes := min(wants, l.rate*dt)
	l.queue = min(wants-passes, l.buffer)
	for i, s := range l.senders {
		s.acked += passes * rates[i] / offered
		s.srtt += (shortest.Seconds() + l.queue/l.rate + l.rest - s.srtt) / 8
		s.path = Path{
			RTT: time.Duration(s.srtt * 1e9), Shortest: shortest, Acked: int64(s.acked),
			Unacked: 1,
		}
	}
}

// TestQueueIsShort fills a link, alone and with others, slow and fast: it is used, by all alike,
// and the queue is short. Without a limit it is as long as the buffer, 50 ms.
func TestQueueIsShort(t *testing.T) {
	for _, rate := range []float64{2.5e6, 12.5e6, 125e6} {
		for _, n := range []int{1, 3} {
			l := newLink(rate, n)
			l.run(2 * time.Second)
			queue, sent := l.run(4 * time.Second)
			total := 0.0
			fewest := sent[0]
			most := sent[0]
			for _, s := range sent {
				total += s
				fewest = min(fewest, s)
				most = max(most, s)
			}
			if queue > 0.015 || total < 0.95*rate || most > 2*fewest {
				t.Errorf("%d connections at %v MB/s: a queue of %.0f ms, and %.3g bytes/s", n,
					rate/1e6, 1e3*queue, sent)
			}
		}
	}
}

// TestFullBufferIsEmptiedSoon checks that the queue that a new connection makes before its path is
// known does not last.
func TestFullBufferIsEmptiedSoon(t *testing.T) {
	l := newLink(2.5e6, 1)
	l.run(300 * time.Millisecond)
	if queue, _ := l.run(300 * time.Millisecond); queue > 0.015 {
		t.Errorf("the queue is %.0f ms long", 1e3*queue)
	}
}

// TestOthersGoFirst has others take most of a link for some time: they get it, the connection keeps
// a share, and soon has the link for itself again.
func TestOthersGoFirst(t *testing.T) {
	l := newLink(12.5e6, 1)
	l.run(2 * time.Second)
	l.cross = 0.75 * l.rate
	l.run(time.Second)
	queue, sent := l.run(time.Second)
	if queue > 0.02 || sent[0] < 0.05*l.rate {
		t.Errorf("beside others: a queue of %.0f ms, and %.3g of %.3g bytes/s", 1e3*queue, sent[0],
			l.rate)
	}
	l.cross = 0
	l.run(2 * time.Second)
	if _, sent := l.run(time.Second); sent[0] < 0.85*l.rate {
		t.Errorf("after others: %.3g of %.3g bytes/s", sent[0], l.rate)
	}
}

// TestFastLinksHaveNoLimit, neither alone, nor if processors that are busy make some round trips
// longer.
func TestFastLinksHaveNoLimit(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, busy := range []bool{false, true} {
		l := newLink(4e9, 1)
		for range 500 {
			if l.step(); busy {
				l.rest = 9e-3 * random.Float64()
			}
		}
		if limit := l.senders[0].limit; limit != 0 {
			t.Errorf("busy processors: %t: a limit of %.3g bytes/s", busy, limit)
		}
	}
}

// TestRestsDoNotLower has a connection send nothing for a minute, after which the kernel still
// reports the long round trips of before: that is no throughput of a full path.
func TestRestsDoNotLower(t *testing.T) {
	l := newLink(2.5e6, 1)
	l.run(2 * time.Second)
	s := l.senders[0]
	before := s.Pace.limit
	s.path.RTT, s.path.Unacked = 2*target, 0
	s.path.Acked += 1000
	if got := s.Observe(l.now.Add(time.Minute), s.path); before == 0 || got < before {
		t.Errorf("after a rest the limit is %.3g bytes/s, and was %.3g", got, before)
	}
}

// TestUnknownPathsHaveNoLimit observes paths without measurements: nothing was sent, or the kernel
// reports no round trips.
func TestUnknownPathsHaveNoLimit(t *testing.T) {
	now := time.Unix(1, 0)
	for _, path := range []Path{
		{},
		{RTT: time.Second, Shortest: time.Millisecond, Unacked: 1},
		{RTT: time.Second, Acked: 1e6, Unacked: 1},
		{RTT: time.Second, Shortest: time.Millisecond, Acked: 1e6},
	} {
		var p Pace
		p.Observe(now, Path{})
		p.full = true
		if got := p.Observe(now.Add(every), path); got != 0 || p.Burst(7) != 7 {
			t.Errorf("%+v: the limit is %v", path, got)
		}
		if p.Due(now.Add(2*every - 1)) {
			t.Error("the limit may change at once")
		}
	}
}
