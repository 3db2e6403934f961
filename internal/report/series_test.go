package report

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestSeriesKeepsWhatWasAdded adds steps in any order: sums stay, the longest stall is where it
// was, and the number of points is bounded.
func TestSeriesKeepsWhatWasAdded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Series
		steps := rapid.SliceOfN(rapid.IntRange(0, 5000), 1, 300).Draw(t, "steps")
		longest := map[int]float64{}
		var sum float64
		for i, step := range steps {
			stall := float64(i%7) / 8
			s.Add(step, &Point{
				Batches: 1, Longest: stall, Stall: stall, Bytes: map[string]int64{"memory": int64(step)},
				At: float64(i),
			})
			longest[step], sum = max(longest[step], stall), sum+stall
		}
		if len(s.Points) > MostPoints || s.First%s.Width != 0 || s.Width&(s.Width-1) != 0 {
			t.Fatalf("%d points of %d from %d", len(s.Points), s.Width, s.First)
		}
		var got Point
		for i := range s.Points {
			got.merge(&s.Points[i])
			want := 0.0
			for step := s.First + i*s.Width; step < s.First+(i+1)*s.Width; step++ {
				want = max(want, longest[step])
			}
			if s.Points[i].Longest != want {
				t.Fatalf("point %d has %v, want %v", i, s.Points[i].Longest, want)
			}
		}
		if got.Batches != int64(len(steps)) || math.Abs(got.Stall-sum) > 1e-9 {
			t.Fatalf("%+v", got)
		}
	})
}

func TestSeriesOverNodes(t *testing.T) {
	var a, b Series
	for step := range 300 { // of a width of 4
		a.Add(step, &Point{
			Batches: 1, Longest: 0.1, Stall: 0.1, Bytes: map[string]int64{"source": 2}, At: 1,
			Usage: Usage{CPU: 2, Memory: 10, Read: map[string]int64{"source": 1}},
		})
	}
	b.Add(5, &Point{
		Batches: 1, Longest: 3, Stall: 3, Bytes: map[string]int64{"peer": 1}, At: 2,
		Usage: Usage{CPU: 1, Memory: 5, Read: map[string]int64{"source": 2}},
	})
	all := over([]*Series{&a, nil, &b})
	if all.Width != 4 || all.First != 0 || len(all.Points) != 75 {
		t.Fatalf("%d points of %d from %d", len(all.Points), all.Width, all.First)
	}
	want := Point{
		Batches: 5, Longest: 3, Stall: 3.4, Bytes: map[string]int64{"source": 8, "peer": 1}, At: 2,
		Usage: Usage{CPU: 3, Memory: 15, Read: map[string]int64{"source": 3}},
	}
	near := cmp.Comparer(func(x, y float64) bool { return math.Abs(x-y) < 1e-9 })
	if diff := cmp.Diff(want, all.Points[1], near); diff != "" {
		t.Error(diff)
	}
	if b.Width != 1 || over([]*Series{nil, {}}) != nil {
		t.Error("series of nodes are changed, or made of nothing")
	}
	if a.Points[1].Bytes["peer"] != 0 {
		t.Error("points share a map")
	}
}
