package pressure

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const gib = 1 << 30

// leaving is memory that is given back, and is free from a time on.
type leaving struct {
	bytes int64
	since time.Time
	free  time.Time
}

// machine is memory that a cache and other processes share, in virtual time. It implements Cache.
type machine struct {
	mu      sync.Mutex // guards the following
	limit   int64
	others  int64
	taken   int64
	wanted  int64 // what the cache would take
	allowed int64
	delay   time.Duration
	going   []leaving
	given   int64
	times   int // GiveBack was called
	horizon time.Duration
	fails   error
}

func (m *machine) Taken() int64 { m.mu.Lock(); defer m.mu.Unlock(); return m.taken }

func (m *machine) Leaving(since time.Time) (sum int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.going {
		if l.since.After(since) {
			sum += l.bytes
		}
	}
	return sum
}

func (m *machine) Delay() time.Duration { return m.delay }

func (m *machine) Allow(bytes int64) { m.mu.Lock(); defer m.mu.Unlock(); m.allowed = bytes }

func (m *machine) SetHorizon(d time.Duration) { m.mu.Lock(); defer m.mu.Unlock(); m.horizon = d }

// GiveBack gives back segments of 1/64 of what is wanted.
func (m *machine) GiveBack(bytes int64, why string) (begun int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if why == "" {
		panic("no reason")
	}
	m.times++
	now, segment := time.Now(), max(m.wanted/64, 1)
	var going int64
	for _, l := range m.going {
		going += l.bytes
	}
	for begun < bytes && m.taken-going > 0 {
		n := min(segment, m.taken-going)
		m.going = append(m.going, leaving{n, now, now.Add(m.delay)})
		begun, going = begun+n, going+n
	}
	m.given += begun
	return begun
}

// pass lets time pass: others grow, the cache fills as far as it may, and what was given back
// becomes free. It returns what is free.
func (m *machine) pass(d time.Duration, rate, fill float64) int64 {
	time.Sleep(d)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.others += int64(rate * d.Seconds())
	n := max(min(int64(fill*d.Seconds()), m.allowed, m.wanted-m.taken), 0)
	m.taken, m.allowed = m.taken+n, m.allowed-n
	rest := m.going[:0]
	for _, l := range m.going {
		if time.Now().Before(l.free) {
			rest = append(rest, l)
		} else {
			m.taken -= l.bytes
		}
	}
	m.going = rest
	return m.limit - m.others - m.taken
}

// set sets what others have taken.
func (m *machine) set(others int64) { m.mu.Lock(); defer m.mu.Unlock(); m.others = others }

// used returns what others have taken, and what the cache has given back.
func (m *machine) used() (others, given int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.others, m.given
}

func (m *machine) measure() (Reading, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Reading{
		At: time.Now(), Limit: m.limit, Free: m.limit - m.others - m.taken,
		What: "control group /a", Stalled: -1,
	}, m.fails
}

func (m *machine) start() *Monitor {
	return Start(Options{Cache: m, Measure: m.measure, Log: slog.New(slog.DiscardHandler)})
}

// TestGrowthAtTheRateIsSurvived grows other processes at Rate from the moment that the cache has
// taken what it may, until they have all memory but the reserve's least part. They must never find
// too little.
func TestGrowthAtTheRateIsSurvived(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		limit := rapid.Int64Range(300*mib, 256*gib).Draw(r, "limit")
		longest := Horizon(limit)
		delay := time.Duration(rapid.Int64Range(0, int64(longest)).Draw(r, "delay"))
		rate := rapid.Float64Range(0.1, 1).Draw(r, "rate") * Rate
		used := rapid.Float64Range(0, 0.5).Draw(r, "used by others")
		synctest.Test(t, func(t *testing.T) {
			m := &machine{
				limit: limit, others: int64(used * float64(limit)), delay: delay, wanted: limit,
			}
			monitor := m.start()
			defer monitor.Close()
			for range 100 { // fills at once
				m.pass(100*time.Millisecond, 0, float64(limit))
			}
			if m.Taken() == 0 {
				r.Fatalf("the cache takes nothing of %d bytes", limit)
			}
			least := limit
			for others, given := m.used(); others < limit-limit/16 && given < 50*Rate && least > 0; {
				least = min(least, m.pass(10*time.Millisecond, rate, float64(limit)))
				others, given = m.used()
			}
			if least <= 0 {
				r.Fatalf("%d bytes too little, of a limit of %d, with a delay of %v (at most %v)",
					-least, limit, delay, longest)
			}
		})
	})
}

