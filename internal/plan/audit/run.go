package audit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// Piece is what a rank was given in one pass, without a gap: all batches from a position up to
// another. Positions count the run's steps.
type Piece struct {
	// ID is the pass's own. States of one rank that were saved during a pass and after it have pieces
	// of the same ID, and another pass over the same steps has another one.
	ID        string
	Rank      int
	WorldSize int
	From      int
	To        int
	Samples   int64
	Sum       uint64 // of access.Mix over its samples
	// After is the ID of the piece before it in the same state; empty: it is the state's first, and
	// Dropped is how many before it the state does not have any more.
	After   string
	Dropped int
}

// Wrong is a piece that is not what the stream has for its rank.
type Wrong struct {
	Piece
	Want  uint64 // its sum
	Count int64  // its samples
}

// Span is a stretch of a run, in positions.
type Span struct{ From, To int }

// Twice is a stretch of which samples came more than once.
type Twice struct {
	Span
	Times int // how often the samples of one rank at least came
}

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

// Proof is what pieces tell of a run. It is proved if there are neither wrong pieces nor gaps,
// nothing came twice, and no piece is after others that no state tells of.
type Proof struct {
	Steps    int // of an epoch
	Launches []Launch
	Samples  int64 // of all pieces of the launches
	Wrong    []Wrong
	Gaps     []Gap
	Twice    []Twice
	Dropped  []Piece // after pieces that no state has
}

// Proved reports whether each sample of the run was given to exactly one rank, once.
func (p *Proof) Proved() bool {
	return len(p.Launches) > 0 && len(p.Wrong)+len(p.Gaps)+len(p.Twice)+len(p.Dropped) == 0
}

// Prove compares the pieces of a run with its stream, from the run's first step to the last of any
// piece. The spec's WorldSize is ignored: launches may have different numbers of ranks. Of pieces
// with the same ID the longest counts, as states that were saved later contain those that were
// saved before; all others count one by one, so that steps of which two of them tell came twice.
//
// The error says which piece the stream cannot have.
func Prove(spec access.Spec, pieces []Piece) (*Proof, error) {
	pieces = slices.Clone(pieces)
	proof := &Proof{Dropped: afterDropped(pieces)}
	slices.SortFunc(pieces, func(a, b Piece) int {
		return cmp.Or(a.WorldSize-b.WorldSize, a.Rank-b.Rank, a.From-b.From, cmp.Compare(a.ID, b.ID),
			b.To-a.To, cmp.Compare(a.Sum, b.Sum), cmp.Compare(a.Samples, b.Samples))
	})
	pieces = slices.Compact(pieces)
	if err := samePasses(pieces); err != nil {
		return nil, err
	}
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
	longest := slices.CompactFunc(pieces, func(a, b Piece) bool { return a.ID == b.ID })
	proof.cover(longest)
	return proof, nil
}

// afterDropped returns the pieces before which a state dropped others, unless another state has
// what is before them. It clears what it has compared, so that pieces of several states are equal.
func afterDropped(pieces []Piece) (dropped []Piece) {
	known := map[string]bool{}
	for _, piece := range pieces {
		known[piece.ID] = known[piece.ID] || piece.After != "" || piece.Dropped == 0
	}
	for i, piece := range pieces {
		if !known[piece.ID] {
			dropped = append(dropped, piece)
			known[piece.ID] = true
		}
		pieces[i].After, pieces[i].Dropped = "", 0
	}
	return dropped
}

// samePasses checks that pieces with the same ID are of the same rank, and begin at the same step.
func samePasses(pieces []Piece) error {
	passes := map[string]Piece{}
	for _, piece := range pieces {
		first, is := passes[piece.ID]
		if !is {
			passes[piece.ID] = piece
			continue
		}
		if first.Rank != piece.Rank || first.WorldSize != piece.WorldSize || first.From != piece.From {
			return fmt.Errorf("rank %d of %d from step %d on and rank %d of %d from step %d on have "+
				"the same id %s: one of them was changed", first.Rank, first.WorldSize, first.From,
				piece.Rank, piece.WorldSize, piece.From, piece.ID)
		}
	}
	return nil
}

// shortBy is how many times the samples of a piece its steps may have; a sample that cannot be read
// is left out with on_error, but not most of a run.
const shortBy = 4

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
			if count[i]/shortBy > piece.Samples+int64(spec.Samples) { // not to go on for 2^32 epochs
				return fmt.Errorf("rank %d of %d cannot have been given steps %d to %d: samples is %d, "+
					"and these have more than %d", piece.Rank, spec.WorldSize, piece.From, piece.To,
					piece.Samples, count[i])
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
	whole, most := false, 0
	missing := map[int][]int{}
	for ranks, of := range times {
		most += slices.Max(of)
		if slices.Min(of) > 0 {
			p.launch(span, ranks)
			whole = true
			continue
		}
		for rank, n := range of {
			if n == 0 {
				missing[ranks] = append(missing[ranks], rank)
			}
		}
	}
	if !whole {
		p.Gaps = append(p.Gaps, Gap{span, missing})
	}
	if most < 2 {
		return
	}
	if n := len(p.Twice); n > 0 && p.Twice[n-1].To == span.From && p.Twice[n-1].Times == most {
		p.Twice[n-1].To = span.To
		return
	}
	p.Twice = append(p.Twice, Twice{span, most})
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
