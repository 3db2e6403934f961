package file

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file/disk"
)

// checkEvery is how many bytes are written between two checks of the free disk space.
const checkEvery = 64 << 20

// onDisk returns how many bytes all stores together may take: what the disk has free plus what they
// take, minus the reserve. c.mu is held, or c is not shared yet.
func (c *Class) onDisk() (int64, error) {
	n, _, err := c.dir.Free()
	if err != nil {
		return 0, fmt.Errorf("measure the disk: %w", err)
	}
	for _, s := range c.mu.idle {
		n += s.bytes
	}
	for _, s := range c.mu.open {
		_, used := s.Capacity()
		n += used
	}
	return n - c.Reserve, nil
}

// unpromised returns what a new store could have if all idle stores were evicted. It may be
// negative. c.mu is held.
func (c *Class) unpromised() (int64, error) {
	n, err := c.onDisk()
	if err != nil {
		return 0, err
	}
	if c.Capacity > 0 {
		n = min(n, c.Capacity)
	}
	for _, s := range c.mu.open {
		n -= s.promised()
	}
	return n, nil
}

// formRoom returns how many bytes more all open stores' forms may take than their samples as read:
// half of what no store was promised or takes, so that later stores have room. A store that needs
// more has it nevertheless, and then it is below 0, until forms have become samples.
func (c *Class) formRoom() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.unpromised()
	if err != nil {
		return 0
	}
	for _, s := range c.mu.idle {
		n -= s.bytes
	}
	n /= 2
	for _, s := range c.mu.open {
		f := s.Formed()
		n -= f.Bytes - f.AsRead
	}
	return n
}

// makeRoom evicts idle stores other than own, the one opened longest ago first, until own can have
// capacity bytes. c.mu is held.
func (c *Class) makeRoom(own [16]byte, capacity int64) error {
	limit, err := c.unpromised()
	if err != nil {
		return err
	}
	if capacity == 0 {
		return nil // zero bytes always fit, even if the disk has less free than its reserve
	}
	if capacity > limit {
		return &store.LimitError{
			What: "a store in " + c.Dir, Need: capacity, Limit: max(limit, 0), Hint: c.hint(),
		}
	}
	for fingerprint, s := range c.mu.idle {
		if fingerprint != own {
			limit -= s.bytes
		}
	}
	for capacity > limit {
		var oldest [16]byte
		var found bool
		for fingerprint, s := range c.mu.idle {
			if fingerprint != own && (!found || s.used.Before(c.mu.idle[oldest].used)) {
				oldest, found = fingerprint, true
			}
		}
		if !found { // unreachable: without idle stores capacity is within limit
			return fmt.Errorf("make room for %s: nothing is left to evict", human.Format(capacity))
		}
		if err := removeStore(c.dir, storeName(oldest)); err != nil {
			return fmt.Errorf("evict the store of dataset %x: %w", oldest, err)
		}
		limit += c.mu.idle[oldest].bytes
		delete(c.mu.idle, oldest)
	}
	return nil
}

// wrote counts written bytes, and checks the free disk space from time to time.
func (c *Class) wrote(n int64) {
	if c.unchecked.Add(n) < checkEvery {
		return
	}
	c.unchecked.Store(0)
	if free, _, err := c.dir.Free(); err == nil && free < c.Reserve {
		c.stop(fmt.Sprintf("its disk has %s left, less than the %s to leave free (disk_reserve)",
			human.Format(free), human.Format(c.Reserve)))
	}
}

// mostFailed is after how many writes in succession that fail no more are tried. A disk that fails
// all of them must not be given every sample that is read; one that fails a single one may go on.
const mostFailed = 8

// failing reports whether no more samples are to be written after a write that failed with err.
func (c *Class) failing(err error) bool {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG),
		errors.Is(err, unix.EROFS):
		c.stop(disk.Why(err))
	case c.failed.Add(1) >= mostFailed:
		c.stop(fmt.Sprintf("the last %d writes failed: %v; check the disk", mostFailed, err))
	default:
		return false
	}
	return true
}

// stop refuses new samples from now on, and warns with the reason, once.
func (c *Class) stop(why string) {
	if c.stopped.CompareAndSwap(nil, &why) {
		c.Warn(fmt.Sprintf("no more samples are cached in %s: %s", c.Dir, why))
	}
}
