package cache

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache/cachetest"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/source"
)

// beside is a source whose samples lie beside one another in objects.
type beside struct {
	*cachetest.Source
	gap, each int // bytes between samples; samples of an object
	fails     atomic.Bool
	during    func(ctx context.Context) // called by ReadRun; nil: nothing

	mu   sync.Mutex // guards the following
	runs [][]int    // of each request: the first sample, and the one after the last
}

func (b *beside) Span(id int) (s source.Span, ok bool) {
	s.Object = id / b.each
	for n := s.Object * b.each; n <= id; n++ {
		s.Begin = s.End
		s.End += b.Index.Size(n)
		if n > s.Object*b.each {
			s.Begin += int64(b.gap)
			s.End += int64(b.gap)
		}
	}
	return s, true
}

func (b *beside) Requests() *source.Requests { return &source.Requests{} }

func (b *beside) ReadRun(ctx context.Context, first int, dsts [][]byte) ([]source.Stamp, error) {
	b.mu.Lock()
	b.runs = append(b.runs, []int{first, first + len(dsts)})
	b.mu.Unlock()
	if b.during != nil {
		b.during(ctx)
	}
	if ctx.Err() != nil {
		return nil, &source.SampleError{Kind: source.ErrUnavailable, Err: ctx.Err()}
	}
	if b.fails.Load() {
		return nil, errors.New("the request fails")
	}
	stamps := make([]source.Stamp, len(dsts))
	for i, dst := range dsts {
		var err error
		if stamps[i], err = b.Read(ctx, first+i, dst); err != nil {
			return nil, err
		}
	}
	return stamps, nil
}

// rowed returns a rig over such a source, whose samples of 1000 bytes are all planned for memory.
func rowed(t *testing.T, samples, gap, each int, change func(o *rigOptions)) (*rig, *beside) {
	t.Helper()
	o := rigOptions{
		sizes: slices.Repeat([]int{1000}, samples), threads: 3, memory: int64(2000 * samples),
		planAll: true, known: map[string]model.Known{"source": model.GivenRate(50, 0.02)},
	}
	if change != nil {
		change(&o)
	}
	var b *beside
	o.source = func(s *cachetest.Source) source.Source {
		b = &beside{Source: s, gap: gap, each: each}
		return b
	}
	return newRig(t, o), b
}

// TestAReadBringsTheSamplesOfItsBlock that are planned for memory: each is read once, and a block
// is one request.
func TestAReadBringsTheSamplesOfItsBlock(t *testing.T) {
	const samples, gap = 200, 512
	g, b := rowed(t, samples, gap, samples, nil)
	defer g.close()
	s, err := g.cache.Fetch(t.Context(), &Request{}, 70, nil)
	if err != nil || !bytes.Equal(s.Data, content(70, 1000)) || !s.Read {
		t.Fatal(err, s.Read)
	}
	s.Release()
	const first, end = block/(1000+gap) + 1, 2*block/(1000+gap) + 1
	if len(b.runs) != 1 || !slices.Equal(b.runs[0], []int{first, end}) {
		t.Errorf("the samples %v were read, want %d to %d", b.runs, first, end)
	}
	if len(s.Others) != end-first-1 || s.Others[0] != 1000 {
		t.Errorf("%v others", s.Others)
	}
	for id := range samples {
		data, err := g.fetch(t.Context(), id)
		if err != nil || !bytes.Equal(data, content(id, 1000)) {
			t.Fatal(id, err)
		}
		if n := b.Reads[id].Load(); n != 1 {
			t.Errorf("sample %d was read %d times", id, n)
		}
	}
	if want := samples*(1000+gap)/block + 1; len(b.runs) != want {
		t.Errorf("%d requests, want %d", len(b.runs), want)
	}
	read, bytes := g.cache.SourceReads()
	if speed := g.cache.Speeds()[Source]; read != samples || bytes != 1000*samples ||
		speed.Samples != samples || speed.Bytes != bytes {
		t.Errorf("%d samples of %d bytes; the tier: %+v", read, bytes, speed)
	}
}

// TestWhatAReadDoesNotBring is not beside the sample, held, of another class, or of a place where a
// request of a block takes much longer than one of a sample.
func TestWhatAReadDoesNotBring(t *testing.T) {
	for name, c := range map[string]struct {
		gap, each int
		change    func(o *rigOptions)
		prepare   func(g *rig)
		want      []int // nil: the sample alone
	}{
		"all":              {0, 40, nil, nil, []int{0, 40}},
		"far apart":        {mostBetween + 1, 40, nil, nil, nil},
		"another object":   {0, 6, nil, nil, []int{0, 6}},
		"large":            {0, 40, func(o *rigOptions) { o.sizes[5] = block/2 + 1 }, nil, nil},
		"no plan":          {0, 40, nil, plan(), nil},
		"others' plan":     {0, 40, nil, plan(4, 5, 7), []int{4, 6}},
		"a slow link":      {0, 40, behind(1, 0.02), nil, nil},
		"a disk":           {0, 40, behind(200, 0.0001), nil, []int{0, 40}},
		"a slow disk":      {0, 40, behind(40, 0.0001), nil, nil},
		"some are held":    {0, 40, nil, func(g *rig) { g.put(3); g.put(9) }, []int{4, 9}},
		"some are doubted": {0, 40, nil, func(g *rig) { g.put(3); g.cache.Doubt() }, []int{4, 40}},
	} {
		t.Run(name, func(t *testing.T) {
			g, b := rowed(t, 40, c.gap, c.each, c.change)
			defer g.close()
			if c.prepare != nil {
				c.prepare(g)
			}
			if _, err := g.fetch(t.Context(), 5); err != nil {
				t.Fatal(err)
			}
			if c.want == nil && len(b.runs) > 0 ||
				c.want != nil && (len(b.runs) != 1 || !slices.Equal(b.runs[0], c.want)) {
				t.Errorf("the samples %v were read, want %v", b.runs, c.want)
			}
		})
	}
}