// TestCacheGrowsAgainAfterAWhile checks that what is given back is not taken again at once, that it
// is when there has been room for a while, and that this takes longer if memory becomes short
// again.
func TestCacheGrowsAgainAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{limit: 4 * gib, wanted: 4 * gib, delay: 100 * time.Millisecond}
		monitor := m.start()
		defer monitor.Close()
		for range 50 {
			m.pass(100*time.Millisecond, 0, 4*gib)
		}
		full := m.Taken()
		if reserve := Reserve(m.limit, m.delay); m.limit-full < reserve ||
			m.limit-full > 2*reserve {
			t.Errorf("the cache has taken %d of %d bytes, with a reserve of %d", full, m.limit,
				reserve)
		}
		var waits []time.Duration
		for range 3 {
			for range 100 {
				m.pass(100*time.Millisecond, Rate, 4*gib)
			}
			if taken := m.Taken(); taken > full-800*mib {
				t.Errorf("with 1 GB used by others, the cache has %d of %d bytes", taken, full)
			}
			m.set(0)
			began := time.Now()
			for m.Taken() < full-64*mib && time.Since(began) < 10*time.Minute {
				m.pass(100*time.Millisecond, 0, 4*gib)
			}
			waits = append(waits, time.Since(began))
		}
		for i, w := range waits {
			if want := minRegrowDelay << i; w < want || w > want+5*time.Second {
				t.Errorf("after episode %d, the cache grew again after %v", i, w)
			}
		}
		if m.times > 200 {
			t.Errorf("memory was given back %d times", m.times)
		}
	})
}

// TestStepsAtTheMarks checks single decisions.
func TestStepsAtTheMarks(t *testing.T) {
	reading := Reading{
		At: time.Unix(1000, 0), Limit: 1600 * mib, What: "the machine", Stalled: 0,
		Taken: 800 * mib, Delay: 500 * time.Millisecond,
	}
	reserve := Reserve(reading.Limit, reading.Delay)
	if reserve != 125e6 {
		t.Fatalf("the reserve is %d bytes", reserve)
	}
	for _, c := range []struct {
		name          string
		free, leaving int64
		grown         int64         // by how much others have, within a second
		stalled       time.Duration // within it
		gives, allows bool
		next          time.Duration // 0: any
	}{
		{name: "room", free: 4 * reserve, allows: true, next: 468750 * time.Microsecond},
		{name: "room is used up", free: reserve * 3 / 2},
		{name: "at the reserve", free: reserve, next: minPoll},
		{name: "below it", free: reserve - 1, gives: true},
		{name: "below it, and enough is on its way", free: reserve - 1, leaving: 64 * mib},
		{name: "waits for memory", free: reserve + 1, stalled: 200 * time.Millisecond, gives: true},
		{name: "waits at the limit", free: reserve + 1, stalled: time.Second / 10, gives: true},
		{
			name: "waits for memory with room", free: 2 * reserve, stalled: 900 * time.Millisecond,
			allows: true,
		},
		{name: "others grow at the rate", free: 3 * reserve, grown: Rate, allows: true},
		{name: "others grow faster", free: 3 * reserve, grown: 5 * Rate, gives: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ctl Controller
			first := reading
			first.Free, first.Leaving = c.free+c.grown, c.leaving
			ctl.trend(first)
			r := first
			r.At = r.At.Add(time.Second)
			r.Free, r.Stalled = c.free, c.stalled
			a := ctl.Step(r)
			if (a.GiveBack > 0) != c.gives || (a.Allow > 0) != c.allows || a.Begins != c.gives ||
				c.gives != strings.HasPrefix(a.Why, "the machine had ") ||
				(c.gives && c.stalled > 0) != strings.Contains(a.Why, "0 % of the time for memory") {
				t.Errorf("%+v", a)
			}
			if a.Next < minPoll || a.Next > maxPoll || c.next > 0 && a.Next != c.next {
				t.Errorf("the next reading is in %v", a.Next)
			}
		})
	}
}

