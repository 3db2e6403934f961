package clustersim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/origin"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/process"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

const (
	dataPath  = "/simulated"
	otherPath = "/other" // the dataset of a second job, if it has one of its own
	// meanwhile is when a second job begins, after the first.
	meanwhile = 30 * time.Millisecond
	// most is how long it waits for a batch where nothing goes wrong.
	most = time.Minute
)

// another is the contents of the dataset of a second job.
type another struct{ *script.Script }

// Content implements origin.Contents.
func (o another) Content(node, id int) []byte {
	data := o.Script.Content(node, id)
	for i := range data {
		data[i] ^= 0xff
	}
	return data
}

// onFirst returns contents as the first node sees them.
func onFirst(content func(node, id int) []byte) func(id int) []byte {
	return func(id int) []byte { return content(0, id) }
}

// newOrigins makes the sources.
func (w *world) newOrigins() (err error) {
	s := w.script
	if w.origin, err = origin.New(s.Samples, s, s.Missing, s.Seed, s.Takes.D()); err != nil {
		return err
	}
	w.other, err = origin.New(s.Samples, another{s}, nil, s.Seed+1, s.Takes.D())
	return err
}

// beside starts a second job of one rank on the first node, if the script has one. It reads all
// samples of its dataset, with the settings of the first job, for one epoch.
func (l *launch) beside() {
	if l.script.Invalid {
		l.ended.Go(func() {
			m := l.alone()
			m.Job = "invalid"
			for _, what := range process.Invalid(l.nodes[0], l.box(0).Node, m, l.script.Samples) {
				l.broken(0, "a request is granted that is invalid: %s", what)
			}
		})
	}
	if l.script.Beside == "" {
		return
	}
	l.ended.Go(func() {
		ctx := l.nodes[0]
		if !sleep(ctx, meanwhile) {
			return
		}
		if err := l.second(ctx); err != nil && ctx.Err() == nil &&
			(l.script.Calm() || errors.Is(err, process.ErrWrong)) {
			l.broken(0, "a second job: %v", err)
		}
	})
}

// second is the process of a second job.
func (l *launch) second(ctx context.Context) error {
	m := l.alone()
	m.Job = "second"
	o := process.Options{
		Node: l.box(0).Node, Request: m, Content: onFirst(l.script.Content), Label: l.script.Label,
		Decodes: func(int) bool { return true }, Lies: -1,
	}
	if l.script.Beside == script.Other {
		o.Request.Dataset.Path, o.Content = otherPath, onFirst(another{l.script}.Content)
		// The first job's may need the whole directory.
		delete(m.Arguments, "cache_dir")
		delete(m.Arguments, "cache_size")
	}
	p, err := process.Open(ctx, o)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.Begin(0); err != nil {
		return err
	}
	var got []int
	for {
		within, cancel := context.WithTimeout(ctx, most)
		b, err := p.Next(within)
		cancel()
		if errors.Is(err, process.ErrEnd) {
			break
		}
		if err != nil {
			return err
		}
		for _, id := range b.IDs {
			got = append(got, int(id))
		}
		if err := p.Trained(); err != nil {
			return err
		}
	}
	if l.script.Complete() && (len(got) != l.script.Samples || !slices.IsSorted(got)) {
		l.broken(0, "a second job got the samples %v", got)
	}
	return nil
}

// alone returns the request of a job with one rank that reads all samples.
func (l *launch) alone() request.Open {
	m := l.request(0)
	m.WorldSize = 1
	m.Cluster = nil
	m.Transforms = nil
	if l.script.Orders() { // which this job may not have
		m.Arguments["policy"] = l.script.OtherPolicy()
	}
	m.Stream = request.Stream{
		Seed: m.Stream.Seed, Epochs: 1, GlobalBatch: 5, Shuffle: "none", Scheme: "strided", Tail: "pad",
	}
	return m
}

// twice opens the job again as a rank that has it open.
func (l *launch) twice(rank int) {
	p, err := process.Open(l.nodes[rank/l.Ranks], process.Options{
		Node: l.box(rank / l.Ranks).Node, Request: l.request(rank), Part: l.part(rank),
	})
	if err == nil {
		p.Close()
		l.broken(rank, "two processes have the job open as rank %d", rank)
	}
}
