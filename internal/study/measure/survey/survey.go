package survey

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/study/measure"
	"github.com/hdmlp/hdmlp/internal/transform"
)

// Class is a storage class to measure.
type Class struct {
	Kind     store.Kind
	Path     string // of its directory, in which a temporary one is made; "": it has none
	Capacity int64  // that a job would have, bytes
	Threads  int    // p_j
	// Room returns how many bytes the measurement may take.
	Room func() (int64, error)
}

// Options say what to measure.
type Options struct {
	Source  source.Source
	Index   *source.Index
	Classes []Class            // fastest first
	Program *transform.Program // nil: no transforms
	Threads int                // processors
	Streams int                // most of the source
	Memory  int64              // that buffers may take, bytes
	Time    time.Duration      // in all
	Group   *Group             // nil: one node
	// Progress is called with what is measured next.
	Progress func(what string)
	Random   *rand.Rand
}

// Skipped is what could not be measured.
type Skipped struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// ClassResult is what was measured of a class.
type ClassResult struct {
	Name  string          `json:"name"`
	Path  string          `json:"path,omitempty"`
	Read  []measure.Curve `json:"read"`
	Write []measure.Curve `json:"write"`
	// Cached means that reads came from the page cache, at least in part.
	Cached bool `json:"cached,omitempty"`
}

// Result is what was measured. Rates are MB/s.
type Result struct {
	Samples int     `json:"samples"`
	Mean    float64 `json:"mean_sample_mb"`
	Nodes   int     `json:"nodes"`
	// Source has a curve for each class of sizes, ascending; Page that of a page of a sample, in
	// which the latency shows.
	Source       []measure.Curve `json:"source"`
	Page         *measure.Curve  `json:"source_page,omitempty"`
	SourceCached bool            `json:"source_cached,omitempty"`
	Sources      []Total         `json:"source_by_nodes,omitempty"` // t(gamma)
	Network      []measure.Curve `json:"network,omitempty"`         // of this node
	Classes      []ClassResult   `json:"storage_classes"`
	Transforms   *measure.Curve  `json:"transforms,omitempty"` // of encoded bytes, by threads
	// Forms are those of the samples, with these transforms; its zero value: there are none.
	Forms model.Forms `json:"forms,omitzero"`
	// Threads is p_0: as many threads as transformed the most, or else the processors.
	Threads int       `json:"transform_threads"`
	Skipped []Skipped `json:"skipped"`
	Notes   []string  `json:"notes"`
	// Node is what the performance model makes of it, over all nodes.
	Node model.Node `json:"node"`
}

// survey is one in progress.
type survey struct {
	o Options
	Result
	group  *Group // nil: alone, or the other nodes are gone
	end    time.Time
	weight float64 // of what is still to be measured
	source *Source
	sizes  []Sizes
}

// The weights by which the time is divided.
const (
	weighSource     = 8.0
	weighClass      = 1.5 // in memory
	weighDisk       = 5.0 // in a directory
	weighTransforms = 2.0
	weighSources    = 5.0
	weighNetwork    = 3.0
)

// ErrNoSamples reports that the dataset has no sample with bytes.
var ErrNoSamples = errors.New("all samples of the dataset are empty; there is nothing to read")

