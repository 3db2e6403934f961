package cache

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/store"
)

// # When copies are converted
//
// Each class is brought to what jobs want of it by looks. What a look does follows from what the
// class and the plans are then, and not from what has happened:
//
//	forms wanted, but memory may not grow,   forms are wanted no more until the cache is closed
//	or samples need what forms take
//	forms wanted, some are made in another   these are made anew, as far as there is room (remake)
//	way than now
//	forms wanted, there is room for them     samples become forms (makeForms); else segments are
//	                                         emptied in which others have left many bytes (empty)
//	no forms wanted, some are held           they become samples, as far as there is room
//	                                         (makeSamples)
//	samples were refused that would fit      they are brought (Cache.Refill), if memory may grow, or
//	                                         into what has become free
//	samples were refused, no forms wanted,   segments are emptied in which others have left bytes
//	and no room for all will come
//
// All that this depends on is in state, or counted there as an event. A class is settled once a
// look has left its state as it was. It is compared with that every lookEvery, while jobs use the
// cache, and looked at again if it differs. So nothing that makes room has to notify the
// conversion: requests that discard forms, processes that unmap memory, plans that end.

const (
	lookEvery = time.Second
	// lookShare is how much longer the pause after a look is than it took to list samples, which
	// holds the store's lock, and to move them.
	lookShare = 100
	// refillEvery is how often refused samples are brought again although the class has not changed
	// since: then the kernel refuses memory.
	refillEvery = time.Minute
	// fewDead is the share of a segment's bytes up to which what is left of samples is no reason to
	// move the others, for the room of forms.
	fewDead = 0.1
)

// conversion converts the copies of a cache's classes. It owns the goroutine of run.
type conversion struct {
	cache     *Cache
	converter Converter
	workers   int
	asRead    bitset // samples that are not converted: they have no form, or it did not suffice
	// sizes are those of forms in parts of their samples, in sizeUnits; 0: not known yet. The
	// goroutine of run has them.
	sizes []uint8
	// way is how forms are made; current are the samples whose forms have been looked at since it
	// changed. Both are set while no goroutine converts.
	way     Way
	current bitset

	// making is held for reading while a form takes a sample's place, and for writing while forms
	// changes: once a job needs samples, no form is made.
	making sync.RWMutex
	forms  atomic.Bool   // all jobs take forms
	worth  atomic.Bool   // for one of them it is worth it to make some
	recipe Recipe        // that of all jobs; nil: none. Guarded by making
	short  atomic.Bool   // memory was short: samples need what forms take more
	events atomic.Uint64 // see note
	poked  chan struct{} // receives a token when the plans or what jobs take have changed
	end    context.CancelFunc
	ended  sync.WaitGroup
}

// startConversion starts to convert, if a class can hold forms. crowded as in Options.
func (c *Cache) startConversion(converter Converter, workers int, crowded bool) {
	holds := false
	for j := range c.classes {
		holds = holds || c.classes[j].forms != nil || c.classes[j].files != nil
	}
	if converter == nil || !holds {
		return
	}
	v := &conversion{
		cache: c, converter: converter, workers: max(workers, 1),
		asRead: newBitset(c.index.Len()), sizes: make([]uint8, c.index.Len()),
		current: newBitset(c.index.Len()),
		poked:   make(chan struct{}, 1),
	}
	var ctx context.Context
	ctx, v.end = context.WithCancel(context.Background())
	v.short.Store(crowded)
	c.conversion = v
	v.ended.Go(func() { v.run(ctx) })
}

// close ends the conversion; a nil one has none.
func (v *conversion) close() {
	if v != nil {
		v.end()
		v.ended.Wait()
	}
}

// wanted reports whether copies are to become forms.
func (v *conversion) wanted() bool { return v.forms.Load() && !v.short.Load() }

// setForms sets whether all jobs take forms, whether it is worth it for one to make them, and the
// recipe that all have.
func (v *conversion) setForms(all, worth bool, recipe Recipe) {
	v.making.Lock()
	before, same := v.forms.Swap(all), sameRecipe(v.recipe, recipe)
	v.recipe = recipe
	v.making.Unlock()
	if v.worth.Swap(worth) != worth || before != all || !same {
		v.poke()
	}
}

// note counts an event that state has nothing else of: a sample was refused for want of room, or
// its copies confirmed, or the plans have changed. A nil conversion counts none.
func (v *conversion) note() {
	if v != nil {
		v.events.Add(1)
	}
}

// poke has what has changed looked at now.
func (v *conversion) poke() {
	if v == nil {
		return
	}
	v.note()
	select {
	case v.poked <- struct{}{}:
	default:
	}
}

// state is what a look at a class depends on.
type state struct {
	events         uint64
	wanted, worth  bool
	growing        bool
	total, used    int64 // as Capacity returns them
	lent, returned int64 // Returned.Used and Returned.Now
	formed         int64 // samples in forms
}

