package main

import "github.com/hdmlp/hdmlp/internal/plan/access"

// loaderState is what of a loader's state_dict (python/hdmlp/_loading/state.py) its order follows
// from.
type loaderState struct {
	Version     int             `json:"version"`
	Kind        string          `json:"kind"` // "": the order follows from the seed
	Epoch       int             `json:"epoch"`
	Step        int             `json:"step"`
	Fingerprint string          `json:"fingerprint"`
	Samples     int             `json:"samples"`
	Seed        uint64          `json:"seed"`
	Subset      *string         `json:"subset"`
	Mix         *access.Mixture `json:"mix"`
	Shuffle     access.Shuffle  `json:"shuffle"`
	Scheme      access.Scheme   `json:"scheme"`
	Tail        access.Tail     `json:"tail"`
	DropLast    bool            `json:"drop_last"`
	GlobalBatch int             `json:"global_batch"`
}

// spec returns the order of the state, without its subset and the number of epochs, for one rank.
func (s *loaderState) spec() access.Spec {
	return access.Spec{
		Samples: s.Samples, Seed: s.Seed, WorldSize: 1, GlobalBatch: s.GlobalBatch,
		DropLast: s.DropLast, Shuffle: s.Shuffle, Scheme: s.Scheme, Tail: s.Tail,
		Mixture: s.Mix,
	}
}
