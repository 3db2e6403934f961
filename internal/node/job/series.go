package job

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/report"
)

// series records how the job goes over its steps (report.Series). Ranks add to it.
type series struct {
	steps int // of an epoch
	cache *cache.Cache
	since time.Time // when the job was opened

	mu       sync.Mutex // guards the following
	all      report.Series
	began    report.Usage // when the job was opened
	usage    report.Usage // since then, when it was measured last
	measured time.Time
}

func newSeries(steps int, c *cache.Cache) *series {
	return &series{steps: steps, cache: c, since: time.Now(), began: usage(c)}
}

// add adds a batch that a rank has taken.
func (s *series) add(epoch, step int, stall time.Duration, reads []report.Amount) {
	now := time.Now()
	p := report.Point{
		Batches: 1, Longest: stall.Seconds(), Stall: stall.Seconds(), At: now.Sub(s.since).Seconds(),
		Bytes: make(map[string]int64, 2),
	}
	for tier, amount := range reads {
		if amount.Bytes > 0 {
			p.Bytes[s.cache.TierName(cache.Tier(tier))] += amount.Bytes
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.measured) >= time.Second {
		s.measure(now)
	}
	p.Usage = s.usage
	s.all.Add(epoch*s.steps+step, &p)
}

// measure measures the usage. s.mu must be held.
func (s *series) measure(now time.Time) {
	s.usage, s.measured = usage(s.cache), now
	s.usage.CPU -= s.began.CPU
	for tier, bytes := range s.began.Read {
		s.usage.Read[tier] -= bytes
	}
}

// report returns a copy, with the usage as it is now at the end; nil if no rank has taken a batch.
func (s *series) report() *report.Series {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.all.Copy()
	if r != nil {
		s.measure(time.Now())
		r.Points[len(r.Points)-1].Usage = s.usage
	}
	return r
}

// usage returns what this process has used so far, and what was read through the cache. Numbers
// that the system does not say are 0.
func usage(c *cache.Cache) report.Usage {
	u := report.Usage{Read: map[string]int64{}}
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) == nil {
		u.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
	}
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			pages, _ := strconv.ParseInt(fields[1], 10, 64)
			u.Memory = pages * int64(os.Getpagesize())
		}
	}
	for _, tier := range c.Speeds() {
		u.Read[tier.Tier] = tier.Bytes
	}
	return u
}
