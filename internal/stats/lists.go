package stats

import "encoding/json"

// Lists and tables of a report that are empty are [] and {} in JSON, and never null: scripts
// iterate over them.

// MarshalJSON implements json.Marshaler.
func (r Report) MarshalJSON() ([]byte, error) {
	type plain Report
	list(&r.Epochs)
	list(&r.Ranks)
	list(&r.Classes)
	list(&r.Tiers)
	list(&r.Faults)
	return json.Marshal(plain(r))
}

// MarshalJSON implements json.Marshaler.
func (r RankReport) MarshalJSON() ([]byte, error) {
	type plain RankReport
	list(&r.Epochs)
	return json.Marshal(plain(r))
}

// MarshalJSON implements json.Marshaler.
func (p Preprocessing) MarshalJSON() ([]byte, error) {
	type plain Preprocessing
	list(&p.Transforms)
	return json.Marshal(plain(p))
}

// MarshalJSON implements json.Marshaler.
func (n NodeReport) MarshalJSON() ([]byte, error) {
	type plain NodeReport
	n.Tally.fill()
	list(&n.Classes)
	list(&n.Ranks)
	list(&n.Faults)
	list(&n.Epochs)
	list(&n.Tiers)
	return json.Marshal(plain(n))
}

// MarshalJSON implements json.Marshaler.
func (c ClusterReport) MarshalJSON() ([]byte, error) {
	type plain ClusterReport
	c.Total.fill()
	list(&c.Classes)
	list(&c.Nodes)
	return json.Marshal(plain(c))
}

// MarshalJSON implements json.Marshaler.
func (r RankTally) MarshalJSON() ([]byte, error) {
	type plain RankTally
	r.fill()
	return json.Marshal(plain(r))
}

// fill makes tables that are nil empty.
func (t *Tally) fill() {
	if t.Stall == nil {
		t.Stall = map[string]float64{}
	}
	if t.Reads == nil {
		t.Reads = map[string]Amount{}
	}
}

// list makes a list that is nil empty.
func list[T any](l *[]T) {
	if *l == nil {
		*l = []T{}
	}
}
