package storetest

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/hdmlp/hdmlp/internal/store"
)

// testForms tests stores that implement store.Forms.
func testForms(t *testing.T, factory Factory) {
	if !implements[store.Forms](t, factory) {
		t.Skip("the class keeps samples as read")
	}
	runAll(t, factory, map[string]func(*testing.T, Factory){
		"Replace": testReplace, "NoRoom": testReplaceNoRoom, "Altered": testAlteredForm,
		"ReopenedWithForms": testReopenedForms, "ReopenedWithLess": testFewerForms,
		"SegmentsBecomeEmpty": testReplacedSegments, "ConcurrentReplace": testConcurrentReplace,
	})
}

// formOf returns a form of a sample, of 17 bytes more than it has.
func formOf(ds store.Dataset, id int) []byte {
	form := append(Bytes(ds, id), "seventeen bytes.."...)
	form[0] ^= 0xff
	return form
}

// replace puts the forms of samples in their place.
func replace(t *testing.T, s store.Store, ds store.Dataset, ids ...int) {
	t.Helper()
	for _, id := range ids {
		if err := s.(store.Forms).Replace(id, 7, formOf(ds, id)); err != nil {
			t.Fatalf("sample %d: %v", id, err)
		}
	}
}

// checkRead checks that samples are held as read.
func checkRead(t *testing.T, s store.Store, ds store.Dataset, ids ...int) {
	t.Helper()
	for _, id := range ids {
		got := make([]byte, ds.Size(id))
		if err := s.Read(id, got); err != nil || !bytes.Equal(got, Bytes(ds, id)) {
			t.Errorf("sample %d: %v", id, err)
		}
	}
}

// checkForm checks that a sample is held in its form, and found in no other way.
func checkForm(t *testing.T, s store.Store, ds store.Dataset, id int) {
	t.Helper()
	p := s.(store.Forms)
	form, err := p.Form(id)
	if err != nil {
		t.Fatalf("sample %d: %v", id, err)
	}
	defer form.Release()
	if form.Kind != 7 || !bytes.Equal(form.Data, formOf(ds, id)) ||
		cap(form.Data) != len(form.Data) {
		t.Errorf("sample %d: kind %d, %d bytes", id, form.Kind, len(form.Data))
	}
	if origin, ok := s.Origin(id); !ok || origin != OriginOf(id, Bytes(ds, id)) {
		t.Errorf("sample %d has the origin %+v, %v", id, origin, ok)
	}
	if !s.Has(id) || !slices.Contains(s.Held(), int32(id)) {
		t.Errorf("sample %d is not held", id)
	}
	if _, ok := p.Locate(id); ok {
		t.Errorf("sample %d is located", id)
	}
	if _, ok := p.View(id); ok {
		t.Errorf("sample %d can be viewed", id)
	}
	if err := s.Read(id, make([]byte, ds.Size(id))); !errors.Is(err, store.ErrForm) {
		t.Errorf("sample %d is read: %v", id, err)
	}
}

func testReplace(t *testing.T, factory Factory) {
	ds := Uniform(1, 5, 100)
	s := Open(t, factory(t, 10_000), ds, 10_000)
	p := s.(store.Forms)
	Put(t, s, ds, 3, 1, 2)
	v, _ := p.View(1)
	replace(t, s, ds, 1, 3)
	checkForm(t, s, ds, 1)
	checkForm(t, s, ds, 3)
	if !bytes.Equal(v.Data, Bytes(ds, 1)) {
		t.Error("the view of a copy that was replaced has other bytes")
	}
	v.Release()
	if held := s.Held(); !slices.Equal(held, []int32{3, 1, 2}) {
		t.Errorf("held: %v", held)
	}
	if f := p.Formed(); f != (store.Formed{Samples: 2, Bytes: 234, AsRead: 200}) {
		t.Errorf("formed: %+v", f)
	}
	if err := p.Replace(1, 0, Bytes(ds, 1)); err != nil {
		t.Fatal(err)
	}
	s.Drop(3)
	checkRead(t, s, ds, 1, 2)
	if f := p.Formed(); f != (store.Formed{}) {
		t.Errorf("formed: %+v", f)
	}
	if _, err := p.Form(2); !errors.Is(err, store.ErrNotHeld) {
		t.Errorf("the form of a sample as read: %v", err)
	}
	for _, id := range []int{3, 4} {
		if _, err := p.Form(id); !errors.Is(err, store.ErrNotHeld) {
			t.Errorf("the form of sample %d, which is not held: %v", id, err)
		}
	}
	checkNotReplaced(t, ds, p)
}

// checkNotReplaced checks that samples 3 and 4, which are not held, are not replaced, and that
// wrong calls are errors.
func checkNotReplaced(t *testing.T, ds store.Dataset, p interface {
	Replace(id int, kind uint8, data []byte) error
},
) {
	t.Helper()
	for _, id := range []int{3, 4} {
		if err := p.Replace(id, 7, formOf(ds, id)); !errors.Is(err, store.ErrNotHeld) {
			t.Errorf("replaced sample %d, which is not held: %v", id, err)
		}
	}
	for _, wrong := range []error{
		p.Replace(5, 7, nil), p.Replace(-1, 7, nil), p.Replace(1, 0, make([]byte, 99)),
	} {
		if wrong == nil || errors.Is(wrong, store.ErrNotHeld) {
			t.Errorf("a wrong call: %v", wrong)
		}
	}
}

func testReplaceNoRoom(t *testing.T, factory Factory) {
	ds := Uniform(1, 3, 100)
	s := Open(t, factory(t, 300), ds, 300)
	Put(t, s, ds, 0, 1, 2)
	if err := s.(store.Forms).Replace(1, 7, formOf(ds, 1)); !errors.Is(err, store.ErrFull) {
		t.Fatalf("got %v, want ErrFull", err)
	}
	Check(t, s, ds, 0, 1, 2)
}

