package cache

import (
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/stats"
)

// meter measures the reads from one tier.
type meter struct {
	mu       sync.Mutex // guards the following
	total    stats.Speed
	recent   time.Duration // moving average of the duration of a read
	underWay int
	since    time.Time // when underWay became 1
}

// begin records the beginning of a read, and returns its time.
func (m *meter) begin() time.Time {
	now := time.Now()
	m.mu.Lock()
	if m.underWay++; m.underWay == 1 {
		m.since = now
	}
	m.mu.Unlock()
	return now
}

// end records the end of a read that began at start.
func (m *meter) end(start time.Time, bytes int, err error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.underWay--; m.underWay == 0 {
		m.total.Busy += now.Sub(m.since).Seconds()
	}
	took := now.Sub(start)
	m.total.Seconds += took.Seconds()
	if err == nil {
		if m.recent += (took - m.recent) / 16; m.total.Samples == 0 {
			m.recent = took
		}
		m.total.Samples++
		m.total.Bytes += int64(bytes)
	}
}

func (m *meter) speed() stats.Speed {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.total
	if m.underWay > 0 {
		s.Busy += time.Since(m.since).Seconds()
	}
	return s
}

// latency returns the moving average of the duration of a read; 0 before the first one.
func (m *meter) latency() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.recent
}
