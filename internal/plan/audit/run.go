package audit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// Piece is what a rank was given in one launch of a run: all batches from a position up to another.
// Positions count the run's steps.
type Piece struct {
	Rank      int
	WorldSize int
	From      int
	To        int
	Samples   int64
	Sum       uint64 // of access.Mix over its samples
}

// Wrong is a piece that is not what the stream has for its rank.
type Wrong struct {
	Piece
	Want  uint64 // its sum
	Count int64  // its samples
}

// Span is a stretch of a run, in positions.
type Span struct{ From, To int }

// Gap is a stretch that no launch gave to all of its ranks.
type Gap struct {
	Span
	// Missing are the ranks that no piece tells of, by the launch's number of ranks; empty: there is
	// no piece of any launch.
	Missing map[int][]int
}

// Launch is a stretch that all ranks of a launch were given.
type Launch struct {
	Span
	Ranks int
}

// Proof is what pieces tell of a run. It is proved if there are neither wrong pieces nor gaps, and
// nothing came twice.
type Proof struct {
	Steps    int // of an epoch
	Launches []Launch
	Samples  int64 // of all pieces of the launches
	Wrong    []Wrong
	Gaps     []Gap
	Twice    []Span
}

// Proved reports whether each sample of the run was given to exactly one rank, once.
func (p *Proof) Proved() bool {
	return len(p.Launches) > 0 && len(p.Wrong)+len(p.Gaps)+len(p.Twice) == 0
}

// Prove compares the pieces of a run with its stream, from the run's first step to the last of any
// piece. The spec's WorldSize is ignored: launches may have different numbers of ranks. Pieces that
// begin at the same position tell of the same launch, of which the longest counts, as states that
// were saved later contain those that were saved before.
//
// The error says which piece the stream cannot have.
func Prove(spec access.Spec, pieces []Piece) (*Proof, error) {
	pieces = slices.Clone(pieces)
	slices.SortFunc(pieces, func(a, b Piece) int {
		return cmp.Or(a.WorldSize-b.WorldSize, a.Rank-b.Rank, a.From-b.From, b.To-a.To,
			cmp.Compare(a.Sum, b.Sum), cmp.Compare(a.Samples, b.Samples))
	})
	pieces = slices.Compact(pieces)
	proof := &Proof{}
	for i := 0; i < len(pieces); {
		end := i
		for end < len(pieces) && pieces[end].WorldSize == pieces[i].WorldSize {
			end++
		}
		if err := proof.compare(spec, pieces[i:end]); err != nil {
			return nil, err
		}
		i = end
	}
	longest := slices.CompactFunc(pieces, func(a, b Piece) bool {
		return a.WorldSize == b.WorldSize && a.Rank == b.Rank && a.From == b.From
	})
	proof.cover(longest)
	return proof, nil
}

// compare finds the wrong ones among pieces of launches of one number of ranks.
func (p *Proof) compare(spec access.Spec, pieces []Piece) error {
	spec.WorldSize = pieces[0].WorldSize
	stream, err := access.New(spec)
	if err != nil {
		return err
	}
	steps := stream.Steps()
	if p.Steps != 0 && steps != p.Steps {
		return fmt.Errorf("%d ranks have epochs of %d steps, and others of %d", spec.WorldSize, steps,
			p.Steps)
	}
	p.Steps = steps
	first, last := pieces[0].From, pieces[0].To
	for _, piece := range pieces {
		if piece.Rank < 0 || piece.Rank >= spec.WorldSize || piece.From < 0 ||
			piece.To <= piece.From || steps == 0 {
			return fmt.Errorf("rank %d of %d cannot have been given steps %d to %d", piece.Rank,
				spec.WorldSize, piece.From, piece.To)
		}
		first, last = min(first, piece.From), max(last, piece.To)
	}
	want := make([]uint64, len(pieces))
	count := make([]int64, len(pieces))
	var epoch *access.Epoch
	var batch []int32
	for e := first / steps; e*steps < last; e++ {
		epoch = stream.EpochInto(epoch, e)
		for i, piece := range pieces {
			from, to := max(piece.From, e*steps), min(piece.To, (e+1)*steps)
			for at := from; at < to; at++ {
				batch = epoch.Batch(batch[:0], piece.Rank, at%steps)
				count[i] += int64(len(batch))
				for _, sample := range batch {
					want[i] += access.Mix(e, int(sample))
				}
			}
		}
	}
	for i, piece := range pieces {
		if piece.Sum != want[i] || piece.Samples != count[i] {
			p.Wrong = append(p.Wrong, Wrong{piece, want[i], count[i]})
		}
	}
	return nil
}

// cover finds out which stretches all ranks of a launch were given, and how often.
func (p *Proof) cover(pieces []Piece) {
	points := []int{0}
	for _, piece := range pieces {
		points = append(points, piece.From, piece.To)
	}
	slices.Sort(points)
	points = slices.Compact(points)
	for i := range len(points) - 1 {
		p.stretch(Span{points[i], points[i+1]}, pieces)
	}
	for _, piece := range pieces {
		p.Samples += piece.Samples
	}
}

// stretch notes a stretch in which no piece begins or ends.
func (p *Proof) stretch(span Span, pieces []Piece) {
	times := map[int][]int{} // of each rank, by the number of ranks
	for _, piece := range pieces {
		if piece.From <= span.From && piece.To >= span.To {
			if times[piece.WorldSize] == nil {
				times[piece.WorldSize] = make([]int, piece.WorldSize)
			}
			times[piece.WorldSize][piece.Rank]++
		}
	}
	whole := 0
	missing := map[int][]int{}
	for ranks, of := range times {
		if n := slices.Min(of); n > 0 {
			p.launch(span, ranks)
			whole += n
			continue
		}
		for rank, n := range of {
			if n == 0 {
				missing[ranks] = append(missing[ranks], rank)
			}
		}
	}
	switch {
	case whole == 0:
		p.Gaps = append(p.Gaps, Gap{span, missing})
	case whole > 1 && len(p.Twice) > 0 && p.Twice[len(p.Twice)-1].To == span.From:
		p.Twice[len(p.Twice)-1].To = span.To
	case whole > 1:
		p.Twice = append(p.Twice, span)
	}
}

// launch adds a stretch to the launch of this number of ranks that it continues.
func (p *Proof) launch(span Span, ranks int) {
	for i := range p.Launches {
		if p.Launches[i].Ranks == ranks && p.Launches[i].To == span.From {
			p.Launches[i].To = span.To
			return
		}
	}
	p.Launches = append(p.Launches, Launch{span, ranks})
}
