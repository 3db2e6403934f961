package cache

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// fakeForms makes forms of 10 % more bytes. That of a sample whose first byte is divisible by
// lossy does not give the sample, and one whose first byte is divisible by none has no form.
type fakeForms struct{ lossy, none int }

const (
	fakeExact = 1 + iota
	fakeLossy
)

func (f fakeForms) Size(_ int, sample []byte, _ Way) int64 { return int64(len(sample)) * 3 / 2 }

func (fakeForms) Current([]byte, Way) bool { return true }

func (f fakeForms) Convert(dst []byte, _ int, sample []byte, _ Way) (
	form []byte, kind uint8, ok bool,
) {
	first := int(sample[0])
	if f.none > 0 && first%f.none == 0 {
		return dst, 0, false
	}
	kind = fakeExact
	if f.lossy > 0 && first%f.lossy == 0 {
		kind = fakeLossy
	}
	dst = append(dst, bytes.Repeat([]byte{'f'}, len(sample)/10)...)
	return append(dst, sample...), kind, true
}

func (fakeForms) File([]byte, uint8) (file []byte, ok bool) { return nil, false }

func (fakeForms) Split(dst [][]byte, kinds []uint8, _ []byte, _ uint8) (
	[][]byte, []uint8, bool,
) {
	return dst, kinds, false
}

func (fakeForms) Restore(dst, form []byte, kind uint8) (sample []byte, ok bool) {
	if kind != fakeExact {
		return dst, false
	}
	return append(dst, form[len(form)/11:]...), true
}

func (fakeForms) Exact(_ []byte, kind uint8) bool { return kind == fakeExact }

func (fakeForms) Describe(form []byte, kind uint8) (size int64, sum uint32, ok bool) {
	sample := form[len(form)/11:]
	return int64(len(sample)), digest.Of(sample), kind == fakeExact || kind == fakeLossy
}

// TakeForms has the job, which has one node, take forms from now on.
func (u *Use) TakeForms(worth bool) {
	u.cache.uses.Lock()
	defer u.cache.uses.Unlock()
	u.forms, u.worth = true, worth
	u.cache.settleForms()
}

// forming returns a rig whose class holds all samples, of 1000 bytes, in segments of about 40, and
// has room for forms; its job takes these.
func forming(t *testing.T, samples, memoryPerSample int, f fakeForms) (*rig, *memory.Class) {
	o := plain(samples)
	o.sizes = slices.Repeat([]int{1000}, samples)
	o.memory = int64(memoryPerSample * samples)
	o.memoryClass = memory.New(memory.Options{Segment: 40 << 10})
	o.planAll = true
	o.converter = f
	g := newRig(t, o)
	for id := range samples {
		if _, err := g.fetch(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	return g, o.memoryClass
}

// settle lets conversions go on until nothing is left to do.
func settle() {
	<-time.After(time.Minute)
	synctest.Wait()
}

// reads returns how often the source was read.
func (g *rig) reads() (sum int) {
	for i := range g.source.Reads {
		sum += int(g.source.Reads[i].Load())
	}
	return sum
}

// TestCopiesBecomeForms checks that copies become forms while all jobs take them, that a request of
// forms gets these and another one the samples, and that the source is not read for any of it.
func TestCopiesBecomeForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const samples = 400
		g, _ := forming(t, samples, 1400, fakeForms{none: 7})
		defer g.close()
		settle()
		if f, ok := g.cache.Forms(0); !ok || f.Samples != 0 || f.Wanted {
			t.Fatalf("before the job takes forms: %+v, %v", f, ok)
		}
		g.use.TakeForms(true)
		settle()
		want := int64(0)
		for id := range samples {
			_, _, formed := fakeForms{none: 7}.Convert(nil, 0, content(id, 1000), Way{})
			if formed {
				want++
			}
			for range 2 {
				s, err := g.cache.Fetch(t.Context(), &Request{Forms: true}, id, nil)
				if err != nil || (s.Kind != 0) != formed || s.InPlace == formed ||
					s.From != FirstClass || !bytes.HasSuffix(s.Data, content(id, 1000)) {
					t.Fatalf("sample %d: kind %d, from %v: %v", id, s.Kind, s.From, err)
				}
				s.Release()
				data, from, err := g.fetched(t, &Request{}, id)
				if err != nil || from != FirstClass || !bytes.Equal(data, content(id, 1000)) {
					t.Fatalf("sample %d as read: from %v: %v", id, from, err)
				}
			}
			if _, held := g.cache.Held(id, routing.Want{}); held == formed {
				t.Errorf("sample %d is sent as it lies: %v", id, held)
			}
		}
		f, _ := g.cache.Forms(0)
		if f.Samples != want || f.Bytes != 1100*want || f.AsRead != 1000*want ||
			f.Converted != want || !f.Wanted || f.Reread != 0 {
			t.Errorf("%+v, want %d", f, want)
		}
		if n := g.reads(); n != samples {
			t.Errorf("%d reads of %d samples", n, samples)
		}
		total, used := g.stores[0].Capacity()
		if most := 1100*want + 1000*(samples-want) + 3*(40<<10); used > most {
			t.Errorf("%d of %d bytes are used, want at most %d", used, total, most)
		}
	})
}