// TestGrowthIsThatOfTheWindow checks from which readings growth is computed: those of the last
// second, if the first of them is half a second old.
func TestGrowthIsThatOfTheWindow(t *testing.T) {
	for _, c := range []struct {
		before []time.Duration // of the readings until others have grown, and after it
		gives  bool
	}{
		{[]time.Duration{time.Second, 0}, true},
		{[]time.Duration{time.Second / 2, 0}, true},
		{[]time.Duration{time.Second/2 - 1, 0}, false},
		{[]time.Duration{3 * time.Second, 800 * time.Millisecond, 0}, false},
	} {
		now := time.Unix(1000, 0)
		r := Reading{Limit: 2 * gib, Free: gib + 5*Rate, Taken: gib / 2, Stalled: -1}
		var ctl Controller
		var a Action
		for i, before := range c.before {
			if i > 0 {
				r.Free = Reserve(r.Limit, 0) * 5 / 4
			}
			r.At = now.Add(-before)
			a = ctl.Step(r)
		}
		if (a.GiveBack > 0) != c.gives {
			t.Errorf("%v: %+v", c.before, a)
		}
	}
}

// TestGrowthIsOfOneMeasure checks that readings of another limit are not compared, nor those from
// before the clock was set back.
func TestGrowthIsOfOneMeasure(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *Reading)
		grows  bool
	}{
		"the same":      {func(*Reading) {}, true},
		"another group": {func(r *Reading) { r.What = "control group /b" }, false},
		"another limit": {func(r *Reading) { r.Limit += gib }, false},
	} {
		r := Reading{
			At: time.Unix(1000, 0), Limit: 2 * gib, Free: gib, Taken: gib / 2, Stalled: -1,
			What: "control group /a",
		}
		var ctl Controller
		ctl.trend(r)
		later := r
		later.At, later.Free = r.At.Add(time.Second), r.Free-5*Rate
		c.change(&later)
		if growth, _ := ctl.trend(later); growth > 0 != c.grows {
			t.Errorf("%s: %.0f bytes per second", name, growth)
		}
		earlier := r
		earlier.At = r.At.Add(-time.Minute)
		ctl.trend(earlier)
		earlier.At, earlier.Free = earlier.At.Add(time.Second), r.Free-5*Rate
		if growth, _ := ctl.trend(earlier); growth != 5*Rate {
			t.Errorf("%s, and then the clock is set back: %.0f bytes per second", name, growth)
		}
	}
}

// TestStallsAreOfTheWindow checks that a total that was unknown before is none of the window.
func TestStallsAreOfTheWindow(t *testing.T) {
	for before, want := range map[time.Duration]float64{-1: 0, 50 * time.Second: 0.5} {
		r := Reading{At: time.Unix(1000, 0), Limit: gib, Free: gib, Stalled: before}
		var c Controller
		c.trend(r)
		r.At, r.Stalled = r.At.Add(time.Second), 50500*time.Millisecond
		if _, stall := c.trend(r); stall != want {
			t.Errorf("%v before: %v", before, stall)
		}
	}
}

// TestTheCacheGrowsAtTheMarks checks the marks at which the cache grows, and grows again after
// there has been room for a while without a break.
func TestTheCacheGrowsAtTheMarks(t *testing.T) {
	const limit, small = 4 * gib, 64 * mib
	reserve, least := Reserve(limit, 0), Reserve(small, 0)
	grows, resumes := reserve*3/2+leastGrowth, reserve*7/4
	of := func(limit int64, second int, free int64) Reading {
		return Reading{
			At: time.Unix(int64(1000+second), 0), Limit: limit, Free: free, Taken: gib, Stalled: -1,
		}
	}
	at := func(second int, free int64) Reading { return of(limit, second, free) }
	little := func(room int64) []Reading {
		free := least*3/2 + room
		return []Reading{of(small, 0, 0), of(small, 1, free), of(small, 11, free)}
	}
	broken := []Reading{at(0, 0), at(1, limit), at(5, 0), at(6, limit)}
	for name, c := range map[string]struct {
		readings []Reading
		allows   int64
	}{
		"at the mark":    {[]Reading{at(0, grows)}, leastGrowth},
		"below it":       {[]Reading{at(0, grows-1)}, 0},
		"and after that": {[]Reading{at(0, grows-1), at(1, limit)}, 0},
		"after it has grown again": {
			[]Reading{at(0, 0), at(1, resumes), at(11, resumes), at(12, grows-1), at(13, resumes)}, 0,
		},
		"room for a while":  {[]Reading{at(0, 0), at(1, resumes), at(11, resumes)}, reserve / 4},
		"not so long":       {[]Reading{at(0, 0), at(1, resumes), at(10, resumes)}, 0},
		"less room":         {[]Reading{at(0, 0), at(1, resumes-1), at(11, resumes-1)}, 0},
		"little room":       {little(leastGrowth), leastGrowth},
		"too little":        {little(leastGrowth - 1), 0},
		"room with a break": {append(slices.Clone(broken), at(12, limit)), 0},
		"a while after it":  {append(slices.Clone(broken), at(16, limit)), limit - reserve*3/2},
	} {
		var ctl Controller
		var a Action
		for _, r := range c.readings {
			a = ctl.Step(r)
		}
		if a.Allow != c.allows {
			t.Errorf("%s: %+v, want %d bytes", name, a, c.allows)
		}
	}
}

