package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/job"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

const (
	kib = 1 << 10
	// the placement plan, and the sample tables with one storage class
	planSize = 40 * (64 + 24 + 8 + 11 + 32)
)

// TestJobIsRefusedIfItsMemoryDoesNotFit checks that a job is refused if the sum of all that it may
// take does not fit, even if its memory class does, and that the error has the summands and the
// limit.
func TestJobIsRefusedIfItsMemoryDoesNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		available int64
		ranks     int
		change    []func(*request.Open)
		need      int64 // 0: it fits
		says      []string
	}{
		"fits": {available: total + 64*kib + planSize, ranks: 1},
		"a buffer too many": {
			available: total + 127*kib + planSize, ranks: 2, need: total + 128*kib + planSize,
			says: []string{
				"39.1 KiB for the memory class (memory)",
				"128.0 KiB for staging buffers (2 of 64.0 KiB", "set memory to 38.1 KiB or less",
			},
		},
		"decoding": {
			available: 20 << 20, ranks: 1, need: total + 256*kib + 24<<20 + planSize,
			change: []func(*request.Open){
				arrays, set("decode_memory", "24MiB"),
				set("staging_buffer", "256KiB"),
			},
			says: []string{
				"24.0 MiB for decoding (decode_memory)",
				"reduce staging_buffer, decode_memory or the batch size",
			},
		},
		"derived memory": {
			available: 70 * kib,
			ranks:     1,
			change:    []func(*request.Open){set("memory", nil)},
		},
		"derived decoding": {
			available: total + 65<<20,
			ranks:     1,
			change:    []func(*request.Open){arrays},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := world{available: func() (int64, error) { return c.available, nil }}
			n := w.node()
			defer w.close(t, n)
			if c.need == 0 {
				r := open(t, n, message(0, c.ranks, c.change...))
				if sum := n.options.Budget.Outstanding() + n.catalog.Promised(); sum > c.available {
					t.Errorf("the job may take %d bytes, but %d are available", sum, c.available)
				}
				r.Close()
				if n.options.Budget.Outstanding() != 0 || n.catalog.Promised() != 0 {
					t.Error("claims of an ended job are left")
				}
				return
			}
			e := refusal(t, n, message(0, c.ranks, c.change...))
			if e.Kind != failure.Limit || e.Details["need"] != c.need ||
				e.Details["limit"] != c.available {
				t.Errorf("%+v, want %d needed", e, c.need)
			}
			for _, says := range c.says {
				if !strings.Contains(e.Message, says) {
					t.Errorf("%q does not say %q", e.Message, says)
				}
			}
		})
	}
}

// TestMemoryIsReservedUntilTheJobEnds checks that what a job may still take is not available to
// another one until the job has ended.
func TestMemoryIsReservedUntilTheJobEnds(t *testing.T) {
	w := world{available: func() (int64, error) { return total + 178*kib + planSize, nil }}
	n := w.node()
	// It may still take 64 KiB for its buffer, however much of its class is filled.
	first := open(t, n, message(0, 1))
	other := message(0, 2, func(m *request.Open) { m.Job, m.Dataset.Path = "k", "/else" })
	if e := refusal(t, n, other); !strings.Contains(e.Message,
		"reserved by other jobs of this daemon") {
		t.Errorf("%+v", e)
	}
	first.Close()
	open(t, n, other).Close()
	w.close(t, n)
}

// TestOpenClassesCountOnce checks that what another job's memory class may still take is counted
// for its store, and no longer for the job.
func TestOpenClassesCountOnce(t *testing.T) {
	w := world{available: func() (int64, error) {
		return 2*total + 128*kib + planSize + total/2, nil
	}}
	n := w.node()
	keepsNothing := set("policy", "staging")
	first := open(t, n, message(0, 1, keepsNothing))
	open(t, n, message(0, 1, keepsNothing, func(m *request.Open) {
		m.Job, m.Dataset.Path = "k", "/else"
	})).Close()
	first.Close()
	w.close(t, n)
}

// TestDerivedSizesLeaveMemoryForManyJobs checks that derived sizes leave memory for many jobs of
// one process.
func TestDerivedSizesLeaveMemoryForManyJobs(t *testing.T) {
	w := world{available: func() (int64, error) { return 16 << 30, nil }}
	n := w.node()
	var jobs []*Rank
	for i := range 60 {
		jobs = append(jobs, open(t, n, message(0, 1, func(m *request.Open) {
			m.Job = fmt.Sprint("job", i)
			m.Transforms = json.RawMessage(
				`[{"name": "CenterCrop", "size": 2}, {"name": "ToTensor"}]`,
			)
		})))
	}
	for _, job := range jobs {
		job.Close()
	}
	w.close(t, n)
}

