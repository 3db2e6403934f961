package main

import (
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model/remedy"
	"github.com/hdmlp/hdmlp/internal/study/analysis"
)

// TestTheFirstAdviceIsTriedWhereItCanBe: with torch's workers, or the configuration of hdmlp's
// loader, as far as the script does not give that itself, and there are the cores and the memory.
func TestTheFirstAdviceIsTriedWhereItCanBe(t *testing.T) {
	change := func(key remedy.Key, amount float64) []remedy.Change {
		return []remedy.Change{{Key: key, Amount: amount}}
	}
	for _, c := range []struct {
		name   string
		loader string
		option analysis.Option
		given  map[string]any
		want   trial
		why    string
	}{
		{
			"hdmlp", analysis.Torch,
			analysis.Option{Switch: true, Simulated: 2, Epoch: 3},
			nil,
			trial{variables: []string{"HDMLP_MEMORY=1050000B"}, predicted: 2},
			"",
		},
		{
			"forms", analysis.HDMLP,
			analysis.Option{Forms: true, Epoch: 3, Changes: change(remedy.Memory, 9)},
			nil,
			trial{},
			"samples become forms only in the course of six epochs or more",
		},
		{
			"hdmlp, and more", analysis.Torch,
			analysis.Option{Switch: true, Epoch: 3, Changes: change(remedy.SourceRate, 9)},
			nil,
			trial{},
			"it changes the machine",
		},
		{
			"workers of two ranks", analysis.Torch,
			analysis.Option{Epoch: 3, Changes: change(remedy.Threads, 4)},
			nil,
			trial{workers: 2, predicted: 3},
			"",
		},
		{
			"too many workers", analysis.Torch,
			analysis.Option{Epoch: 3, Changes: change(remedy.Threads, 5)},
			nil,
			trial{},
			"there are 4 cores",
		},
		{
			"threads", analysis.HDMLP,
			analysis.Option{Epoch: 3, Changes: change(remedy.Threads, 4)},
			nil,
			trial{variables: []string{"HDMLP_TRANSFORM_THREADS=4"}, predicted: 3},
			"",
		},
		{
			"memory", analysis.HDMLP,
			analysis.Option{Epoch: 3, Changes: change(remedy.Memory, 4e6)},
			nil,
			trial{variables: []string{"HDMLP_MEMORY=4000000B"}, predicted: 3},
			"",
		},
		{
			"too much memory", analysis.HDMLP,
			analysis.Option{Epoch: 3, Changes: change(remedy.Memory, 6e6)},
			nil,
			trial{},
			"there is less memory",
		},
		{
			"memory that the script gives", analysis.HDMLP,
			analysis.Option{Epoch: 3, Changes: change(remedy.Memory, 4e6)},
			map[string]any{"memory": "1GB"},
			trial{},
			"the script gives its loader memory itself",
		},
	} {
		m := &analysis.Measured{
			Ranks: 4, Nodes: 2, Cores: 4, Room: 5e6, Dataset: analysis.Dataset{Samples: 9, MB: 1},
			Loader: analysis.Loader{Name: c.loader},
		}
		got, why := applied(m, &c.option, c.given)
		if why != c.why {
			t.Errorf("%s: why is %q, want %q", c.name, why, c.why)
		}
		if why == "" && (got.workers != c.want.workers || got.predicted != c.want.predicted ||
			!slices.Equal(got.variables, c.want.variables)) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
