package store

import (
	"sync"
	"time"
)

// Watcher is notified of segments that are given back. Its methods must not block. It is an alias,
// so that packages which do not import this one can name it.
type Watcher = interface {
	// Vacate is called once the samples of a segment, by class and number, are no longer located.
	// See Tenant.
	Vacate(class int, segment uint32, samples []int32, settled, gone func())
	// Refill is called when samples that were given back may be kept again.
	Refill()
	// Delay estimates how long it takes from Vacate until gone is called, if the process keeps no
	// samples.
	Delay() time.Duration
}

// Refiller is the cache of the dataset.
type Refiller interface {
	// Refill is called, before the watchers', when samples that were given back may be kept again.
	Refill()
	// Rank implements Tenant for a class.
	Rank(class int) func(id int32) float64
}

// Watchers pass on which segments the classes of a dataset's cache give back, to all who use the
// samples in them: the ranks to whose processes batches name them, and the other nodes. A segment's
// memory is free when all have let go of it. The zero value has none. Its methods are safe for
// concurrent use.
type Watchers struct {
	mu       sync.Mutex // guards the following
	watchers []Watcher  // replaced, never modified
	stores   []Shrinker
	leave    []func()
}

// Join notifies the watchers of segments that a class's store gives back, until Leave.
func (s *Watchers) Join(c Refiller, class int, store Shrinker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stores = append(s.stores, store)
	s.leave = append(s.leave, store.Join(&tenant{s, c, class}))
}

// Leave ends that for all stores.
func (s *Watchers) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, leave := range s.leave {
		leave()
	}
	s.leave, s.stores = nil, nil
}

// Watch notifies w of segments that are given back from now on, until leave is called.
func (s *Watchers) Watch(w Watcher) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = append(without(s.watchers, nil), w)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watchers = without(s.watchers, w)
	}
}

// without returns a copy of the list without w.
func without(list []Watcher, w Watcher) []Watcher {
	out := make([]Watcher, 0, len(list)+1)
	for _, o := range list {
		if o != w {
			out = append(out, o)
		}
	}
	return out
}

func (s *Watchers) watching() []Watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watchers
}

// Horizon returns for how long ahead of its use a sample should be located; 0: as long as one
// likes.
func (s *Watchers) Horizon() (least time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, store := range s.stores {
		if d := store.Horizon(); d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}

// tenant is Watchers as the tenant of one class's store.
type tenant struct {
	set   *Watchers
	cache Refiller
	class int
}

var _ Tenant = (*tenant)(nil)

// Vacate implements Tenant.
func (t *tenant) Vacate(segment uint32, samples []int32, settled, gone func()) {
	all := t.set.watching()
	if len(all) == 0 {
		settled()
		gone()
		return
	}
	settledAll, goneAll := after(len(all), settled), after(len(all), gone)
	for _, w := range all {
		w.Vacate(t.class, segment, samples, sync.OnceFunc(settledAll), sync.OnceFunc(goneAll))
	}
}

// after returns a function that calls f when it was called n times.
func after(n int, f func()) func() {
	var mu sync.Mutex
	return func() {
		mu.Lock()
		n--
		last := n == 0
		mu.Unlock()
		if last {
			f()
		}
	}
}

// Refill implements Tenant.
func (t *tenant) Refill() {
	t.cache.Refill()
	for _, w := range t.set.watching() {
		w.Refill()
	}
}

// Delay implements Tenant.
func (t *tenant) Delay() (longest time.Duration) {
	for _, w := range t.set.watching() {
		longest = max(longest, w.Delay())
	}
	return longest
}

// Rank implements Tenant.
func (t *tenant) Rank() func(id int32) float64 { return t.cache.Rank(t.class) }
