package writeback

import (
	"sync"
	"time"
)

const (
	// checkInterval is how often it is checked, while writes are in progress, whether this process
	// was stopped, and stopped how late a check is at least if it was, as by SIGSTOP, a control
	// group's freezer or a virtual machine that is paused.
	checkInterval = time.Second
	stopped       = time.Second
)

// timed measures how long writes take. If the process itself was stopped, the class is not at
// fault: writes that were in progress count from its end. The zero value is ready.
type timed struct {
	mu      sync.Mutex // guards the following
	writing map[*time.Time]struct{}
	ever    time.Duration // the longest write that has ended
	due     time.Time     // when the timer ends
	timer   *time.Timer   // nil: it does not run
}

// begin records that a write begins; end must be called when it has ended.
func (t *timed) begin(now time.Time) (end func(now time.Time)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil {
		t.due = now.Add(checkInterval)
		t.timer = time.AfterFunc(checkInterval, t.beats)
	}
	if t.writing == nil {
		t.writing = make(map[*time.Time]struct{})
	}
	begun := &now
	t.writing[begun] = struct{}{}
	return func(now time.Time) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.check(now)
		delete(t.writing, begun)
		t.ever = max(t.ever, now.Sub(*begun))
	}
}

// beats is called by the timer, which ends once no write is in progress.
func (t *timed) beats() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.check(now)
	if len(t.writing) == 0 {
		t.timer = nil
		return
	}
	t.due = now.Add(checkInterval)
	t.timer.Reset(checkInterval)
}

// check has the writes in progress begin now if the process was stopped. t.mu must be held.
func (t *timed) check(now time.Time) {
	if t.timer == nil || now.Sub(t.due) < stopped {
		return
	}
	t.due = now.Add(checkInterval) // once for each stop; the timer ends soon
	for begun := range t.writing {
		*begun = now
	}
}

// longest is Writer.Longest.
func (t *timed) longest(now time.Time) (present, ever time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.check(now)
	for begun := range t.writing {
		present = max(present, now.Sub(*begun))
	}
	return present, max(present, t.ever)
}