// Run measures. Its error is ctx's, or ErrNoSamples.
func Run(ctx context.Context, o Options) (*Result, error) {
	s := &survey{o: o, group: o.Group, end: time.Now().Add(o.Time)}
	s.Result = Result{
		Samples: o.Index.Len(), Nodes: 1,
		Skipped: []Skipped{}, Notes: []string{}, Classes: []ClassResult{},
	}
	s.source = NewSource(o.Source, o.Index, o.Streams, o.Random)
	if s.sizes = SizesOf(o.Index, o.Random); len(s.sizes) == 0 {
		return nil, ErrNoSamples
	}
	s.Mean = float64(o.Index.Bytes()) / 1e6 / float64(o.Index.Len())
	s.weight = weighSource
	for _, c := range o.Classes {
		s.weight += weightOf(c)
	}
	if o.Program != nil {
		s.weight += weighTransforms
	}
	if o.Group != nil {
		s.Nodes = o.Group.Nodes
		s.weight += weighSources + weighNetwork
	}
	for _, step := range []func(context.Context) error{
		s.measureClasses, s.measureTransforms, s.measureSource, s.measureNodes,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	s.note()
	return &s.Result, s.conclude(ctx)
}

func weightOf(c Class) float64 {
	if c.Kind.Has(store.PathKey) {
		return weighDisk
	}
	return weighClass
}

// share returns the part of the remaining time that has this weight.
func (s *survey) share(weight float64) time.Duration {
	left := max(time.Until(s.end), 0)
	part := time.Duration(float64(left) * min(weight/s.weight, 1))
	s.weight = max(s.weight-weight, 1e-9)
	return max(part, 50*time.Millisecond)
}

func (s *survey) skip(what string, why error) {
	s.Skipped = append(s.Skipped, Skipped{what, why.Error()})
}

// curve measures a load. What ended it early becomes part of the result.
func (s *survey) curve(ctx context.Context, what string, l measure.Load,
	o measure.Options,
) (measure.Curve, bool, error) {
	o.Progress = func(streams int) {
		s.o.Progress(fmt.Sprintf("%s, %d %s", what, streams, plural(streams, "stream")))
	}
	c, err := measure.Run(ctx, l, o)
	if err != nil {
		return c, false, err
	}
	if c.Ended != nil {
		late := errors.Is(c.Ended, measure.ErrTime) && !errors.Is(c.Ended, measure.ErrHangs)
		switch {
		case len(c.Points) == 0 && late:
			s.skip(what, errors.New("the time was over; measure for longer"))
		case len(c.Points) == 0:
			s.skip(what, c.Ended)
		case !late:
			last := c.Points[len(c.Points)-1].Streams
			s.skip(fmt.Sprintf("%s, more than %d %s", what, last, plural(last, "stream")), c.Ended)
		}
	}
	return c, len(c.Points) > 0, nil
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

func (s *survey) measureSource(ctx context.Context) error {
	if s.group != nil { // alone, while the others wait
		if _, err := s.group.Together(ctx, nil); err != nil {
			return s.lost("source", err)
		}
		if s.group.Node != 0 {
			s.share(weighSource)
			s.o.Progress("waiting for node 0, which measures the source alone")
			_, err := s.group.Together(ctx, nil)
			return s.lost("source", err)
		}
		defer func() {
			if _, err := s.group.Together(ctx, nil); err != nil {
				_ = s.lost("source", err)
			}
		}()
	}
	all := s.share(weighSource)
	end := time.Now().Add(all)
	parts := float64(len(s.sizes)) + 0.5
	if page, ok := s.source.Page(s.sizes[len(s.sizes)/2]); ok {
		c, measured, err := s.curve(ctx, "source, a page of a sample", page,
			measure.Options{Size: PageBytes / 1e6, Time: time.Duration(float64(all) / parts / 2)})
		if err != nil {
			return err
		}
		if measured {
			s.Page = &c
		}
	}
	for i, class := range s.sizes {
		part := time.Until(end) / time.Duration(len(s.sizes)-i)
		c, measured, err := s.curve(ctx, "source, samples of "+Megabytes(class.Mean),
			s.source.Read(class, s.streams(class)), measure.Options{
				Size: class.Mean, Streams: s.streams(class), Time: max(part, 50*time.Millisecond),
			})
		if err != nil {
			return err
		}
		if measured {
			s.Source = append(s.Source, c)
		}
	}
	return nil
}

// streams returns the most streams for a class: their buffers must be in memory.
func (s *survey) streams(class Sizes) int {
	largest := s.o.Index.Size(class.IDs[len(class.IDs)-1])
	return max(1, min(s.o.Streams, int(s.o.Memory/max(largest, 1)), len(class.IDs)))
}

func (s *survey) measureClasses(ctx context.Context) error {
	for _, class := range s.o.Classes {
		if err := s.measureClass(ctx, class); err != nil {
			return err
		}
	}
	return nil
}

// smallSample is the size of the small samples by which the latency of a class shows, bytes.
const smallSample = 4096

func (s *survey) measureClass(ctx context.Context, spec Class) (err error) {
	name := spec.Kind.Name
	r := ClassResult{Name: name, Path: spec.Path}
	end := time.Now().Add(s.share(weightOf(spec)))
	defer func() { s.Classes = append(s.Classes, r) }()
	s.o.Progress("storage class " + name)
	room, err := spec.Room()
	if err != nil {
		s.skip("storage class "+name, err)
		return nil
	}
	size := int64(max(s.Mean*1e6, 1))
	sizes := []int64{size}
	if size >= 4*smallSample {
		sizes = []int64{smallSample, size}
	}
	if room < 2*size {
		s.skip("storage class "+name, fmt.Errorf("there is no room for two samples of %s",
			Megabytes(float64(size)/1e6)))
		return nil
	}
	class, err := NewClass(spec.Kind, spec.Path, room, s.o.Random)
	if err != nil {
		s.skip("storage class "+name, err)
		return nil
	}
	defer func() {
		if e := class.Close(); e != nil {
			s.Notes = append(s.Notes, e.Error())
		}
	}()
	stores, err := class.Stores(room/int64(len(sizes)), sizes...)
	if err != nil {
		s.skip("storage class "+name, err)
		return nil
	}
	for i, store := range stores {
		o := measure.Options{Size: float64(sizes[i]) / 1e6, Streams: 1}
		if i == len(stores)-1 {
			o.Streams = max(2*s.o.Threads, 16)
		}
		parts := time.Duration(2 * len(stores[i:]))
		o.Time = max(time.Until(end)/parts, 50*time.Millisecond)
		of := "storage class " + name + ", samples of " + Megabytes(o.Size)
		c, measured, err := s.curve(ctx, of+", write", store.Write(), o)
		if err != nil {
			return err
		}
		if measured {
			r.Write = append(r.Write, c)
		}
		o.Time = max(time.Until(end)/(parts-1), 50*time.Millisecond)
		c, measured, err = s.curve(ctx, of+", read", store.Read(o.Streams), o)
		if err != nil {
			return err
		}
		if measured {
			r.Read = append(r.Read, c)
		}
	}
	r.Cached = class.Cached()
	return nil
}

// formsShare is the part of the time for transforms, as 1/formsShare, in which forms are measured.
const formsShare = 4

func (s *survey) measureTransforms(ctx context.Context) error {
	if s.o.Program == nil {
		s.skip("transforms", errors.New("none are given (--transforms)"))
		return nil
	}
	end := time.Now().Add(s.share(weighTransforms))
	s.o.Progress("transforms: reading samples")
	reading, cancel := context.WithDeadline(ctx, end.Add(-time.Until(end)/2))
	t, err := NewTransforms(reading, s.o.Program, s.source, s.sizes, s.o.Threads)
	cancel()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		s.skip("transforms", err)
		return nil
	}
	if t.Left > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("transforms: %d %s left out: %v", t.Left,
			plural(t.Left, "sample"), t.Why))
	}
	c, measured, err := s.curve(ctx, "transforms", t.Load(), measure.Options{
		Size: t.Mean, Streams: s.o.Threads,
		Time: max(time.Until(end)*(formsShare-1)/formsShare, 50*time.Millisecond),
	})
	if errors.Is(c.Ended, measure.ErrHangs) {
		return err
	}
	if measured {
		s.Transforms = &c
		s.o.Progress("transforms of forms")
		s.Forms = t.Forms(ctx, time.Until(end))
	}
	t.Close()
	return err
}

// note adds what else a reader of the results must take into account.
func (s *survey) note() {
	if n, first := s.source.Unreadable(); n > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("source: %d %s cannot be read, and %s left out: %v", n,
			plural(n, "sample"), map[bool]string{true: "was", false: "were"}[n == 1], first))
	}
	s.SourceCached = s.source.Cached()
	if s.SourceCached {
		s.Notes = append(s.Notes, "source: some samples could not be dropped from this machine's "+
			"memory (a file system in memory, files in use, or not yet written to the disk), so "+
			"that the source may be slower than measured")
	}
	for _, c := range s.Classes {
		if c.Cached {
			s.Notes = append(s.Notes, "storage class "+c.Name+": samples could not be dropped from "+
				"the page cache, so that reads may be slower than measured")
		}
	}
}

// Megabytes formats a size given in MB.
func Megabytes(mb float64) string {
	switch {
	case mb < 1e-3:
		return fmt.Sprintf("%.0f B", mb*1e6)
	case mb < 1:
		return fmt.Sprintf("%.3g kB", mb*1e3)
	}
	return fmt.Sprintf("%.3g MB", mb)
}
