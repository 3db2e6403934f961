package cache

import (
	"context"
	"fmt"
	"time"

	"github.com/hdmlp/hdmlp/internal/source"
)

// # Reads that hang
//
// A system call that hangs, for example on a network file system whose server is gone, cannot be
// interrupted. To let its batch fail in time anyway, the watchdog (package flights) gives the read
// up: it ends the flight with an error, for the leader's consumer and for all followers, and starts
// another worker in place of the one that hangs. The read itself continues, so:
//
//   - its batch is done, but the batch's memory in the staging buffer is neither reused nor
//     unmapped before the read has ended (Consumer.GivenUp);
//   - in a storage class it remains a Fill in progress;
//   - followers have buffers of their own, which it never touches;
//   - Cache.Close reports that not all workers have ended.
//
// When a hung read returns, it finds its flight given up (land): its worker ends without touching
// the batch. If the read succeeded, the sample is kept.
//
// A read that waits for its turn (pool.Gate) does not hang, however long that takes: those before
// it end, or are given up, and it is admitted in the place of one that hangs.
//
// A hung read occupies a goroutine and its buffer, and often an operating system thread. Once there
// are as many as the pool has workers, and at least minHung, no more reads are started until one
// returns.
//
// A request to a server does not hang in the kernel, and is cancelled when it is given up: a server
// may send a byte now and then for ever.
//
// Rejected: a goroutine per read, which its caller waits for with a timer. It costs every read a
// goroutine switch for the sake of a rare event.

// minHung is the least number of hung reads after which a source counts as gone.
const minHung = 4

// giveUp gives up the reads that began before the given time. It ends each flight last: a leader
// that returns waits for that, so its consumer has been notified by then.
func (c *Cache) giveUp(before time.Time) {
	for _, fl := range c.flights.GiveUp(before) {
		err := c.hungError(fl)
		c.lend(fl, 1)
		if !fl.By.remote {
			c.pool.Replace(fl.By.Consumer == nil)
		}
		if fl.By.Consumer != nil {
			fl.By.Consumer.GivenUp(err)
		}
		if cancel, ok := c.cancels.Load(fl); ok {
			cancel.(context.CancelFunc)()
		}
		fl.Tell(err)
	}
}

// lend lets another read begin in the place of one that hangs, or takes that back.
func (c *Cache) lend(hangs *flight, n int) {
	if hangs.Inside() {
		c.gate.Lend(n)
	}
}

func (c *Cache) hungError(fl *flight) error {
	return &source.SampleError{
		ID: int(fl.ID), Path: c.path(int(fl.ID)), Kind: source.ErrUnavailable,
		Err: fmt.Errorf("no answer for %v, more than source_timeout (%v)",
			time.Since(fl.Since()).Round(time.Millisecond), c.timeout),
	}
}

// tooManyHung returns an error if no more reads may be started because too many hang.
func (c *Cache) tooManyHung(id int) error {
	n := c.flights.Hung()
	if n < max(c.pool.Most(), minHung) {
		return nil
	}
	return &source.SampleError{
		ID: id, Path: c.path(id), Kind: source.ErrUnavailable,
		Err: fmt.Errorf("not read, because %d earlier reads have hung for longer than "+
			"source_timeout (%v)", n, c.timeout),
	}
}

// Waiting is a read in progress.
type Waiting struct {
	Sample int
	Path   string    // where the source has it
	From   Tier      // what is read: another node or the source
	Since  time.Time // when it began
}

// Waiting returns the read that has been in progress longest; ok is false if there is none. Those
// that wait for their turn are not in progress.
func (c *Cache) Waiting() (longest Waiting, ok bool) {
	fl, since := c.flights.Oldest()
	if fl == nil {
		return Waiting{}, false
	}
	longest = Waiting{Sample: int(fl.ID), Path: c.path(int(fl.ID)), Since: since}
	if fl.Asks {
		longest.From = Peer
	}
	return longest, true
}

// LongestWrite is writeback.Writer.Longest of class j, from 0.
func (c *Cache) LongestWrite(j int, now time.Time) (present, ever time.Duration) {
	return c.classes[j].writer.Longest(now)
}