// TestWhatLiesBetween larger samples of a store is at most a fiftieth of what is read. Of tiny ones
// it is read whatever that is.
func TestWhatLiesBetween(t *testing.T) {
	for _, c := range []struct {
		size, gap int
		share     float64 // at most
	}{
		{tiny, 1000, 1},
		{tiny + 1, 1000, 0.02},
		{tiny + 1, 0, 0},
		{30_000, 4000, 0.02},
	} {
		const samples = 200
		g, b := rowed(t, samples, c.gap, samples, func(o *rigOptions) {
			o.sizes, o.memory = slices.Repeat([]int{c.size}, samples), 400*int64(c.size)
		})
		for id := range samples {
			if _, err := g.fetch(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		between, together := 0, 0
		for _, run := range b.runs {
			between += c.gap * (run[1] - run[0] - 1)
			together += run[1] - run[0]
		}
		share := float64(between) / float64(c.size*samples)
		if share > c.share || together == 0 {
			t.Errorf("of %d bytes with %d between: %.3f is between, %d samples were read together",
				c.size, c.gap, share, together)
		}
		if c.size == tiny && share < 0.05 {
			t.Errorf("few tiny samples are read together: %.3f is between", share)
		}
		g.close()
	}
}

// plan has the memory class keep these samples, and no others.
func plan(ids ...int32) func(g *rig) {
	return func(g *rig) { g.use.Keep([][]int32{ids}) }
}

// behind has the source be behind a link of so many MB/s, and have this latency in seconds.
func behind(rate, latency float64) func(o *rigOptions) {
	return func(o *rigOptions) {
		o.known = map[string]model.Known{"source": model.GivenRate(rate, latency)}
	}
}

// put puts a sample into memory, as if it had been read before.
func (g *rig) put(id int) {
	g.t.Helper()
	data := content(id, g.source.Index.Size(id))
	origin, err := g.cache.sourceOrigin(id, data, 0)
	if err == nil {
		err = g.stores[0].Put(id, data, origin)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// TestARequestForSeveralThatFails costs nothing but time: each sample is then read alone.
func TestARequestForSeveralThatFails(t *testing.T) {
	g, b := rowed(t, 40, 0, 40, nil)
	defer g.close()
	b.fails.Store(true)
	for id := range 40 {
		data, err := g.fetch(t.Context(), id)
		if err != nil || !bytes.Equal(data, content(id, 1000)) || b.Reads[id].Load() != 1 {
			t.Fatal(id, err, b.Reads[id].Load())
		}
	}
	if samples, size := g.cache.SourceReads(); samples != 40 || size != 40_000 ||
		g.cache.Speeds()[Source].Bytes != size {
		t.Errorf("%d samples, %d bytes, the tier: %+v", samples, size, g.cache.Speeds()[Source])
	}
}

// TestWhatARequestBringsIsAwaited by those that need it meanwhile, instead of being read again.
func TestWhatARequestBringsIsAwaited(t *testing.T) {
	g, b := rowed(t, 40, 0, 40, func(o *rigOptions) { o.mostThreads = 8 })
	defer g.close()
	begun, ends := make(chan struct{}), make(chan struct{})
	b.during = func(context.Context) { close(begun); <-ends }
	var fetches sync.WaitGroup
	fetch := func(id int) {
		data, err := g.fetch(t.Context(), id)
		if err != nil || !bytes.Equal(data, content(id, 1000)) {
			t.Error(id, err)
		}
	}
	fetches.Go(func() { fetch(20) })
	<-begun
	for id := range 40 {
		fetches.Go(func() { fetch(id) })
	}
	close(ends)
	fetches.Wait()
	for id := range 40 {
		if n := b.Reads[id].Load(); n != 1 || len(b.runs) != 1 {
			t.Errorf("sample %d was read %d times, by %d requests", id, n, len(b.runs))
		}
	}
}

// TestARequestThatIsGivenUp is cancelled, and all that wait for what it was to bring fail.
func TestARequestThatIsGivenUp(t *testing.T) {
	for name, threads := range map[string]int{"threads by trial": 8, "fixed threads": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, b := rowed(t, 40, 0, 40, func(o *rigOptions) {
					o.timeout, o.mostThreads = time.Minute, threads
				})
				defer g.close()
				begin, cancelled := time.Now(), time.Time{}
				b.during = func(ctx context.Context) {
					if b.during = nil; ctx.Err() == nil { // it drips
						<-ctx.Done()
						cancelled = time.Now()
					}
				}
				var fetches sync.WaitGroup
				for _, id := range []int{20, 3, 39} {
					fetches.Go(func() {
						_, err := g.fetch(context.Background(), id)
						late := errors.Is(err, source.ErrUnavailable) &&
							strings.Contains(err.Error(), "more than source_timeout")
						if leads := id == 20; late == leads || errors.Is(err, ErrAbandoned) != leads {
							t.Errorf("sample %d: %v", id, err)
						}
					})
					synctest.Wait()
				}
				fetches.Wait()
				synctest.Wait()
				if took := cancelled.Sub(begin); took < time.Minute || took > 70*time.Second {
					t.Errorf("it was cancelled after %v", took)
				}
				if n := g.cache.flights.Hung(); n != 0 {
					t.Errorf("%d reads still hang", n)
				}
				if data, err := g.fetch(t.Context(), 4); err != nil || !bytes.Equal(data,
					content(4, 1000)) {
					t.Error(err)
				}
			})
		})
	}
}
