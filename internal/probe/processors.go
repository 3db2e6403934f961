package probe

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Processors tells whether the processors that the process may use are busy. It is safe for
// concurrent use, and measures by itself, while it is asked. The zero value is ready.
type Processors struct {
	root string // "": "/"
	busy atomic.Bool
	next atomic.Int64 // when to measure again, in nanoseconds since 1970

	mu     sync.Mutex // guards the following
	last   processorTime
	groups []group
	looked time.Time
}

const (
	// processorsTime is how long a measurement counts.
	processorsTime = 200 * time.Millisecond
	// idleShare is the share of their time up to which processors may be idle, or from which on a
	// control group may be throttled, to count as busy.
	idleShare = 0.1
	tick      = time.Second / 100 // of /proc/stat: USER_HZ
)

// processorTime is what processors did until a time.
type processorTime struct {
	at        time.Time
	idle      time.Duration // the sum over processors; and what gives way counts as idle
	throttled time.Duration // of the control group that was throttled most
	count     int           // of processors
}

// Busy reports whether the processors had hardly any time left lately: those that the process may
// run on, or its control group's part of them. It is false until that is known.
func (p *Processors) Busy() bool {
	now := time.Now()
	if now.UnixNano() >= p.next.Load() && p.mu.TryLock() {
		defer p.mu.Unlock()
		p.measure(now)
	}
	return p.busy.Load()
}

// measure compares with the last measurement. p.mu must be held.
func (p *Processors) measure(now time.Time) {
	p.next.Store(now.Add(processorsTime).UnixNano())
	if p.root == "" {
		p.root = "/"
	}
	if p.looked.IsZero() || now.Sub(p.looked) > groupsTime {
		p.groups, p.looked = groupsAt(p.root, "cpu"), now
	}
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		return
	}
	text, err := os.ReadFile(filepath.Join(p.root, "proc/stat"))
	if err != nil {
		return
	}
	is := processorTime{at: now}
	is.idle, is.count = parseIdle(string(text), mine.IsSet, !nice())
	for _, g := range p.groups {
		is.throttled = max(is.throttled, g.throttled())
	}
	p.busy.Store(is.busySince(p.last))
	p.last = is
}

// busySince reports whether processors were busy since another measurement. One of long ago tells
// nothing of now.
func (t processorTime) busySince(last processorTime) bool {
	took := t.at.Sub(last.at)
	if took <= 0 || took > 10*processorsTime || t.count == 0 || t.count != last.count {
		return false
	}
	most := time.Duration(idleShare * float64(took))
	return t.idle-last.idle <= most*time.Duration(t.count) || t.throttled-last.throttled >= most
}

// nice reports whether the process itself has a low priority.
func nice() bool {
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // of the system call: 20 - nice
	return err == nil && raw < 20
}

// parseIdle returns how long the processors of /proc/stat that are mine were idle, all together,
// and how many they are. With yields, processes of a low priority (nice) count as idle, because
// they give way.
func parseIdle(text string, mine func(cpu int) bool, yields bool) (
	idle time.Duration, count int,
) {
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, " ")
		number, isCPU := strings.CutPrefix(name, "cpu")
		if !isCPU {
			break // they come first
		}
		cpu, err := strconv.Atoi(number)
		fields := strings.Fields(rest)
		if err != nil || !mine(cpu) || len(fields) < 5 {
			continue // "cpu" is the sum of all
		}
		count++
		idle += tick * time.Duration(parseNumber(fields[3], 0)+parseNumber(fields[4], 0))
		if yields {
			idle += tick * time.Duration(parseNumber(fields[1], 0))
		}
	}
	return idle, count
}

// throttled returns for how long the group was not run, as it had used its part of the processors.
func (g group) throttled() time.Duration {
	text, _ := os.ReadFile(filepath.Join(g.dir, "cpu.stat"))
	for line := range strings.Lines(string(text)) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name {
		case "throttled_usec":
			return time.Duration(parseNumber(value, 0)) * time.Microsecond
		case "throttled_time":
			return time.Duration(parseNumber(value, 0))
		}
	}
	return 0
}
