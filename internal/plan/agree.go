package plan

import "github.com/hdmlp/hdmlp/internal/model"

// Agree sets Env to what all nodes together know (model.Merge). It is a pure function of the
// input, so nodes that have each other's reports plan with the same environment. If a tier that
// plans compare is only guessed, Env remains nil: guesses change no plan. Agree returns what Env is
// made of, or nil.
func (in *Input) Agree() *model.Node {
	var known []model.Node
	for _, n := range in.Nodes {
		if n.Known != nil {
			known = append(known, *n.Known)
		}
	}
	if len(known) < len(in.Nodes) {
		return nil
	}
	agreed := model.Merge(known, in.MeanSize())
	if in.Env = EnvironmentOf(known, in.Nodes, in.MeanSize()); in.Env == nil {
		return nil
	}
	return &agreed
}

// MeanSize returns the mean size of the dataset's samples, in MB.
func (in *Input) MeanSize() float64 {
	var bytes int64
	samples := in.Stream.Spec().Samples
	for id := range samples {
		bytes += in.Size(id)
	}
	return float64(bytes) / float64(max(samples, 1)) / 1e6
}

// EnvironmentOf returns the environment of nodes by what some of them know, for samples of a mean
// size in MB; nil if a tier that plans compare is only guessed.
func EnvironmentOf(known []model.Node, nodes []Node, mean float64) *model.Environment {
	merged := model.Merge(known, mean)
	if !merged.Certain(len(nodes)) {
		return nil
	}
	size := model.Size{Sample: mean, Nodes: len(nodes)}
	for j := range merged.Classes { // of the smallest node
		capacity := int64(-1)
		for _, n := range nodes {
			if j < len(n.Capacity) && (capacity < 0 || n.Capacity[j] < capacity) {
				capacity = n.Capacity[j]
			}
		}
		size.Capacity = append(size.Capacity, float64(max(capacity, 0))/1e6)
	}
	env := merged.Environment(size)
	return &env
}