func (v *conversion) state(cl *class) state {
	s := state{
		events: v.events.Load(), wanted: v.wanted(), worth: v.worth.Load(),
		growing: cl.shrinker.Growing(), formed: cl.forms.Formed().Samples,
	}
	s.total, s.used = cl.Store.Capacity()
	returned := cl.shrinker.Returned()
	s.lent, s.returned = returned.Used, returned.Now
	return s
}

// looks are those at a class so far.
type looks struct {
	settled state
	// looked: all forms that are held were looked at since forms are made in this way.
	way    Way
	looked bool
	pause  time.Time // until when there is no other one
	// refilled is the state, without events, in which samples were last brought again, and when.
	refilled   state
	refilledAt time.Time
}

// run looks at the classes until ctx ends.
func (v *conversion) run(ctx context.Context) {
	looks := make([]looks, len(v.cache.classes))
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-v.poked:
		case <-ctx.Done():
			return
		}
		if !v.cache.inUse() {
			continue // the next job may want the same
		}
		for j := range v.cache.classes {
			switch cl := &v.cache.classes[j]; {
			case cl.forms != nil && cl.shrinker != nil:
				v.look(ctx, cl, &looks[j])
			case cl.files != nil:
				v.lookFiles(ctx, j, &looks[j])
			}
		}
	}
}

// look looks at a class.
func (v *conversion) look(ctx context.Context, cl *class, l *looks) {
	begun, now := time.Now(), v.state(cl)
	if now == l.settled || begun.Before(l.pause) {
		return
	}
	missing, segments := v.cache.missing(cl), cl.shrinker.Segments()
	took, misses := time.Since(begun), int64(0)
	// More than all may be used while samples are moved; that is of no account if none needs room.
	if !now.growing ||
		now.formed > 0 && missing.planned > 0 && missing.planned > now.total-now.used {
		v.short.CompareAndSwap(false, now.wanted)
	}
	if v.wanted() {
		v.settleWay()
		if !l.looked || !l.way.same(v.way) {
			l.way = v.way
			misses, l.looked = v.remake(ctx, cl, segments, missing.planned)
		}
		misses += v.makeForms(ctx, cl, segments, missing.planned)
	} else if now.formed > 0 {
		v.makeSamples(ctx, cl, segments)
	}
	begun = time.Now()
	v.empty(cl, misses, fewDead)
	v.bring(cl, l, missing)
	l.pause = time.Now().Add(lookShare * (took + time.Since(begun)))
	if ctx.Err() == nil && v.state(cl) == now {
		l.settled = now
	}
}

// bring brings samples that were refused if one of them fits, and else makes room for them.
func (v *conversion) bring(cl *class, l *looks, missing missing) {
	now := v.state(cl)
	if missing.refused == 0 || !cl.growing() {
		return
	}
	room := now.total - now.used // once processes have unmapped what is lent
	if !now.growing {
		room = min(room, cl.shrinker.Freed()+now.lent)
	}
	if now.growing && missing.refused > room && !now.wanted {
		v.empty(cl, missing.refused-room, 0)
	}
	now.events = 0
	if room-now.lent < missing.least ||
		now == l.refilled && time.Since(l.refilledAt) < refillEvery {
		return
	}
	l.refilled, l.refilledAt = now, time.Now()
	v.cache.Refill()
}

// empty moves what segments hold in which so many bytes lie of samples that are not held any more,
// or as many as lie in segments of which they are more than a share.
func (v *conversion) empty(cl *class, bytes int64, share float64) {
	if bytes <= 0 {
		return
	}
	segments := cl.shrinker.Segments()
	slices.SortStableFunc(segments, func(a, b store.Extent) int {
		return cmp.Compare(b.Dead, a.Dead)
	})
	for _, segment := range segments {
		if bytes <= 0 || float64(segment.Dead) <= share*float64(segment.Bytes) ||
			!v.move(cl, those(segment.Held, func(int) bool { return true })) {
			return
		}
		bytes -= segment.Dead
	}
}

// missing describes the samples that plans give to a class, and that it does not hold.
type missing struct {
	planned int64 // their bytes
	refused int64 // the bytes of those for which there was no room
	least   int64 // of the smallest one of these
}

func (c *Cache) missing(cl *class) (m missing) {
	planned := c.planned.Load()
	if planned == nil {
		return m
	}
	for id, j := range *planned {
		if j == 0 || &c.classes[j-1] != cl || cl.Store.Has(id) {
			continue
		}
		size := c.index.Size(id)
		m.planned += size
		if c.demoted.has(id) {
			if m.refused == 0 || size < m.least {
				m.least = size
			}
			m.refused += size
		}
	}
	return m
}
