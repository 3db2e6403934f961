package access_test

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// The samples that two ranks read in the first epoch, as torch's DistributedSampler with seed 1
// distributes them, and conversely where one sample is read.
func ExampleNew() {
	stream, err := access.New(access.Spec{
		Samples: 8, Seed: 1, Epochs: 2, WorldSize: 2, GlobalBatch: 4,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	epoch := stream.Epoch(0)
	for step := range stream.Steps() {
		fmt.Println(epoch.Batch(nil, 0, step), epoch.Batch(nil, 1, step))
	}
	fmt.Printf("%+v\n", epoch.Find(6))
	// Output:
	// [5 2] [4 6]
	// [7 1] [3 0]
	// [{Rank:1 Index:1 Step:0}]
}