// TestFormsAreMadeIfTheyPay checks that a job for which it is not worth it makes no forms, and
// keeps those that another one has made.
func TestFormsAreMadeIfTheyPay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const samples = 200
		g, _ := forming(t, samples, 1400, fakeForms{})
		defer g.close()
		formed := func() int64 {
			settle()
			f, _ := g.cache.Forms(0)
			return f.Samples
		}
		g.use.TakeForms(false)
		if n := formed(); n != 0 {
			t.Errorf("%d forms that do not pay", n)
		}
		other := g.cache.Use(nil)
		other.TakeForms(true)
		all := formed()
		if all == 0 {
			t.Error("no forms that pay")
		}
		other.Close()
		if n := formed(); n != all {
			t.Errorf("%d forms after the job that made %d", n, all)
		}
	})
}

// TestJobsThatNeedFiles checks that forms become samples again when a job needs these, and that a
// sample which its form does not give is read again, once, and stays as read.
func TestJobsThatNeedFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const samples = 200
		g, _ := forming(t, samples, 1400, fakeForms{lossy: 5})
		defer g.close()
		g.use.TakeForms(true)
		settle()
		lossy := 0
		for id := range samples {
			if int(content(id, 1000)[0])%5 == 0 {
				lossy++
			}
		}
		if f, _ := g.cache.Forms(0); f.Samples != samples || lossy == 0 {
			t.Fatalf("%+v", f)
		}
		other := g.cache.Use(nil)
		settle()
		f, _ := g.cache.Forms(0)
		if f.Samples != int64(lossy) || f.Restored != int64(samples-lossy) || f.Wanted {
			t.Errorf("%+v, want %d", f, lossy)
		}
		for range 2 {
			for id := range samples {
				data, _, err := g.fetched(t, &Request{}, id)
				if err != nil || !bytes.Equal(data, content(id, 1000)) {
					t.Fatalf("sample %d: %v", id, err)
				}
			}
		}
		f, _ = g.cache.Forms(0)
		if n := g.reads(); n != samples+lossy || f.Reread != int64(lossy) || f.Samples != 0 {
			t.Errorf("%d reads of %d samples, %d of which are lossy: %+v", n, samples, lossy, f)
		}
		other.Close()
		settle()
		if f, _ = g.cache.Forms(0); f.Samples != int64(samples-lossy) || !f.Wanted {
			t.Errorf("without the other job: %+v", f)
		}
	})
}

// TestFormsTakeNoSamplesPlace checks that forms take only the room that samples leave, and that no
// sample is dropped for one.
func TestFormsTakeNoSamplesPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, perSample := range []int{1000, 1040, 1250} {
			const samples = 400
			g, _ := forming(t, samples, perSample, fakeForms{})
			g.use.TakeForms(true)
			settle()
			f, _ := g.cache.Forms(0)
			if (f.Samples > 0) != (perSample > 1200) || len(g.stores[0].Held()) != samples {
				t.Errorf("%d bytes per sample: %+v", perSample, f)
			}
			for id := range samples {
				if _, from, err := g.fetched(t, &Request{}, id); err != nil || from != FirstClass {
					t.Errorf("%d bytes per sample: sample %d from %v: %v", perSample, id, from, err)
				}
			}
			g.close()
		}
	})
}

// TestMemoryThatShrinks checks that forms become samples when memory may not grow, before samples
// are given back, and that no more become forms after that.
func TestMemoryThatShrinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const samples = 400
		g, class := forming(t, samples, 1400, fakeForms{})
		defer g.close()
		g.use.TakeForms(true)
		settle()
		taken := class.Taken()
		if f, _ := g.cache.Forms(0); f.Samples != samples {
			t.Fatalf("%+v", f)
		}
		class.Allow(0)
		settle()
		f, _ := g.cache.Forms(0)
		if f.Samples != 0 || f.Restored != samples || len(g.stores[0].Held()) != samples {
			t.Errorf("%+v, %d samples held", f, len(g.stores[0].Held()))
		}
		if now := class.Taken(); now >= taken {
			t.Errorf("%d bytes are taken after %d", now, taken)
		}
		class.Allow(1 << 30)
		settle()
		if f, _ := g.cache.Forms(0); f.Samples != 0 || f.Wanted {
			t.Errorf("when there is memory again: %+v", f)
		}
		if n := g.reads(); n != samples {
			t.Errorf("%d reads of %d samples", n, samples)
		}
	})
}

