package cache

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// inheriting returns a rig over a class whose store for the dataset is held already. Its plan gives
// all samples to the class, which has room for these, or for what is held if that takes more.
func inheriting(t *testing.T, class *memory.Class, sizes []int, f fakeForms) *rig {
	o := plain(len(sizes))
	o.sizes = sizes
	o.memory, o.memoryClass = int64(len(sizes)*sizes[0]), class
	o.planAll, o.converter = true, f
	o.crowded = true
	return newRig(t, o)
}

// fill has all samples brought ahead of time.
func (g *rig) fill() { g.use.Fill(g.opened.Plan, func(int64) {}) }

// checkAllKept checks that once conversions have settled, the class holds all samples as read, so
// that the source is read no more.
func (g *rig) checkAllKept(t *testing.T) {
	t.Helper()
	settle()
	n := g.source.Index.Len()
	if f, _ := g.cache.Forms(0); f.Samples != 0 || len(g.stores[0].Held()) != n {
		t.Errorf("%d of %d samples are held: %+v", len(g.stores[0].Held()), n, f)
	}
	before := g.reads()
	for id := range n {
		data, _, err := g.fetched(t, &Request{}, id)
		if err != nil || !bytes.Equal(data, content(id, g.source.Index.Size(id))) {
			t.Fatalf("sample %d: %v", id, err)
		}
	}
	if now := g.reads(); now != before {
		t.Errorf("%d samples are read again", now-before)
	}
}

// TestRefusedSamplesAreKeptWithoutForms checks that samples whose forms did not give them, and
// which were refused because the bytes of these were not free yet, are kept when no form is left.
func TestRefusedSamplesAreKeptWithoutForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lossy := fakeForms{lossy: 1}
		g, class := forming(t, 300, 1400, lossy)
		g.use.TakeForms(true)
		settle()
		g.close()
		g = inheriting(t, class, slices.Repeat([]int{1000}, 300), lossy)
		defer g.close()
		g.fill()
		settle()
		for id := range 300 { // between two looks
			if _, _, err := g.fetched(t, &Request{}, id); err != nil {
				t.Fatal(err)
			}
		}
		if f, _ := g.cache.Forms(0); f.Samples != 0 || len(g.stores[0].Held()) == 300 {
			t.Fatalf("no sample was refused: %+v", f)
		}
		g.checkAllKept(t)
	})
}

// TestFormsInLargerSegments checks that forms become samples if they are in larger segments than
// the class makes for the capacity that it was opened with.
func TestFormsInLargerSegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(400)
		o.sizes, o.memory = slices.Repeat([]int{100_000}, 400), 60_000_000
		o.memoryClass = memory.New(memory.Options{})
		o.planAll, o.fill = true, true
		o.converter = fakeForms{}
		g := newRig(t, o)
		g.use.TakeForms(true)
		settle()
		if f, _ := g.cache.Forms(0); f.Samples != 400 {
			t.Fatalf("%+v", f)
		}
		g.close()
		g = inheriting(t, o.memoryClass, o.sizes, fakeForms{})
		defer g.close()
		g.fill()
		g.checkAllKept(t)
		if n := g.reads(); n != 0 {
			t.Errorf("%d reads", n)
		}
	})
}

// TestMemoryThatIsMappedComesBack checks that refused samples are kept once processes have unmapped
// memory, although nothing else changes then.
func TestMemoryThatIsMappedComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, class := forming(t, 400, 1400, fakeForms{})
		g.use.TakeForms(true)
		settle()
		for id := 260; id < 400; id++ {
			g.stores[0].Drop(id)
		}
		g.close()
		g = inheriting(t, class, slices.Repeat([]int{1000}, 400), fakeForms{})
		defer g.close()
		var mu sync.Mutex
		var mapped []func()
		defer g.cache.Watch(&watched{settle: func(settled, gone func()) {
			settled()
			if f, _ := g.cache.Forms(0); f.Samples > 40 {
				gone()
				return
			}
			mu.Lock()
			defer mu.Unlock()
			mapped = append(mapped, gone)
		}})()
		settle()
		g.fill()
		settle()
		if f, _ := g.cache.Forms(0); f.Samples != 0 || len(g.stores[0].Held()) == 400 {
			t.Fatalf("%d samples are held while memory is mapped: %+v", len(g.stores[0].Held()), f)
		}
		for _, gone := range mapped {
			gone()
		}
		g.checkAllKept(t)
	})
}

// TestBytesLeftInSegments checks that room is made for refused samples of the bytes that others
// have left in segments, when they became forms and the cache was closed before the rest was moved.
func TestBytesLeftInSegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, class := forming(t, 400, 2000, fakeForms{})
		for id := range 400 {
			if id >= 300 {
				g.stores[0].Drop(id)
			} else if id%2 == 0 {
				form, kind, _ := fakeForms{}.Convert(nil, 0, content(id, 1000), Way{})
				if err := g.stores[0].(store.Forms).Replace(id, kind, form); err != nil {
					t.Fatal(err)
				}
			}
		}
		g.close()
		g = inheriting(t, class, slices.Repeat([]int{1000}, 400), fakeForms{})
		defer g.close()
		g.fill()
		g.checkAllKept(t)
	})
}

