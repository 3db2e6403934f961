package audit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// pieces returns what the ranks of a launch are given from one position to another.
func pieces(t interface{ Fatal(args ...any) }, spec access.Spec, ranks, from, to int) []Piece {
	spec.WorldSize = ranks
	s, err := access.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	var all []Piece
	for rank := range ranks {
		piece := Piece{
			ID:   fmt.Sprintf("%d of %d from %d", rank, ranks, from),
			Rank: rank, WorldSize: ranks, From: from, To: to,
		}
		for at := from; at < to; at++ {
			e := s.Epoch(at / s.Steps())
			for _, sample := range e.Batch(nil, rank, at%s.Steps()) {
				piece.Sum += access.Mix(e.Number(), int(sample))
				piece.Samples++
			}
		}
		all = append(all, piece)
	}
	return all
}

// spec leaves no rank of up to 4 without samples of a batch: 55 are 4 batches of 12 and one of 7.
var spec = access.Spec{
	Samples: 55, Seed: 7, GlobalBatch: 12, Tail: access.Keep, Scheme: access.Uniform,
}

func prove(t *testing.T, all []Piece) *Proof {
	t.Helper()
	proof, err := Prove(spec, all)
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

func TestARunIsProvedAcrossLaunches(t *testing.T) {
	all := slices.Concat(pieces(t, spec, 3, 0, 7), pieces(t, spec, 2, 7, 9),
		pieces(t, spec, 4, 9, 15))
	earlier := pieces(t, spec, 3, 0, 4) // of states that were saved before
	proof := prove(t, slices.Concat(all, earlier, all))
	want := []Launch{{Span{0, 7}, 3}, {Span{7, 9}, 2}, {Span{9, 15}, 4}}
	if !proof.Proved() || !slices.Equal(proof.Launches, want) || proof.Samples != 165 {
		t.Fatalf("%+v", proof)
	}
}

// TestWhatIsMissingOrChangedIsNotProved takes a proof apart in each way.
func TestWhatIsMissingOrChangedIsNotProved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cut := rapid.IntRange(1, 14).Draw(t, "cut")
		all := slices.Concat(pieces(t, spec, 3, 0, cut), pieces(t, spec, 2, cut, 15))
		i := rapid.IntRange(0, len(all)-1).Draw(t, "piece")
		switch rapid.SampledFrom([]string{"gone", "sum", "samples", "later", "longer"}).Draw(t, "how") {
		case "gone":
			all = slices.Delete(all, i, i+1)
		case "sum":
			all[i].Sum += rapid.Uint64Range(1, 1<<63).Draw(t, "by")
		case "samples":
			all[i].Samples--
		case "later":
			all[i].From++
			if all[i].From == all[i].To {
				all = slices.Delete(all, i, i+1)
			}
		case "longer":
			all[i].To++
		}
		proof, err := Prove(spec, all)
		if err != nil {
			t.Fatal(err)
		}
		if proof.Proved() {
			t.Fatalf("%+v", proof)
		}
	})
}

func TestGapsAndRepetitionsAreFound(t *testing.T) {
	proof := prove(t, slices.Concat(pieces(t, spec, 2, 2, 7), pieces(t, spec, 3, 5, 9)[:2],
		pieces(t, spec, 4, 6, 8)))
	// The second launch has no third rank, and others got the samples of its two.
	twice := []Twice{{Span{5, 6}, 2}, {Span{6, 7}, 3}, {Span{7, 8}, 2}}
	gaps := []Gap{{Span: Span{0, 2}}, {Span{8, 9}, map[int][]int{3: {2}}}}
	same := func(a, b Gap) bool {
		return a.Span == b.Span && maps.EqualFunc(a.Missing, b.Missing, slices.Equal[[]int])
	}
	if !slices.EqualFunc(proof.Gaps, gaps, same) || !slices.Equal(proof.Twice, twice) ||
		len(proof.Wrong) != 0 || proof.Proved() {
		t.Fatalf("%+v", proof)
	}
}

// TestAnotherPassOverTheSameStepsIsARepetition also where it is one of one rank, or is a part of
// the first pass, or equal to it.
func TestAnotherPassOverTheSameStepsIsARepetition(t *testing.T) {
	all := pieces(t, spec, 3, 0, 10)
	for _, c := range []struct {
		from, to, ranks int
		want            Twice
	}{
		{0, 10, 3, Twice{Span{0, 10}, 2}},
		{0, 10, 1, Twice{Span{0, 10}, 2}},
		{0, 3, 3, Twice{Span{0, 3}, 2}},
		{5, 7, 1, Twice{Span{5, 7}, 2}},
	} {
		again := pieces(t, spec, 3, c.from, c.to)[:c.ranks]
		for i := range again {
			again[i].ID += " again"
		}
		proof := prove(t, slices.Concat(all, again))
		if proof.Proved() || !slices.Equal(proof.Twice, []Twice{c.want}) {
			t.Errorf("%+v: %+v", c, proof)
		}
	}
}

// TestWhatAStateDroppedMustBeInAnother or it is not proved, which pieces are all that there was.
func TestWhatAStateDroppedMustBeInAnother(t *testing.T) {
	first, second := pieces(t, spec, 1, 0, 4)[0], pieces(t, spec, 1, 4, 7)[0]
	second.After = first.ID
	third := pieces(t, spec, 1, 7, 9)[0]
	third.After = second.ID
	cut := pieces(t, spec, 1, 4, 7)[0]
	cut.Dropped = 1
	for _, c := range []struct {
		what    string
		all     []Piece
		dropped int
	}{
		{"nothing dropped", []Piece{first, second, third}, 0},
		{"an earlier state has it", []Piece{first, second, cut, third}, 0},
		{"an earlier state has what follows alone", []Piece{first, cut, third}, 1},
		{"no state has it", []Piece{cut, third}, 1},
		{"two states that lack it", []Piece{cut, third, cut}, 1},
	} {
		proof := prove(t, c.all)
		if len(proof.Dropped) != c.dropped || proof.Proved() != (c.dropped == 0) {
			t.Errorf("%s: %+v", c.what, proof)
		}
	}
}

func TestPiecesThatCannotBeAreRefused(t *testing.T) {
	for _, piece := range []Piece{
		{Rank: 2, WorldSize: 2, To: 1},
		{Rank: -1, WorldSize: 2, To: 1},
		{WorldSize: 2, From: 3, To: 3},
		{WorldSize: 2, From: -1, To: 3},
	} {
		_, err := Prove(spec, []Piece{piece})
		if err == nil || !strings.Contains(err.Error(), "cannot have been given") {
			t.Errorf("%+v: %v", piece, err)
		}
	}
	_, err := Prove(spec, []Piece{{WorldSize: 1, To: 5 << 32, Samples: 55}})
	if err == nil || !strings.Contains(err.Error(), "samples is 55, and these have more than") {
		t.Errorf("2^32 epochs of 55 samples: %v", err)
	}
	all := pieces(t, spec, 2, 0, 3)
	all[1].ID = all[0].ID
	if _, err := Prove(spec, all); err == nil || !strings.Contains(err.Error(), "the same id") {
		t.Errorf("2 ranks with one ID: %v", err)
	}
	if _, err := Prove(spec, []Piece{{WorldSize: 0, To: 1}}); err == nil {
		t.Error("0 ranks are accepted")
	}
	if proof := prove(t, nil); proof.Proved() {
		t.Error("nothing is proved")
	}
}
