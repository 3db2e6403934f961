package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/study/measure"
)

// Sizes is a class of a dataset's samples by size.
type Sizes struct {
	IDs  []int   // of samples of the class, maybe not all
	Mean float64 // of their sizes, MB
}

const (
	considered = 100_000 // samples from which classes of sizes are made
	classes    = 3       // of sizes, at most
	differing  = 1.5     // least ratio of the means of neighbouring classes
)

// SizesOf returns the classes of a dataset's samples: thirds of them by size, or fewer if these
// differ little. Empty samples belong to none.
func SizesOf(index *source.Index, r *rand.Rand) []Sizes {
	var ids []int
	if n := index.Len(); n <= considered {
		for id := range n {
			ids = append(ids, id)
		}
	} else {
		for range considered {
			ids = append(ids, r.IntN(n))
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
	}
	ids = slices.DeleteFunc(ids, func(id int) bool { return index.Size(id) == 0 })
	slices.SortFunc(ids, func(a, b int) int {
		return cmp.Or(cmp.Compare(index.Size(a), index.Size(b)), cmp.Compare(a, b))
	})
	for n := min(classes, len(ids)); n > 0; n-- {
		var all []Sizes
		for k := range n {
			part := ids[k*len(ids)/n : (k+1)*len(ids)/n]
			all = append(all, Sizes{slices.Clone(part), mean(index, part)})
		}
		differ := true
		for k := 1; k < n; k++ {
			differ = differ && all[k].Mean >= differing*all[k-1].Mean
		}
		if differ {
			return all
		}
	}
	return nil
}

func mean(index *source.Index, ids []int) float64 {
	sum := 0.0
	for _, id := range ids {
		sum += float64(index.Size(id))
	}
	return sum / 1e6 / float64(len(ids))
}

// Source measures random reads of a dataset's samples. Samples that cannot be read are left out,
// and counted.
type Source struct {
	source source.Source
	index  *source.Index
	random *rand.Rand
	files  int // that may be open at the same time

	cached atomic.Int64 // samples that were in memory although they were dropped

	mu    sync.Mutex // guards the following
	bad   map[int]bool
	first error // why the first of them cannot be read
}

// NewSource returns the loads of a source of which so many files may be open at the same time.
func NewSource(source source.Source, index *source.Index, files int, r *rand.Rand) *Source {
	return &Source{source: source, index: index, files: files, random: r, bad: map[int]bool{}}
}

// Cached reports whether samples were read from this machine's memory, because they could not be
// dropped from it.
func (s *Source) Cached() bool { return s.cached.Load() > 0 }

// Unreadable returns how many samples could not be read, and why the first could not.
func (s *Source) Unreadable() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bad), s.first
}

// atOnce is how many samples are dropped at the same time, at most.
const atOnce = 32

// deck deals samples in random order, and each again only after all others.
type deck struct {
	ids  []int
	next int
}

// deal returns up to n samples, none twice.
func (d *deck) deal(s *Source, n int) []int {
	s.mu.Lock()
	d.ids = slices.DeleteFunc(d.ids, func(id int) bool { return s.bad[id] })
	s.mu.Unlock()
	n = min(n, len(d.ids))
	if d.next == 0 || d.next+n > len(d.ids) {
		s.random.Shuffle(len(d.ids), func(a, b int) { d.ids[a], d.ids[b] = d.ids[b], d.ids[a] })
		d.next = 0
	}
	d.next += n
	return d.ids[d.next-n : d.next]
}

// Read returns the load of reading whole samples of a class.
func (s *Source) Read(class Sizes, streams int) measure.Load {
	buffers := make([][]byte, max(streams, 1))
	l := s.load(class, func(ctx context.Context, stream, id int) (int64, error) {
		size := s.index.Size(id)
		if int64(cap(buffers[stream])) < size {
			buffers[stream] = make([]byte, size)
		}
		_, err := s.source.Read(ctx, id, buffers[stream][:size])
		return size, err
	})
	l.Bursts = true
	return l
}

// PageBytes is how much of a sample Page reads.
const PageBytes = 4096

// Page returns the load of reading the first bytes of samples of a class, which takes little more
// than the source's latency. ok is false if the source cannot do so.
func (s *Source) Page(class Sizes) (l measure.Load, ok bool) {
	prober, ok := source.As[source.Prober](s.source)
	if !ok {
		return measure.Load{}, false
	}
	return s.load(class, func(ctx context.Context, _, id int) (int64, error) {
		return min(s.index.Size(id), PageBytes), prober.Probe(ctx, id)
	}), true
}

func (s *Source) load(class Sizes,
	read func(ctx context.Context, stream, id int) (int64, error),
) measure.Load {
	cards := &deck{ids: slices.Clone(class.IDs)}
	var dealt []int
	return measure.Load{
		Prepare: func(ctx context.Context, n int) (int, error) {
			for {
				dealt = cards.deal(s, n)
				if len(dealt) == 0 {
					_, first := s.Unreadable()
					return 0, fmt.Errorf("no sample can be read: %w", first)
				}
				again, err := s.drop(ctx, dealt)
				if err != nil || !again {
					return len(dealt), err
				}
			}
		},
		Do: func(ctx context.Context, stream, i int) (int64, error) {
			n, err := read(ctx, stream, dealt[i])
			if err != nil {
				return 0, s.note(dealt[i], err)
			}
			return n, nil
		},
	}
}

// drop drops samples from the page cache. again reports that some turned out to be unreadable.
func (s *Source) drop(ctx context.Context, ids []int) (again bool, err error) {
	dropper, ok := source.As[source.Dropper](s.source)
	if !ok {
		return false, nil
	}
	var next, bad atomic.Int64
	var failed atomic.Pointer[error]
	done := make(chan struct{})
	go func() {
		defer close(done)
		var group sync.WaitGroup
		for range max(1, min(atOnce, s.files, len(ids))) {
			group.Go(func() {
				for ctx.Err() == nil && failed.Load() == nil {
					i := int(next.Add(1)) - 1
					if i >= len(ids) {
						return
					}
					cached, err := dropper.Drop(ctx, ids[i])
					switch {
					case err != nil:
						bad.Add(1)
						if err := s.note(ids[i], err); err != nil {
							failed.Store(&err)
						}
					case cached:
						s.cached.Add(1)
					}
				}
			})
		}
		group.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done(): // a call may hang
		return false, context.Cause(ctx)
	}
	if err := failed.Load(); err != nil {
		return false, *err
	}
	return bad.Load() > 0, ctx.Err()
}

// note takes account of a sample that could not be read. It returns the error if that was the
// source's rather than the sample's.
func (s *Source) note(id int, err error) error {
	if errors.Is(err, source.ErrUnavailable) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil {
		s.first = err
	}
	s.bad[id] = true
	return nil
}