func testAlteredForm(t *testing.T, factory Factory) {
	ds := Uniform(1, 3, 100)
	s := Open(t, factory(t, 10_000), ds, 10_000)
	p := s.(store.Forms)
	Put(t, s, ds, 0, 1)
	replace(t, s, ds, 0, 1)
	form, err := p.Form(1)
	if err != nil {
		t.Fatal(err)
	}
	form.Data[50] ^= 1
	form.Release()
	if _, err := p.Form(1); !errors.Is(err, store.ErrCorrupt) {
		t.Fatalf("got %v, want ErrCorrupt", err)
	}
	if s.Has(1) {
		t.Error("an altered form is still held")
	}
	Put(t, s, ds, 1)
	checkForm(t, s, ds, 0)
	checkRead(t, s, ds, 1)
}

func testReopenedForms(t *testing.T, factory Factory) {
	c := factory(t, 10_000)
	ds := Uniform(1, 3, 100)
	s := Open(t, c, ds, 10_000)
	Put(t, s, ds, 2, 1, 0)
	replace(t, s, ds, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = Open(t, c, ds, 10_000)
	checkForm(t, s, ds, 1)
	checkRead(t, s, ds, 2, 0)
}

// testFewerForms checks that a store which is opened again with less keeps the oldest samples, in
// the forms that they have.
func testFewerForms(t *testing.T, factory Factory) {
	c := factory(t, 10_000)
	ds := Uniform(1, 6, 100)
	s := Open(t, c, ds, 10_000)
	Put(t, s, ds, 5, 4, 3, 2, 1, 0)
	replace(t, s, ds, 5, 1, 0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = Open(t, c, ds, 350)
	checkForm(t, s, ds, 5)
	if held := s.Held(); len(held) < 2 || !slices.Equal(held[:2], []int32{5, 4}) ||
		slices.Contains(held, 0) {
		t.Errorf("held: %v", held)
	}
	f := s.(store.Forms).Formed()
	if f != (store.Formed{Samples: 1, Bytes: 117, AsRead: 100}) {
		t.Errorf("formed: %+v", f)
	}
}

// testReplacedSegments checks that a segment is freed once forms have replaced all its samples, and
// that forms of a segment that is given back are not held any more.
func testReplacedSegments(t *testing.T, factory Factory) {
	const samples, size = 64, 64 << 10
	ds := Uniform(1, samples, size)
	s := Open(t, factory(t, 2*samples*size), ds, 2*samples*size)
	p, ok := s.(interface {
		store.Forms
		store.Shrinker
	})
	if !ok {
		t.Skip("the class gives no memory back")
	}
	for id := range samples {
		Put(t, s, ds, id)
	}
	first := p.Segments()[0]
	for i, id := range first.Held {
		if now := p.Segments()[0]; now.Number != first.Number || now.Dead != int64(i*size) {
			t.Fatalf("%d bytes of %d replaced samples are in segment %d", now.Dead, i, now.Number)
		}
		replace(t, s, ds, int(id))
	}
	for _, e := range p.Segments() {
		if e.Number == first.Number {
			t.Errorf("segment %d, of which all samples were replaced, is still there", e.Number)
		}
	}
	if r := p.Returned(); r.Bytes != 0 {
		t.Errorf("replacing counts as memory given back: %+v", r)
	}
	all := len(s.Held())
	given := 0
	for _, e := range p.Segments() {
		if slices.Contains(e.Held, first.Held[0]) {
			given = len(e.Held)
			if !p.GiveBack(e.Number, "a test") {
				t.Fatal("a segment with forms is not given back")
			}
		}
	}
	if left := len(s.Held()); given == 0 || left != all-given {
		t.Errorf("%d of %d samples are held after a segment of %d was given back", left, all, given)
	}
	left := int64(0)
	for _, id := range first.Held {
		if s.Has(int(id)) {
			left++
		}
	}
	if f := p.Formed(); f.Samples != left {
		t.Errorf("%+v, and %d forms are held", f, left)
	}
}

// testConcurrentReplace checks that readers get the sample or the form while one becomes the other.
func testConcurrentReplace(t *testing.T, factory Factory) {
	const samples, rounds = 8, 20
	ds := Uniform(1, samples, 1000)
	room := int64(4 * samples * rounds * 1100)
	s := Open(t, factory(t, room), ds, room)
	p := s.(store.Forms)
	for id := range samples {
		Put(t, s, ds, id)
	}
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		writers.Go(func() {
			for n := range rounds {
				for id := range samples {
					kind, data := uint8(7), formOf(ds, id)
					if n%2 == 1 {
						kind, data = 0, Bytes(ds, id)
					}
					// ErrNotHeld: the other one was sooner.
					if err := p.Replace(id, kind, data); err != nil &&
						!errors.Is(err, store.ErrNotHeld) {
						t.Errorf("replace: %v", err)
					}
				}
			}
		})
		readers.Go(func() {
			for id := 0; ; id = (id + 1) % samples {
				select {
				case <-done:
					return
				default:
				}
				if form, err := p.Form(id); err == nil {
					if !bytes.Equal(form.Data, formOf(ds, id)) {
						t.Error("another form")
					}
					form.Release()
				} else if !errors.Is(err, store.ErrNotHeld) {
					t.Errorf("form: %v", err)
				}
				if v, ok := p.View(id); ok {
					if !bytes.Equal(v.Data, Bytes(ds, id)) {
						t.Error("another sample")
					}
					v.Release()
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	if len(s.Held()) != samples {
		t.Errorf("%d samples are held", len(s.Held()))
	}
}
