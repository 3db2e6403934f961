package cache

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/store"
)

// filing returns a rig whose file class holds all samples, of 1000 bytes, and has as much room
// besides; its job takes forms.
func filing(t *testing.T, samples int, spare int64, f fakeForms, change func(o *rigOptions)) *rig {
	o := plain(samples)
	o.sizes = slices.Repeat([]int{1000}, samples)
	o.file, o.spare = int64(1000*samples), spare
	o.dir, o.converter = t.TempDir(), f
	o.planAll, o.keepAll = true, true
	o.takesForms = true
	if change != nil {
		change(&o)
	}
	g := newRig(t, o)
	for id := range samples {
		if _, _, err := g.fetched(t, &Request{}, id); err != nil {
			t.Fatal(err)
		}
	}
	g.cache.Flush()
	return g
}

// files returns what the file class holds in forms.
func (g *rig) files() Forms {
	f, _ := g.cache.Forms(0)
	return f
}

// TestFilesBecomeForms checks that copies on a disk become forms that give the sample, that a
// request of forms gets these and another one the samples, also for other nodes, and that the
// source is not read for any of it.
func TestFilesBecomeForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const samples = 60
		lossy := fakeForms{lossy: 5, none: 7}
		g := filing(t, samples, 1000*samples, lossy, nil)
		defer g.close()
		settle()
		want := int64(0)
		for id := range samples {
			data := content(id, 1000)
			_, kind, _ := lossy.Convert(nil, 0, data, Way{})
			if kind == fakeExact {
				want++
			}
			got, err := g.cache.FetchView(t.Context(), &Worker{}, &Request{Forms: true}, id)
			if err != nil || (got.Kind == fakeExact) != (kind == fakeExact) || got.From != FirstClass ||
				!bytes.HasSuffix(got.Data, data) {
				t.Fatalf("sample %d: kind %d, from %v: %v", id, got.Kind, got.From, err)
			}
			read, from, err := g.fetched(t, &Request{}, id)
			if err != nil || from != FirstClass || !bytes.Equal(read, data) {
				t.Fatalf("sample %d as read: from %v: %v", id, from, err)
			}
			for _, most := range []int{0, 1050, 1200} {
				w := routing.Want{Size: 1000, Most: most}
				_, err := g.cache.Serve(t.Context(), id, w, func(c Copy, read bool) error {
					if (c.Kind != 0) != (most == 1200 && kind == fakeExact) || read ||
						!bytes.HasSuffix(c.Data, data) {
						t.Errorf("sample %d of at most %d bytes is sent as %d", id, most, c.Kind)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		f := g.files()
		if f.Samples != want || f.Converted != want || f.Restored+f.Damaged+f.Reread != 0 || !f.Wanted {
			t.Errorf("%+v, want %d", f, want)
		}
		if f.Sent != want || f.Unpacked != 2*want {
			t.Errorf("%d forms were sent, and %d unpacked, of %d", f.Sent, f.Unpacked, want)
		}
		if n := g.reads(); n != samples {
			t.Errorf("the source was read %d times for %d samples", n, samples)
		}
	})
}

// TestFormsOfFilesBecomeSamples checks that forms become samples while a job needs these, and forms
// again after that, without a read from the source.
func TestFormsOfFilesBecomeSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const samples = 40
		g := filing(t, samples, 1000*samples, fakeForms{}, nil)
		defer g.close()
		settle()
		if f := g.files(); f.Samples != samples {
			t.Fatalf("%+v", f)
		}
		raw := g.cache.Use(nil)
		settle()
		if f := g.files(); f.Samples != 0 || f.Restored != samples || f.Wanted {
			t.Errorf("while a job needs samples: %+v", f)
		}
		raw.Close()
		settle()
		if f := g.files(); f.Samples != samples || f.Converted != 2*samples {
			t.Errorf("after it: %+v", f)
		}
		if n := g.reads(); n != samples {
			t.Errorf("the source was read %d times for %d samples", n, samples)
		}
	})
}

