package host

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

// Processors reports whether the processors that the process may use are busy. It is safe for
// concurrent use. Calls of Busy make the measurements. The zero value is ready.
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
	// processorsTime is how long a measurement is used. One older than longAgo is no evidence of the
	// present.
	processorsTime = 200 * time.Millisecond
	longAgo        = 2 * time.Second
	// idleShare is the share of their time up to which processors may be idle, or from which on they
	// are withheld, to count as busy. Of a few, half a processor may be idle: what runs there also
	// waits for each other, and was seen to leave up to a fifth of two.
	idleShare = 0.1
	idleLeast = 0.5               // processors
	tick      = time.Second / 100 // of /proc/stat: USER_HZ
)

// processorTime is what processors did until a time.
type processorTime struct {
	at    time.Time
	idle  time.Duration // the sum over processors; and what gives way counts as idle
	count int           // of processors
	// How long they were not there for what wanted to run: the control group that was throttled most
	// had used its part of them, or the host ran another machine (the sum over processors).
	throttled, stolen time.Duration
}

// Busy reports whether the processors had hardly any time left lately: those that the process may
// run on, or its control group's part of them; or their host had none left for a virtual machine.
// It is false until that is known.
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
	is := parseProcessors(string(text), mine.IsSet, !nice())
	is.at = now
	for _, g := range p.groups {
		is.throttled = max(is.throttled, g.throttled())
	}
	p.busy.Store(is.busySince(p.last))
	p.last = is
}

// busySince reports whether processors were busy since another measurement. It is false if that is
// too old to describe the present.
func (t processorTime) busySince(last processorTime) bool {
	took := t.at.Sub(last.at)
	if took <= 0 || took > longAgo || t.count == 0 || t.count != last.count {
		return false
	}
	share := idleShare * took.Seconds()
	all := share * float64(t.count)
	idle := max(all, idleLeast*took.Seconds())
	stolen := max(all, (2 * tick).Seconds()) // one tick is no evidence
	return (t.idle-last.idle).Seconds() <= idle || (t.stolen-last.stolen).Seconds() >= stolen ||
		(t.throttled-last.throttled).Seconds() >= share
}

// nice reports whether the process itself has a low priority.
func nice() bool {
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // of the system call: 20 - nice
	return err == nil && raw < 20
}

// parseProcessors returns how long the processors of /proc/stat that are mine were idle, and stolen
// from this virtual machine, and how many they are. With yields, processes of a low priority (nice)
// count as idle, because they give way.
func parseProcessors(text string, mine func(cpu int) bool, yields bool) (t processorTime) {
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
		ticks := func(field int) time.Duration {
			if field >= len(fields) { // of old kernels
				return 0
			}
			return tick * time.Duration(parseNumber(fields[field], 0))
		}
		t.count++
		t.idle += ticks(3) + ticks(4)
		if yields {
			t.idle += ticks(1)
		}
		t.stolen += ticks(7)
	}
	return t
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
