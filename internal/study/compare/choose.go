package compare

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

const (
	// starting is what a policy takes besides its epochs: processes start, open the dataset and find
	// each other. Seconds.
	starting = 1.0
	// mostTried is how many samples an estimate simulates, and mostEpochs how many epochs of them.
	mostTried  = 10_000
	mostEpochs = 16
	// spare is the part of a time limit that is planned: predictions err.
	spare = 0.9
)

// Sample returns a part of a dataset: so many of its samples, drawn by the seed, by ID. All of them
// are nil.
func Sample(samples, of int, seed uint64) []int32 {
	if samples >= of {
		return nil
	}
	// Floyd's algorithm, which takes memory for the part alone.
	r := rand.New(rand.NewPCG(seed, 0x636f6d70617265))
	taken := make(map[int32]bool, samples)
	for k := of - samples; k < of; k++ {
		id := int32(r.IntN(k + 1))
		if taken[id] {
			id = int32(k)
		}
		taken[id] = true
	}
	ids := make([]int32, 0, samples)
	for id := range taken {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Estimator predicts how long the policies take.
type Estimator struct {
	Work     Work
	Policies []string
	Sizes    func(id int) int64 // bytes of the dataset's samples
	Of       int                // samples of the dataset
}

// Seconds returns what the runs of so many samples are expected to take, all policies together: the
// simulated runtimes of at most 10,000 samples, in proportion, and 1 s for each policy to start.
// Epochs after the sixteenth count like it. A policy that the simulator cannot run there counts
// like the longest.
func (e *Estimator) Seconds(ctx context.Context, samples int) (float64, error) {
	tried := min(samples, mostTried)
	sizes, share := Part(Sample(tried, e.Of, e.Work.Seed), e.Sizes, e.Of)
	w := e.Work
	w.Batch = max(1, w.Batch*tried/samples) // as many steps
	w.StepTime *= float64(tried) / float64(samples)
	w.Epochs = min(w.Epochs, mostEpochs)
	more := float64(e.Work.Epochs - w.Epochs)
	job := w.Job(sizes, share)
	longest, sum := 0.0, 0.0
	failed := 0
	for _, name := range e.Policies {
		r, err := simulate.RunModel(ctx, job, name)
		switch {
		case err != nil:
			return 0, err
		case !r.Supported:
			failed++
		default:
			seconds := r.Runtime + more*r.Epochs[len(r.Epochs)-1]
			seconds *= float64(samples) / float64(tried)
			longest, sum = max(longest, seconds), sum+seconds
		}
	}
	n := float64(len(e.Policies))
	return sum + longest*float64(failed) + n*starting, nil
}

// Choice is how many samples to read, and what that is expected to take.
type Choice struct {
	Samples int
	Seconds float64
}

// Choose returns the most samples, from least to of, of which the expected time is within the limit
// in seconds. If that of the least is above it, it returns the least. seconds must not fall with
// more samples.
func Choose(limit float64, least, of int, seconds func(samples int) (float64, error)) (
	Choice, error,
) {
	if least < 1 || of < least {
		return Choice{}, fmt.Errorf("%d samples of %d: there are too few", least, of)
	}
	if !(limit > 0) {
		return Choice{}, errors.New("the time limit is not above 0")
	}
	limit *= spare
	n := of
	for {
		t, err := seconds(n)
		if err != nil || t <= limit || n == least {
			return Choice{n, t}, err
		}
		// The time is about a constant and a part in proportion: halve at least, or come as close as
		// proportion promises.
		n = max(least, min(int(float64(n)*limit/t), n*9/10))
	}
}
