package file

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/size"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// checkEvery is how many bytes are written between two looks at the free disk.
const checkEvery = 64 << 20

// onDisk is how many bytes all stores together may take: what the disk has free
// and what they have of it, less the reserve. c.mu is held, or nobody else has c.
func (c *Class) onDisk() (int64, error) {
	n, _, err := c.dir.Free()
	if err != nil {
		return 0, fmt.Errorf("measure the disk: %w", err)
	}
	for _, s := range c.mu.idle {
		n += s.bytes
	}
	for _, s := range c.mu.open {
		_, used := s.Room()
		n += used
	}
	return n - c.Reserve, nil
}

// unpromised is what a new store could have if all idle stores were evicted.
// It may be negative. c.mu is held.
func (c *Class) unpromised() (int64, error) {
	n, err := c.onDisk()
	if err != nil {
		return 0, err
	}
	if c.Capacity > 0 {
		n = min(n, c.Capacity)
	}
	for _, s := range c.mu.open {
		total, _ := s.Room()
		n -= total
	}
	return n, nil
}

// makeRoom evicts idle stores other than own, the one opened longest ago first,
// until own can have room bytes. c.mu is held.
func (c *Class) makeRoom(own [16]byte, room int64) error {
	limit, err := c.unpromised()
	if err != nil {
		return err
	}
	if room == 0 {
		return nil // nothing always fits, also where the disk has less than its reserve
	}
	if room > limit {
		return &storageclass.LimitError{
			What: "a store on disk", Need: room, Limit: max(limit, 0),
			Hint: "set cache_size to less, or make room on the disk",
		}
	}
	for fingerprint, s := range c.mu.idle {
		if fingerprint != own {
			limit -= s.bytes
		}
	}
	for room > limit {
		var oldest [16]byte
		var found bool
		for fingerprint, s := range c.mu.idle {
			if fingerprint != own && (!found || s.used.Before(c.mu.idle[oldest].used)) {
				oldest, found = fingerprint, true
			}
		}
		if !found { // stores without bytes are left, which cannot be
			return fmt.Errorf("make room for %s: nothing is left to evict", size.Format(room))
		}
		if err := removeStore(c.dir, storeName(oldest)); err != nil {
			return fmt.Errorf("evict the store of dataset %x: %w", oldest, err)
		}
		limit += c.mu.idle[oldest].bytes
		delete(c.mu.idle, oldest)
	}
	return nil
}

// wrote counts bytes, and looks at the disk now and then.
func (c *Class) wrote(n int64) {
	if c.unchecked.Add(n) < checkEvery {
		return
	}
	c.unchecked.Store(0)
	if free, _, err := c.dir.Free(); err == nil && free < c.Reserve {
		c.stop(fmt.Sprintf("its disk has %s left of the %s that are to stay free",
			size.Format(free), size.Format(c.Reserve)))
	}
}

// stop refuses new samples from now on, and says why, once.
func (c *Class) stop(why string) {
	if c.full.CompareAndSwap(false, true) {
		c.Warn(fmt.Sprintf("no more samples are cached in %s: %s", c.Dir, why))
	}
}
