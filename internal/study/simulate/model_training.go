package simulate

import (
	"context"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// training is what a job computes: batch after batch, each when all its ranks have finished the one
// before. A group of jobs that share what they prepare is one training, because all of them take
// each batch at the same time.
type training struct {
	first  bool // the job whose order is measured
	stream *access.Stream
	ranks  []rank // of model.ranks, by node
	base   int    // number of its first rank there
	open   []*epoch

	arrived    int // ranks that have finished the batch
	slowest    float64
	heaviest   float64 // MB of the rank that computes longest in the batch
	compute    float64 // of the heaviest ranks, seconds
	released   float64 // when the batch began
	epochStart float64
	step       int // batches done, over all epochs

	// What the result has of the job that ends last.
	epochs, batches             []float64 // seconds of each
	epochsSource, batchesSource []float64 // MB that left the source, for all jobs, until its end
}

// epoch is the order of one epoch, shared by a job's ranks.
type epoch struct {
	number  int
	order   *access.Epoch
	entered int // ranks that have begun to load it
}

// enter returns the epoch for a rank that begins it, and counts that rank.
func (t *training) enter(number int) *epoch {
	for _, e := range t.open {
		if e.number == number {
			if e.entered++; e.entered == len(t.ranks) {
				t.open = append(t.open[:0], t.open[1:]...)
			}
			return e
		}
	}
	e := &epoch{number: number, entered: 1, order: t.stream.Epoch(number)}
	if len(t.ranks) > 1 {
		t.open = append(t.open, e)
	}
	return e
}

// arrive records that the rank has finished its batch.
func (m *simulation) arrive(n *rank) {
	t := n.job
	n.waiting = true
	t.slowest = max(t.slowest, n.busy)
	t.heaviest = max(t.heaviest, n.load)
	n.load = 0
	if t.arrived++; t.arrived == len(t.ranks) {
		m.ready = append(m.ready, t)
	}
}

// release starts the next batch of the jobs all of whose ranks have finished theirs: training is
// bulk-synchronous.
func (m *simulation) release() {
	for len(m.ready) > 0 {
		t := m.ready[len(m.ready)-1]
		m.ready = m.ready[:len(m.ready)-1]
		end := t.slowest
		t.compute += t.heaviest * m.perMB
		if m.job.PerBatch {
			t.batches = append(t.batches, end-t.released)
			t.batchesSource = append(t.batchesSource, m.result.SourceTotal)
		}
		t.released = end
		t.step++
		if t.step%m.steps == 0 {
			t.epochs = append(t.epochs, end-t.epochStart)
			t.epochsSource = append(t.epochsSource, m.result.SourceTotal)
			t.epochStart = end
		}
		if t.step < m.steps*m.epochs {
			m.startBatch(t, end)
		} else if m.left--; m.left == 0 {
			m.over = true
		}
	}
}

// startBatch starts the job's next batch on all nodes at time now.
func (m *simulation) startBatch(t *training, now float64) {
	t.arrived = 0
	t.slowest = now
	t.heaviest = 0
	shares := m.full
	if t.step%m.steps == m.steps-1 {
		shares = m.last
	}
	for i := range t.ranks {
		n := &t.ranks[i]
		n.busy = now
		n.waiting = false
		n.left = shares[i]
		if n.left == 0 {
			m.arrive(n)
			continue
		}
		m.consume(t.base+i, n)
		if n.start == inf {
			m.schedule(t.base+i, n)
		} else if len(n.soon) > 0 || m.drops != nil {
			m.setClock(t.base+i, n)
		}
	}
}

// perfect computes the lower bound: all samples are in the staging buffer, and a batch takes the
// computation time of the node with the largest part of it. Its reads count as local reads from the
// staging buffer, class 0.
func (m *simulation) perfect(ctx context.Context) error {
	for j := range m.jobs {
		t := &m.jobs[j]
		for e := range m.epochs {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			m.perfectEpoch(t, e)
		}
	}
	return nil
}

func (m *simulation) perfectEpoch(t *training, e int) {
	order := t.stream.Epoch(e)
	var ids []int32
	for step := range m.steps {
		heaviest := 0.0
		for i := range t.ranks {
			ids = order.Batch(ids[:0], i, step)
			load := 0.0
			for _, k := range ids {
				load += m.sizes[k]
			}
			heaviest = max(heaviest, load)
			m.local[0].MB += load
			m.local[0].Samples += int64(len(ids))
			if e < m.measure.Epochs() && t.first {
				m.measure.Add(e, step, i, ids)
			}
		}
		seconds := heaviest * m.perMB
		t.compute += seconds
		if m.job.PerBatch {
			t.batches = append(t.batches, seconds)
			t.batchesSource = append(t.batchesSource, 0)
		}
	}
	t.epochs = append(t.epochs, t.compute-t.released)
	t.epochsSource = append(t.epochsSource, 0)
	t.released = t.compute
}

// times puts the times of the job that ends last into the result.
func (m *simulation) times() {
	t := &m.jobs[0]
	for j := range m.jobs {
		if m.jobs[j].released > t.released {
			t = &m.jobs[j]
		}
	}
	r := &m.result
	r.Runtime = t.released
	r.Stall = t.released - r.BeforeTraining - t.compute
	r.Epochs, r.Batches = t.epochs, t.batches
	r.EpochsSource, r.BatchesSource = differences(t.epochsSource), differences(t.batchesSource)
}

// differences replaces sums by what was added to each.
func differences(sums []float64) []float64 {
	for i := len(sums) - 1; i > 0; i-- {
		sums[i] -= sums[i-1]
	}
	return sums
}