// TestSmallBufferIsMadeLarger checks that a staging buffer holds at least 2 batches, and that the
// process is warned if it asked for less.
func TestSmallBufferIsMadeLarger(t *testing.T) {
	var w world
	n := w.node()
	r := open(t, n, message(0, 1, func(m *request.Open) { m.Stream.GlobalBatch = 40 }))
	if size := r.Segments()[0].Size; size < 2*40*sampleSize {
		t.Errorf("a staging buffer of %d bytes", size)
	}
	if warnings := r.Opened().Warnings; len(warnings) != 1 ||
		!strings.Contains(warnings[0],
			"staging_buffer = 65536 bytes is less than 2 batches of about 40000 bytes; using "+
				"80000 bytes") {
		t.Errorf("warnings %q", warnings)
	}
	r.Close()
	w.close(t, n)
}

// TestOtherCachesYield checks that what is cached for no job is evicted once a job's caches are
// open, and that an error of that refuses the job.
func TestOtherCachesYield(t *testing.T) {
	var w world
	n := w.node()
	yields := 0
	var fails error
	n.options.Budget.Yield = func() error {
		if yields++; n.catalog.Promised() == 0 || n.options.Budget.Outstanding() == 0 {
			t.Error("Yield was called before the claims were known")
		}
		return fails
	}
	m := message(0, 1, set("policy", "staging")) // leaves the class empty
	open(t, n, m).Close()
	fails = errors.New("the disk is gone")
	if e := refusal(t, n, m); yields != 2 || !strings.Contains(e.Message, "the disk is gone") {
		t.Errorf("yielded %d times; told %+v", yields, e)
	}
	w.close(t, n)
}

// TestOrdersAreClaimed checks that the memory for orders that have not been given yet is reserved,
// and is available when they are.
func TestOrdersAreClaimed(t *testing.T) {
	var available atomic.Int64
	available.Store(1 << 30)
	w := world{available: func() (int64, error) { return available.Load(), nil }}
	n := w.node()
	order := make([]int32, 100_000)
	r := open(t, n, message(0, 1, by(t, []int32{50_000, 50_000}, 0, order),
		set("staging_buffer", nil), set("memory", "10000B")))
	buffer, _ := job.BufferSize(r.entry.open.Order, 0, 0, nil)
	if got, least := n.options.Budget.Outstanding()-buffer, int64(3*4*len(order)); got < least {
		t.Errorf("%d bytes are claimed besides the staging buffer, want at least %d", got, least)
	}
	available.Store(0)
	if err := give(t, r, 1, order); err != nil {
		t.Error(err)
	}
	r.Close()
	available.Store(401 * kib)
	if e := refusal(t, n, message(0, 1, by(t, []int32{50_000, 50_000}, 0, order),
		set("memory", "10000B"))); !strings.Contains(e.Message,
		"1.1 MiB for the orders of epochs not yet supplied") {
		t.Errorf("%+v", e)
	}
	w.close(t, n)
}

// TestBatchLargerThanTheDataset checks that such a batch is one short batch, and takes no more
// memory than that.
func TestBatchLargerThanTheDataset(t *testing.T) {
	for _, ranks := range []int{1, 3} {
		w := world{}
		n := w.node()
		var all []*Rank
		for r := range ranks {
			all = append(all, open(t, n,
				message(r, ranks, set("staging_buffer", nil), set("memory", "0"),
					func(m *request.Open) {
						m.Stream.GlobalBatch, m.Stream.Tail = 1<<31, "keep"
					})))
		}
		seen := make([]atomic.Int32, samples)
		together(all, func(r *Rank) {
			for _, ids := range consume(t, r, at{}, end) {
				for _, k := range ids {
					seen[k].Add(1)
				}
			}
		})
		for _, r := range n.Reports()[0].Ranks {
			if size := r.Staging.Size; size > 256<<20 {
				t.Errorf("a staging buffer of %d bytes", size)
			}
		}
		for k := range seen {
			if seen[k].Load() != 4 {
				t.Errorf("sample %d was delivered %d times in 4 epochs", k, seen[k].Load())
			}
		}
		closeAll(all)
		w.close(t, n)
	}
}