// TestFormsOfFilesHaveRoom checks that none are made where the class has no room besides, as many
// as there is room for, and none by a class that does not keep everything or of samples that the
// plan gives to memory.
func TestFormsOfFilesHaveRoom(t *testing.T) {
	const samples = 64
	for name, c := range map[string]struct {
		spare  int64
		change func(o *rigOptions)
		least  int64
		most   int64
	}{
		"none":   {0, nil, 0, 0},
		"some":   {8000, nil, 18, 21}, // half of it, less a part of the class
		"parts":  {64_000, func(o *rigOptions) { o.keepAll = false }, 0, 0},
		"worth":  {64_000, func(o *rigOptions) { o.takesForms = false }, 0, 0},
		"memory": {64_000, func(o *rigOptions) { o.memory = 64_000 }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := filing(t, samples, c.spare, fakeForms{}, c.change)
				defer g.close()
				settle()
				j := len(g.stores) - 1
				f, _ := g.cache.Forms(j)
				if f.Samples < c.least || f.Samples > c.most {
					t.Errorf("%+v, want %d to %d", f, c.least, c.most)
				}
				if n := g.reads(); n != samples {
					t.Errorf("the source was read %d times", n)
				}
			})
		})
	}
}

// otherForms is of another version: it does not know the forms.
type otherForms struct{ fakeForms }

func (otherForms) Describe([]byte, uint8) (int64, uint32, bool)  { return 0, 0, false }
func (otherForms) Restore(dst, _ []byte, _ uint8) ([]byte, bool) { return dst, false }
func (otherForms) Size(int, []byte, Way) int64                   { return 0 }
func (otherForms) Convert(dst []byte, _ int, _ []byte, _ Way) ([]byte, uint8, bool) {
	return dst, 0, false
}

// TestFormsOfFilesStay checks that forms are found by a cache that is made later, and that one to
// which they mean nothing drops them, and reads the samples again, once.
func TestFormsOfFilesStay(t *testing.T) {
	for _, takes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const samples = 30
			dir := t.TempDir()
			g := filing(t, samples, 1000*samples, fakeForms{}, func(o *rigOptions) { o.dir = dir })
			settle()
			g.close()
			for _, other := range []bool{false, true} {
				o := plain(samples)
				o.sizes, o.dir = slices.Repeat([]int{1000}, samples), dir
				o.file, o.spare = 1000*samples, 1000*samples
				o.planAll, o.keepAll = true, true
				o.takesForms = true
				if o.converter = (fakeForms{}); other {
					o.converter = otherForms{}
				}
				g := newRig(t, o)
				for range 2 {
					for id := range samples {
						got, _, err := g.fetched(t, &Request{Forms: takes}, id)
						if err != nil || !bytes.HasSuffix(got, content(id, 1000)) {
							t.Fatalf("sample %d: %v", id, err)
						}
					}
					g.cache.Flush()
				}
				want, damaged := 0, int64(0)
				if other {
					want, damaged = samples, samples
				}
				if f := g.files(); g.reads() != want || f.Damaged != damaged {
					t.Errorf("another version: %v: %d reads, %+v", other, g.reads(), f)
				}
				g.close()
			}
		})
	}
}

// hung is a store whose Replace does not return before it is let.
type hung struct {
	store.FormReader
	until chan struct{}
}

func (s hung) Replace(id int, kind uint8, data []byte) error {
	<-s.until
	return s.FormReader.Replace(id, kind, data)
}

// TestDiskHangsWhileFormsAreWritten checks that a class whose writes hang does not hold up the
// cache's end.
func TestDiskHangsWhileFormsAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		g := filing(t, 10, 10_000, fakeForms{}, func(o *rigOptions) {
			o.wrap = func(s store.Store) store.Store { return hung{s.(store.FormReader), until} }
		})
		settle()
		begun := time.Now()
		g.use.Close()
		left := g.cache.Close()
		if took := time.Since(begun); took > time.Minute || !slices.Equal(left.Classes, []int{0}) {
			t.Errorf("closed after %v, %+v", took, left)
		}
		close(until)
		g.cache.Settle(left)
		g.opened.Close(t)
	})
}
