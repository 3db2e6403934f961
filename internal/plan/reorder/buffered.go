package reorder

import (
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// Buffered returns the order of a pipeline of tf.data (thesis 2.3): the files are put into a random
// order in each epoch and divided among the ranks, each of which reads its files one after the
// other, and their samples in order, into a shuffle buffer of `buffer` samples. Once that is full,
// each sample that training takes is any one of the buffer's, with equal probability, and the next
// sample of the files takes its place. files has the first sample of each file, which has
// consecutive samples, and in the end the number of samples.
//
// If there are fewer files than ranks, the ranks divide what one such pipeline gives, each position
// of the epoch in turn (AutoShardPolicy.DATA). A pipeline that has fewer samples than it gives in
// an epoch begins again once it has given all, with its files in another order (Dataset.shuffle,
// then Dataset.repeat); one that has more leaves the rest out.
func Buffered(in *plan.Input, policy string, files []int32, buffer int) access.Order {
	spec := in.Stream.Spec()
	name := named(policy, in, files, []int32{int32(buffer)})
	return access.Order{Name: name, Draw: func(of *access.Epoch) []int32 {
		ids := make([]int32, in.Stream.Delivered())
		if len(files)-1 < spec.WorldSize {
			all := newPipeline(files, buffer, 0, 1, spec.Seed, of.Number())
			for p := range ids {
				ids[p] = all.take()
			}
			return ids
		}
		ranks := make([]*pipeline, spec.WorldSize)
		for r := range ranks {
			ranks[r] = newPipeline(files, buffer, r, spec.WorldSize, spec.Seed, of.Number())
		}
		// Batches of the same size deal their positions alike.
		size, base := -1, 0
		var at, to []int32
		for step := range in.Stream.Steps() {
			if m := in.Stream.BatchSize(step); m != size {
				at, to = in.Stream.Deal(step)
				size = m
			}
			for i := range at {
				ids[base+int(at[i])] = ranks[to[i]].take()
			}
			base += size
		}
		return ids
	}}
}

// The keys of random numbers.
const (
	bufferKey = 0x62756666
	filesKey  = 0x66696c65
)

// pipeline is what a rank reads in an epoch.
type pipeline struct {
	files       []int32
	size        int // of the buffer
	rank, ranks int
	seed        uint64
	epoch       int
	pick        random
	buffer      []int32

	pass  int     // over the files
	order []int32 // of all files in the pass
	file  int     // index in order
	next  int32   // sample of that file, from 0
}

// newPipeline returns the pipeline of a rank that has every ranks-th of the files.
func newPipeline(files []int32, size, rank, ranks int, seed uint64, epoch int) *pipeline {
	r := &pipeline{
		files: files, size: size, rank: rank, ranks: ranks, seed: seed, epoch: epoch,
		pick: seeded(seed, uint64(epoch), uint64(rank), bufferKey),
	}
	r.begin()
	return r
}

// begin begins a pass: it puts the files into an order, and fills the buffer.
func (r *pipeline) begin() {
	r.order = make([]int32, len(r.files)-1)
	rng := seeded(r.seed, uint64(r.epoch), uint64(r.pass), filesKey)
	for i := range r.order {
		j := rng.below(i + 1)
		r.order[i] = r.order[j]
		r.order[j] = int32(i)
	}
	r.file, r.next = r.rank, 0
	r.pass++
	for len(r.buffer) < r.size {
		id, ok := r.input()
		if !ok {
			return
		}
		r.buffer = append(r.buffer, id)
	}
}

// take returns the next sample of the rank.
func (r *pipeline) take() int32 {
	if len(r.buffer) == 0 {
		r.begin()
	}
	i := r.pick.below(len(r.buffer))
	id := r.buffer[i]
	next, ok := r.input()
	if !ok {
		last := len(r.buffer) - 1
		next = r.buffer[last]
		r.buffer = r.buffer[:last]
		if i == last {
			return id
		}
	}
	r.buffer[i] = next
	return id
}

// input returns the next sample of the rank's files; ok is false at the end of the pass.
func (r *pipeline) input() (id int32, ok bool) {
	for r.file < len(r.order) {
		f := r.order[r.file]
		if id = r.files[f] + r.next; id < r.files[f+1] {
			r.next++
			return id, true
		}
		r.next = 0
		r.file += r.ranks
	}
	return 0, false
}

// Files returns the beginnings of files of about so many bytes that hold the samples in the order
// of their IDs, as for Buffered.
func Files(in *plan.Input, bytes int64) []int32 {
	samples := in.Stream.Spec().Samples
	files, sum := []int32{0}, int64(0)
	for k := range samples {
		if sum >= bytes {
			files = append(files, int32(k))
			sum = 0
		}
		sum += in.Size(k)
	}
	return append(files, int32(samples))
}
