package survey

import (
	"context"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/study/measure"
	"github.com/hdmlp/hdmlp/internal/transform"
)

// Transforms measures a list of transforms on samples of the dataset, which are read in advance.
type Transforms struct {
	program *transform.Program
	samples [][]byte
	workers []*transform.Worker
	outputs [][]byte

	Mean float64 // size of the samples, encoded, MB
	Left int     // samples left out, because they cannot be read or transformed
	Why  error   // the first one's reason
}

// mostSamples and mostBytes limit what is read in advance.
const (
	mostSamples = 256
	mostBytes   = 64 << 20
)

// NewTransforms reads samples, in random order, and prepares as many threads. Close must follow.
func NewTransforms(ctx context.Context, program *transform.Program, s *Source, classes []Sizes,
	threads int,
) (*Transforms, error) {
	t := &Transforms{program: program, outputs: make([][]byte, threads)}
	for range threads {
		t.workers = append(t.workers, program.Worker())
	}
	var all deck
	for _, class := range classes {
		all.ids = append(all.ids, class.IDs...)
	}
	total := int64(0)
	leave := func(err error) {
		if t.Left++; t.Why == nil {
			t.Why = err
		}
	}
	for _, id := range all.deal(s, len(all.ids)) {
		size := s.index.Size(id)
		if ctx.Err() != nil || len(t.samples) >= mostSamples || t.Left >= mostSamples {
			break
		}
		if len(t.samples) > 0 && total+size > mostBytes {
			continue
		}
		data := make([]byte, size)
		if _, err := s.source.Read(ctx, id, data); err != nil {
			leave(err)
			continue
		}
		if err := t.apply(0, id, data); err != nil {
			leave(fmt.Errorf("sample %d: %w", id, err))
			continue
		}
		t.samples = append(t.samples, data)
		total += size
	}
	if len(t.samples) == 0 {
		t.Close()
		if t.Why == nil {
			t.Why = context.Cause(ctx)
		}
		return nil, fmt.Errorf("no sample can be transformed: %w", t.Why)
	}
	t.Mean = float64(total) / 1e6 / float64(len(t.samples))
	return t, nil
}

// Close frees the threads' memory.
func (t *Transforms) Close() {
	for _, w := range t.workers {
		w.Close()
	}
}

// Load returns the load: of encoded bytes, as beta of the performance model.
func (t *Transforms) Load() measure.Load {
	return measure.Load{Do: func(_ context.Context, thread, i int) (int64, error) {
		data := t.samples[i%len(t.samples)]
		return int64(len(data)), t.apply(thread, i, data)
	}}
}

func (t *Transforms) apply(thread, draw int, data []byte) error {
	return t.workers[thread].ApplyTo(func(_, size int) ([]byte, error) {
		if cap(t.outputs[thread]) < size {
			t.outputs[thread] = make([]byte, size)
		}
		return t.outputs[thread][:size], nil
	}, [][]byte{data}, transform.Key{Sample: draw})
}