// TestPlansComeBeforeForms checks that forms become samples if a plan needs their room.
func TestPlansComeBeforeForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(400)
		o.sizes = slices.Repeat([]int{1000}, 400)
		o.memory, o.memoryClass = 400_000, memory.New(memory.Options{Segment: 16 << 10})
		o.converter = fakeForms{}
		g := newRig(t, o)
		defer g.close()
		half := make([]int32, 200)
		for i := range half {
			half[i] = int32(i)
		}
		g.use.Keep([][]int32{half})
		g.use.Fill([][]int32{half}, func(int64) {})
		g.use.TakeForms(true)
		settle()
		if f, _ := g.cache.Forms(0); f.Samples != 200 {
			t.Fatalf("%+v", f)
		}
		other := g.cache.Use(nil)
		other.TakeForms(true)
		rest := make([]int32, 198)
		for i := range rest {
			rest[i] = int32(200 + i)
		}
		other.Keep([][]int32{rest})
		other.Fill([][]int32{rest}, func(int64) {})
		settle()
		if held := len(g.stores[0].Held()); held != 398 {
			f, _ := g.cache.Forms(0)
			t.Errorf("%d samples are held: %+v", held, f)
		}
		other.Close()
	})
}

// TestAlteredFormIsReadAgain checks that a form whose bytes were altered is not delivered.
func TestAlteredFormIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := forming(t, 300, 1400, fakeForms{})
		defer g.close()
		g.use.TakeForms(true)
		settle()
		form, err := g.stores[0].(store.Forms).Form(7)
		if err != nil {
			t.Fatal(err)
		}
		form.Data[500] ^= 1
		form.Release()
		s, err := g.cache.Fetch(t.Context(), &Request{Forms: true}, 7, nil)
		if err != nil || !s.Read || s.Kind != 0 || !bytes.Equal(s.Data, content(7, 1000)) {
			t.Errorf("kind %d, read: %v, %v", s.Kind, s.Read, err)
		}
		s.Release()
		if f, _ := g.cache.Forms(0); f.Damaged != 1 {
			t.Errorf("%+v", f)
		}
	})
}

// TestFormsOfAnEarlierCache checks that a cache over a store with forms confirms and delivers them.
func TestFormsOfAnEarlierCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const samples = 300
		g, class := forming(t, samples, 1400, fakeForms{})
		g.use.TakeForms(true)
		settle()
		g.close()
		for _, forms := range []bool{true, false} {
			o := plain(samples)
			o.sizes = slices.Repeat([]int{1000}, samples)
			o.memory, o.memoryClass = 1400*samples, class
			o.planAll = true
			o.converter = fakeForms{}
			o.takesForms = forms
			g = newRig(t, o)
			for id := range samples {
				s, err := g.cache.FetchView(t.Context(), &Worker{}, &Request{Forms: forms}, id)
				if err != nil || s.Read || (s.Kind != 0) != forms ||
					!bytes.HasSuffix(s.Data, content(id, 1000)) {
					t.Errorf("sample %d: kind %d, read: %v, %v", id, s.Kind, s.Read, err)
				}
				s.Release()
			}
			if g.reads() != 0 {
				t.Errorf("%d reads of the source", g.reads())
			}
			g.close()
		}
	})
}

// TestStoreOfFormsOpenedWithLess checks that a cache over a store that holds forms, and was opened
// for no more than the samples, holds all of these, and makes samples of the forms.
func TestStoreOfFormsOpenedWithLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const samples = 300
		g, class := forming(t, samples, 1400, fakeForms{})
		g.use.TakeForms(true)
		settle()
		g.close()
		o := plain(samples)
		o.sizes = slices.Repeat([]int{1000}, samples)
		o.memory, o.memoryClass = 1000*samples, class
		o.planAll = true
		o.converter, o.crowded = fakeForms{}, true
		g = newRig(t, o)
		defer g.close()
		g.use.TakeForms(true)
		for id := range samples {
			if _, err := g.fetch(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		settle()
		f, _ := g.cache.Forms(0)
		if f.Samples != 0 || f.Wanted || len(g.stores[0].Held()) != samples || g.reads() != 0 {
			t.Errorf("%+v; %d samples are held, after %d reads", f, len(g.stores[0].Held()), g.reads())
		}
	})
}