// TestHorizonIsShorterWhileMemoryIsShort checks it, and that the cache gets it.
func TestHorizonIsShorterWhileMemoryIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{limit: 4 * gib, wanted: 4 * gib}
		monitor := m.start()
		defer monitor.Close()
		for _, want := range []time.Duration{Horizon(m.limit), Horizon(m.limit) / 2} {
			for range 50 {
				m.pass(100*time.Millisecond, 0, 4*gib)
			}
			m.mu.Lock()
			if m.horizon != want {
				t.Errorf("a horizon of %v, want %v", m.horizon, want)
			}
			m.mu.Unlock()
			m.set(gib)
		}
	})
}

// TestRegrowDelayDoubles checks that it does if memory becomes short soon after the cache grew.
func TestRegrowDelayDoubles(t *testing.T) {
	now := time.Unix(1000, 0)
	for since, want := range map[time.Duration]time.Duration{
		2*minRegrowDelay - 1: 2 * minRegrowDelay,
		2 * minRegrowDelay:   minRegrowDelay,
	} {
		c := Controller{resumed: now.Add(-since)}
		c.Step(Reading{At: now, Limit: gib, Taken: gib, Stalled: -1})
		if c.regrowDelay != want {
			t.Errorf("%v after it: %v", since, c.regrowDelay)
		}
	}
}

// TestNothingIsGivenBackThatIsNotThere checks that a cache without memory begins no episode.
func TestNothingIsGivenBackThatIsNotThere(t *testing.T) {
	var c Controller
	a := c.Step(Reading{At: time.Unix(1000, 0), Limit: gib, Free: 0, Stalled: -1})
	if a.GiveBack != 0 || a.Begins || a.Allow != 0 {
		t.Errorf("%+v", a)
	}
}

// TestEpisodeIsLoggedOnce checks that an episode is one line at its beginning and one at its end,
// and that a machine that cannot be measured is said once each time.
func TestEpisodeIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{limit: 4 * gib, wanted: 4 * gib, delay: 100 * time.Millisecond}
		var log bytes.Buffer
		monitor := Start(Options{
			Cache: m, Measure: m.measure, Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		for range 100 {
			m.pass(100*time.Millisecond, 0, 4*gib)
		}
		for range 50 {
			m.pass(100*time.Millisecond, Rate, 4*gib)
		}
		m.set(0)
		for range 200 {
			m.pass(100*time.Millisecond, 0, 4*gib)
		}
		for _, fails := range []error{errors.New("no /proc"), nil, errors.New("no /proc")} {
			m.mu.Lock()
			m.fails = fails
			m.mu.Unlock()
			time.Sleep(10 * time.Second)
		}
		monitor.Close()
		text := log.String()
		for what, want := range map[string]int{
			"memory is short": 1, "no longer short": 1, "gave_back=": 1, "seconds=1": 1, "no /proc": 2,
		} {
			if n := strings.Count(text, what); n != want {
				t.Errorf("%q is logged %d times, want %d:\n%s", what, n, want, text)
			}
		}
	})
}

// TestReserveGrowsWithTheLimitAndTheDelay checks the reserve's bounds.
func TestReserveGrowsWithTheLimitAndTheDelay(t *testing.T) {
	for _, c := range []struct {
		limit int64
		delay time.Duration
		want  int64
	}{
		{64 * mib, 0, 16 * mib},
		{200 * mib, 0, 50 * mib},
		{4 * gib, 0, 256 * mib},
		{4 * gib, 5 * time.Second, 575e6},
		{1 * gib, 5 * time.Second, 256 * mib},
		{64 * gib, time.Hour, 1075e6},
	} {
		if got := Reserve(c.limit, c.delay); got != c.want {
			t.Errorf("limit %s, delay %v: %d bytes, want %d", fmt.Sprint(c.limit), c.delay, got,
				c.want)
		}
	}
	if h := Horizon(gib); h < 1500*time.Millisecond || h > 3*time.Second {
		t.Errorf("the horizon of 1 GiB is %v", h)
	}
}
