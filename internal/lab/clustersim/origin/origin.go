// Package origin simulates the source of a dataset, which all nodes of a simulated cluster share:
// slow, failing, hanging, and changing under a job. Bytes follow from a sample's ID.
//
// All methods are safe for concurrent use. Reads that hang ignore their context, as system calls
// do.
package origin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/retry"
)

// Contents are the samples of a dataset.
type Contents interface {
	Size(id int) int
	Label(id int) int // of three
	Content(node, id int) []byte
}

// Origin is the source of one dataset.
type Origin struct {
	contents Contents
	index    *source.Index
	inode    uint64
	takes    time.Duration // that a read takes

	mu      sync.Mutex // guards the following
	random  *rand.Rand
	nodes   map[int]*Faults
	missing map[int]bool
	gone    map[int]bool // missing for a while
	broken  map[int]bool
	changed map[int]bool
	reads   map[int][]int // by node and sample; those that returned its bytes
	opened  []*retry.Source
}

// Faults are what a node's reads suffer. The zero value is none.
type Faults struct {
	Slow time.Duration // what reads take
	Fail float64       // the share of reads that fail
	Hang chan struct{} // if not nil, reads return once it is closed
}

// New returns the source of a dataset with so many samples, each read of which takes a time.
func New(samples int, contents Contents, missing []int, seed uint64,
	takes time.Duration,
) (*Origin, error) {
	o := &Origin{
		contents: contents, inode: seed, takes: takes, random: rand.New(rand.NewPCG(seed, 1)),
		nodes: map[int]*Faults{}, missing: map[int]bool{}, gone: map[int]bool{},
		broken: map[int]bool{}, changed: map[int]bool{}, reads: map[int][]int{},
	}
	for _, id := range missing {
		o.missing[id] = true
	}
	b := source.NewBuilder([]string{"a", "b", "c"}, []string{".x"})
	b.Directory(source.Directory{Class: -1})
	for id, label := 0, -1; id < samples; id++ {
		for label < contents.Label(id) {
			label++
			b.Directory(source.Directory{Path: "abc"[label : label+1], Class: label})
		}
		size := int64(contents.Size(id))
		b.Sample(fmt.Sprintf("%06d.x", id), size, 0, stamp(id, size))
	}
	var err error
	if o.index, err = b.Build(); err != nil {
		return nil, err
	}
	versions := make([][16]byte, samples)
	for id := range versions {
		versions[id] = [16]byte{byte(seed), byte(id), byte(id >> 8)}
	}
	o.index, err = o.index.WithContents(versions)
	return o, err
}

func stamp(id int, size int64) source.Stamp { return source.NewStamp(size, 0, 0, uint64(id)+1) }

// Reads returns how often each sample was read, by node.
func (o *Origin) Reads() map[int][]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[int][]int{}
	for node, reads := range o.reads {
		all[node] = slices.Clone(reads)
	}
	return all
}

// Read returns how many samples and bytes a node has read so far.
func (o *Origin) Read(node int) (samples, bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, n := range o.reads[node] {
		samples += n
		bytes += n * o.contents.Size(id)
	}
	return samples, bytes
}

// Fault has change set what a node's reads suffer from now on.
func (o *Origin) Fault(node int, change func(*Faults)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.nodes[node]
	if f == nil {
		f = new(Faults)
		o.nodes[node] = f
	}
	change(f)
}

// Break sets whether reads of a sample fail on all nodes.
func (o *Origin) Break(id int, broken bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken[id] = broken
}

// Vanish sets whether a sample's file is missing for a while.
func (o *Origin) Vanish(id int, gone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone[id] = gone
}

// Change has a sample's file count as written to after it was listed.
func (o *Origin) Change(id int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed[id] = true
}

// Kind returns the kind of source "simulated", as a node sees it. others are the datasets at
// certain paths; o is that at all other ones.
func (o *Origin) Kind(node int, others map[string]*Origin) source.Kind {
	return source.Kind{
		Name: "simulated",
		Open: func(_ context.Context, path string, opened source.OpenOptions) (source.Indexed,
			error,
		) {
			o := cmp.Or(others[path], o)
			source := retry.New(&view{o, node}, retry.Options{
				Timeout: opened.Timeout,
				Slow:    func(int, string, time.Time) {},
				Random:  o.draw,
			})
			o.mu.Lock()
			defer o.mu.Unlock()
			o.opened = append(o.opened, source)
			return indexed{source, o.index}, nil
		},
	}
}

// Exit closes what nodes have left open, as the end of their processes does: a node leaves a source
// open for good if a read from it hangs when its last job ends. No read may be in progress.
func (o *Origin) Exit() error {
	o.mu.Lock()
	opened := o.opened
	o.mu.Unlock()
	var errs []error
	for _, source := range opened {
		errs = append(errs, source.Close())
	}
	return errors.Join(errs...)
}

func (o *Origin) draw() float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.random.Float64()
}

// indexed is a source with retries, as daemons have it.
type indexed struct {
	*retry.Source
	index *source.Index
}

func (s indexed) Index() *source.Index { return s.index }

// view is the source as one node sees it.
type view struct {
	origin *Origin
	node   int
}

// access waits as a read does, and returns its error.
func (v *view) access(ctx context.Context, id int) error {
	o := v.origin
	if id < 0 || id >= o.index.Len() {
		return &source.SampleError{ID: id, Kind: source.ErrNoSample}
	}
	failed := func(kind, err error) error {
		return &source.SampleError{ID: id, Path: v.Path(id), Kind: kind, Err: err}
	}
	o.mu.Lock()
	var f Faults
	if at := o.nodes[v.node]; at != nil {
		f = *at
	}
	fails := f.Fail > 0 && o.random.Float64() < f.Fail
	o.mu.Unlock()
	if f.Hang != nil {
		<-f.Hang
	}
	if takes := o.takes + f.Slow; takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return failed(source.ErrUnavailable, ctx.Err())
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.missing[id] || o.gone[id]:
		return failed(source.ErrMissing, nil)
	case o.changed[id]:
		return failed(source.ErrChanged, nil)
	case fails || o.broken[id]:
		return failed(source.ErrUnavailable, syscall.EIO)
	}
	return nil
}

// Read implements source.Source.
func (v *view) Read(ctx context.Context, id int, dst []byte) (source.Stamp, error) {
	if err := v.access(ctx, id); err != nil {
		return 0, err
	}
	copy(dst, v.origin.contents.Content(v.node, id))
	v.origin.mu.Lock()
	defer v.origin.mu.Unlock()
	if v.origin.reads[v.node] == nil {
		v.origin.reads[v.node] = make([]int, v.origin.index.Len())
	}
	v.origin.reads[v.node][id]++
	return stamp(id, int64(len(dst))), nil
}

// Stat implements source.Source.
func (v *view) Stat(ctx context.Context, id int) (source.Stamp, error) {
	if err := v.access(ctx, id); err != nil {
		return 0, err
	}
	return stamp(id, int64(v.origin.contents.Size(id))), nil
}

// Probe implements source.Prober.
func (v *view) Probe(ctx context.Context, id int) error { return v.access(ctx, id) }

// Path implements source.Locator.
func (v *view) Path(id int) string { return "/simulated/" + v.origin.index.Name(id) }

// DirectoryID implements source.InDirectory.
func (v *view) DirectoryID() (device, inode uint64) { return 1, v.origin.inode }

// Close implements source.Source.
func (v *view) Close() error { return nil }