// TestCopiesOfAnEarlierJobBecomeForms checks that copies which a job finds become forms as they are
// confirmed, though nothing else of the class changes.
func TestCopiesOfAnEarlierJobBecomeForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const samples = 300
		converter := fakeForms{none: 2}
		g, class := forming(t, samples, 1400, converter)
		g.close()
		o := plain(samples)
		o.sizes, o.memory = slices.Repeat([]int{1000}, samples), 1400*samples
		o.memoryClass, o.planAll = class, true
		o.converter = converter
		g = newRig(t, o)
		defer g.close()
		g.use.TakeForms(true)
		want := int64(0)
		for part := range 5 {
			settle()
			for id := part; id < samples; id += 5 {
				data, _, err := g.fetched(t, &Request{Forms: true}, id)
				if err != nil {
					t.Fatal(err)
				}
				if _, _, formed := converter.Convert(nil, 0, data, Way{}); formed {
					want++
				}
			}
		}
		settle()
		if f, _ := g.cache.Forms(0); f.Samples != want || want == 0 || g.reads() != 0 {
			t.Errorf("%+v, want %d, after %d reads", f, want, g.reads())
		}
	})
}

// TestSegmentsBeingFilledAreLookedAtAgain checks that a segment becomes forms to which a sample was
// being added when all others were converted.
func TestSegmentsBeingFilledAreLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const samples = 200
		until := make(chan struct{})
		o := plain(samples)
		o.sizes, o.memory = slices.Repeat([]int{1000}, samples), 2000*samples
		o.memoryClass = memory.New(memory.Options{Segment: 40 << 10})
		o.planAll, o.fill = true, true
		o.converter = fakeForms{}
		o.hook = func(_ context.Context, id int) error {
			if id == samples-1 {
				<-until
			}
			return nil
		}
		g := newRig(t, o)
		defer g.close()
		g.use.TakeForms(true)
		settle()
		if f, _ := g.cache.Forms(0); f.Samples == 0 || f.Samples >= samples {
			t.Fatalf("while a sample is read: %+v", f)
		}
		close(until)
		settle()
		if f, _ := g.cache.Forms(0); f.Samples != samples {
			t.Errorf("%+v", f)
		}
	})
}

// joins is a converter that has a job join which needs samples while it makes a form.
type joins struct {
	fakeForms
	once *sync.Once
	join func()
}

func (j *joins) Convert(dst []byte, _ int, sample []byte, way Way) (
	form []byte, kind uint8, ok bool,
) {
	j.once.Do(j.join)
	return j.fakeForms.Convert(dst, 0, sample, way)
}

// TestNoFormIsMadeOnceAJobNeedsSamples checks that no form takes the place of a sample which a job
// has read as it needs it, not even one that is being made when the job begins.
func TestNoFormIsMadeOnceAJobNeedsSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const samples = 200
		converter := &joins{fakeForms: fakeForms{lossy: 1}, once: &sync.Once{}}
		o := plain(samples)
		o.sizes, o.memory = slices.Repeat([]int{1000}, samples), 1400*samples
		o.memoryClass = memory.New(memory.Options{Segment: 40 << 10})
		o.planAll, o.fill = true, true
		o.converter = converter
		g := newRig(t, o)
		defer g.close()
		var other *Use
		converter.join = func() { other = g.cache.Use(nil) }
		g.use.TakeForms(true)
		settle()
		if f, _ := g.cache.Forms(0); f.Samples != 0 || other == nil {
			t.Errorf("%+v", f)
		}
		other.Close()
		settle()
		if f, _ := g.cache.Forms(0); f.Samples != samples {
			t.Errorf("after that job: %+v", f)
		}
	})
}

// TestRefusedThoughTheyFit checks that samples which are refused although there is room for them,
// as when the kernel has no memory, are brought again after a while, and when the class changes.
func TestRefusedThoughTheyFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := forming(t, 100, 1400, fakeForms{})
		defer g.close()
		v, cl := g.cache.conversion, &g.cache.classes[0]
		var l looks
		refused := missing{planned: 1000, refused: 1000, least: 1000}
		brings := func() bool {
			g.cache.demoted.set(7)
			v.note()
			v.bring(cl, &l, refused)
			return !g.cache.demoted.has(7)
		}
		if !brings() || brings() {
			t.Error("not once at first")
		}
		<-time.After(refillEvery)
		synctest.Wait() // for the conversion's own look
		if !brings() || brings() {
			t.Error("not once after a while")
		}
		g.stores[0].Drop(those(cl.shrinker.Segments()[0].Held, func(int) bool { return true })...)
		if !brings() || brings() {
			t.Error("not once after a segment is free")
		}
		refused.least = 1 << 30
		g.stores[0].Drop(99)
		if brings() {
			t.Error("though no sample fits")
		}
	})
}

// TestFormsBecomeSamplesAfterSomeWereGivenBack checks that when memory was given back before forms
// could become samples, the rest does all the same, and what that frees is used for samples that
// were given back.
func TestFormsBecomeSamplesAfterSomeWereGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const samples, size = 400, 1000
		g, class := forming(t, samples, 1400, fakeForms{})
		defer g.close()
		g.use.TakeForms(true)
		settle()
		g.fill()
		class.Allow(0)
		given := class.GiveBack(60_000, "a test")
		taken := class.Taken()
		settle()
		f, _ := g.cache.Forms(0)
		held := len(g.stores[0].Held())
		if f.Samples != 0 || given < 60_000 || int64(held*size) < samples*size-given+taken/20 {
			t.Errorf("%d samples are held after %d bytes were given back: %+v", held, given, f)
		}
		if now := class.Taken(); now > taken {
			t.Errorf("%d bytes are taken, and %d were", now, taken)
		}
		class.Allow(1 << 30)
		g.checkAllKept(t)
	})
}
