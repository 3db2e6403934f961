package cache

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache/writeback"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/store"
)

// Tier is the tier that a sample is found in: the source, another node, a storage class, or memory
// where a copy waits to be written to a class.
type Tier int32

// The tiers. Storage class j (from 1) is FirstClass+j-1, and what waits to be written comes last.
const (
	Source Tier = iota
	Peer
	FirstClass
)

// TierName returns the name of a tier, as in reports.
func (c *Cache) TierName(p Tier) string {
	switch {
	case p == Source:
		return "source"
	case p == Peer:
		return "peer"
	case int(p-FirstClass) < len(c.classes):
		return c.classes[p-FirstClass].Name
	case p == c.writeback():
		return report.Writeback
	}
	return fmt.Sprintf("tier %d", p)
}

// Tiers returns the number of tiers: Tier is in [0, Tiers).
func (c *Cache) Tiers() int { return int(c.writeback()) + 1 }

// writeback is the tier of samples whose copies wait in memory to be written to a class: reads of
// these cost neither the class nor any other tier.
func (c *Cache) writeback() Tier { return FirstClass + Tier(len(c.classes)) }

// Class is a storage class of the node, with its store for the dataset.
type Class struct {
	Name  string
	Store store.Store
	// KeepAll is set if the class has capacity for the whole dataset and survives restarts: it then
	// keeps a copy of everything that is read, besides what plans assign to it.
	KeepAll bool
	Threads int // p_j: how many samples are written to it at the same time, if it is not in memory
}

type class struct {
	Class
	inPlace  store.InPlace  // nil: samples cannot be delivered from where they are
	shrinker store.Shrinker // nil: the class gives no memory back
	forms    store.Forms    // nil: the class keeps samples as read, unless it has files
	files    *fileForms     // of a class that is not in memory; nil: it keeps samples as read
	// nil if inPlace is not:
	writer *writeback.Writer
	reader *store.Reader
}

// growing reports whether the class may take memory for samples now.
func (cl *class) growing() bool {
	return cl.shrinker == nil || cl.shrinker.Growing() || cl.shrinker.Freed() > 0
}

// Reader returns what reads class j (from 0); nil: it is in memory.
func (c *Cache) Reader(j int) *store.Reader { return c.classes[j].reader }

// Located is the location of a sample in a storage class where processes can read it.
type Located struct {
	Segment
	Offset int64
}

// Tier returns the tier of the class.
func (l Located) Tier() Tier { return FirstClass + Tier(l.Class) }

// Locate returns the location of a sample that can be delivered from where it is.
func (c *Cache) Locate(id int) (Located, bool) {
	if !c.confirmed.has(id) {
		return Located{}, false
	}
	for j := range c.classes {
		if p := c.classes[j].inPlace; p != nil {
			if at, ok := p.Locate(id); ok {
				return Located{Segment{j, at.Segment}, at.Offset}, true
			}
		}
	}
	return Located{}, false
}

// view returns a sample that can be used from where it is. It must be released.
func (c *Cache) view(id int) (s Sample, ok bool) {
	if !c.confirmed.has(id) {
		return s, false
	}
	for j := range c.classes {
		if p := c.classes[j].inPlace; p != nil {
			if v, ok := p.View(id); ok {
				at := Located{Segment{j, v.At.Segment}, v.At.Offset}
				return Sample{
					Data: v.Data, InPlace: true, At: at, From: at.Tier(), hold: v.Hold,
				}, true
			}
		}
	}
	return s, false
}

// class returns the class, from 1, that is to hold the sample; 0: none.
func (c *Cache) class(id int) int {
	planned := c.planned.Load()
	if planned == nil {
		return 0
	}
	return int((*planned)[id])
}

// destination returns the class that is to hold the sample and from which it can be delivered; nil:
// none. The result may change with the plan, and if memory is short.
func (c *Cache) destination(id int) *class {
	if j := c.class(id); j != 0 && c.classes[j-1].inPlace != nil && !c.demoted.has(id) &&
		c.classes[j-1].growing() {
		return &c.classes[j-1]
	}
	return nil
}

// Destined reports whether a sample that is fetched now is to be held by a class from which it can
// be delivered.
func (c *Cache) Destined(id int) bool { return c.destination(id) != nil }

// Has reports whether any class holds the sample.
func (c *Cache) Has(id int) bool {
	return uint(id) < uint(c.index.Len()) &&
		slices.ContainsFunc(c.classes, func(cl class) bool { return cl.Store.Has(id) })
}

// readComing copies a sample that is being written to a class.
func (c *Cache) readComing(id int, dst []byte) (Tier, store.Origin, bool) {
	for j := range c.classes {
		if w := c.classes[j].writer; w != nil {
			if origin, ok := w.Read(id, dst); ok {
				return c.writeback(), origin, true
			}
		}
	}
	return 0, store.Origin{}, false
}

// readHeld copies a sample from the fastest class that holds it, if its copies are valid, or reads
// its form there, if the request takes that and the buffer has more bytes than the sample. If a
// store finds its copy corrupt, it drops it, and the next class is tried, as it is if a class does
// not deliver the sample within the limit, which is reported by late.
func (c *Cache) readHeld(r *Request, id int, room []byte, limit classLimit) (s Sample, late,
	ok bool,
) {
	if !c.confirmed.has(id) {
		return s, false, false
	}
	dst := room[:c.index.Size(id)]
	for j := range c.classes {
		cl := &c.classes[j]
		if !cl.Store.Has(id) {
			continue
		}
		tier := FirstClass + Tier(j)
		if cl.reader == nil {
			read := c.meters[tier].Begin(time.Now(), len(dst))
			err := cl.Store.Read(id, dst)
			c.meters[tier].End(time.Now(), read, err)
			if err == nil {
				return Sample{Data: dst, From: tier}, late, true
			}
			continue
		}
		if !cl.reader.Responds() {
			late = true
			continue
		}
		s, err := c.readCopy(r, j, id, room, limit)
		if err == nil {
			return s, late, true
		}
		late = late || errors.Is(err, store.ErrLate)
	}
	return Sample{}, late, false
}

// timed measures a read of so many bytes from a class that is not in memory.
func (c *Cache) timed(j, bytes, id int, limit classLimit,
	read func(most func() time.Duration) error,
) error {
	m := &c.meters[FirstClass+Tier(j)]
	predicted := m.Predict(int64(bytes))
	begun := m.Begin(time.Now(), bytes)
	err := read(func() time.Duration { return limit(id, predicted) })
	if errors.Is(err, store.ErrLate) {
		m.GiveUp(time.Now(), begun)
	} else {
		m.End(time.Now(), begun, err)
	}
	return err
}

// bitset is a set of samples. It is safe for concurrent use.
type bitset []atomic.Uint32

func newBitset(n int) bitset     { return make(bitset, (n+31)/32) }
func (b bitset) has(id int) bool { return b[id/32].Load()&(1<<(id%32)) != 0 }
func (b bitset) set(id int)      { b[id/32].Or(1 << (id % 32)) }

func (b bitset) clear() {
	for i := range b {
		b[i].Store(0)
	}
}
