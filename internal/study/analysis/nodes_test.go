package analysis

import (
	"testing"
)

// TestNodesAreTakenTogether: rates are means, what differs is noted, and notes of one node name it.
func TestNodesAreTakenTogether(t *testing.T) {
	node := func(rate float64, cores int, notes ...Note) *Measured {
		return &Measured{
			Nodes: 2, Cores: cores, Waited: rate,
			Training: &Rate{Median: rate, Low: rate - 1, High: rate + 1},
			Preparation: []Point{
				{N: 1, Rate: Rate{Median: rate}}, {N: cores, Rate: Rate{Median: 2 * rate}},
			},
			Notes: notes,
		}
	}
	both := Note{"source", "said by both"}
	first := node(100, 4, both)
	first.AsIs, first.Source = &Rate{Median: 9}, []Point{{N: 1, Rate: Rate{Median: 50}}}
	m := OfNodes([]*Measured{first, node(200, 2, both, Note{"", "busy"})})
	if *m.Training != (Rate{Median: 150, Low: 149, High: 151}) || m.Cores != 2 || m.Waited != 150 {
		t.Errorf("%+v", m)
	}
	later := node(200, 2)
	later.Source, later.SourceWork = first.Source, 0.001
	if m := OfNodes([]*Measured{node(100, 4), later}); len(m.Source) != 1 || m.SourceWork != 0.001 {
		t.Errorf("the source is that of the first node that has it, with its work: %+v", m)
	}
	if m.AsIs != nil || len(m.Source) != 1 {
		t.Error("a rate of one node only: as it is is left out, the source alone is node 0's")
	}
	if len(m.Preparation) != 1 || m.Preparation[0].Median != 150 {
		t.Errorf("%+v", m.Preparation)
	}
	if len(m.Notes) != 4 || m.Notes[0].About != "training" || m.Notes[2] != both ||
		m.Notes[3].Text != "node 1: busy" {
		t.Errorf("%+v", m.Notes)
	}
}
