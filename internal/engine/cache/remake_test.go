package cache

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// fakeRecipe makes so many bytes of itself of each sample.
type fakeRecipe struct {
	name  byte
	bytes int64
}

func (r fakeRecipe) Same(other Recipe) bool { return r == other }
func (r fakeRecipe) Bytes() int64           { return r.bytes }

// recipeForms makes forms of samples of 1000 bytes: of 1100, or, if there is room for what a recipe
// makes of all, of what that makes. Of a sample whose first byte is divisible by 9 it makes
// nothing.
type recipeForms struct{}

const (
	plainKind = 1 + iota
	recipeKind
)

func (recipeForms) extra(sample []byte, way Way) ([]byte, uint8) {
	r, ok := way.Recipe.(fakeRecipe)
	if ok && way.Ample && sample[0]%9 != 0 {
		return bytes.Repeat([]byte{r.name}, int(r.bytes)), recipeKind
	}
	return bytes.Repeat([]byte{'f'}, 100), plainKind
}

func (f recipeForms) Size(_ int, sample []byte, way Way) int64 {
	extra, _ := f.extra(sample, way)
	return int64(len(extra) + len(sample))
}

func (f recipeForms) Convert(dst []byte, _ int, sample []byte, way Way) ([]byte, uint8, bool) {
	extra, kind := f.extra(sample, way)
	return append(append(dst, extra...), sample...), kind, true
}

func (f recipeForms) Current(form []byte, way Way) bool {
	extra, _ := f.extra(form[len(form)-1000:], way)
	return bytes.Equal(form[:len(form)-1000], extra)
}

func (recipeForms) File([]byte, uint8) (file []byte, ok bool) { return nil, false }

func (recipeForms) Exact([]byte, uint8) bool { return true }

func (recipeForms) Split(dst [][]byte, kinds []uint8, _ []byte, _ uint8) (
	[][]byte, []uint8, bool,
) {
	return dst, kinds, false
}

func (recipeForms) Restore(dst, form []byte, _ uint8) (sample []byte, ok bool) {
	return append(dst, form[len(form)-1000:]...), true
}

func (recipeForms) Describe(form []byte, _ uint8) (size int64, sum uint32, ok bool) {
	return 1000, digest.Of(form[len(form)-1000:]), true
}

// TakeRecipe is TakeForms with a recipe; nil: the job has none.
func (u *Use) TakeRecipe(recipe Recipe) {
	u.cache.uses.Lock()
	u.recipe = recipe
	u.cache.uses.Unlock()
	u.TakeForms(true)
}

// recipeRig returns a rig whose class holds all of 400 samples, of 1000 bytes.
func recipeRig(t *testing.T, perSample int64, class *memory.Class) *rig {
	const samples = 400
	o := plain(samples)
	o.sizes = slices.Repeat([]int{1000}, samples)
	o.memory = perSample * samples
	o.memoryClass = class
	o.planAll, o.converter = true, recipeForms{}
	g := newRig(t, o)
	for id := range samples {
		if _, err := g.fetch(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// checkForms checks, once conversions have settled, that all forms are made in a way, and that each
// gives its sample.
func (g *rig) checkForms(t *testing.T, what string, way Way) {
	t.Helper()
	settle()
	wrong := 0
	for id := range g.source.Index.Len() {
		s, err := g.cache.Fetch(t.Context(), &Request{Forms: true}, id, nil)
		if err != nil || !bytes.HasSuffix(s.Data, content(id, 1000)) {
			t.Fatalf("%s: sample %d: %v", what, id, err)
		}
		if s.Kind == 0 || !(recipeForms{}).Current(s.Data, way) {
			wrong++
		}
		s.Release()
		data, _, err := g.fetched(t, &Request{}, id)
		if err != nil || !bytes.Equal(data, content(id, 1000)) {
			t.Fatalf("%s: sample %d as read: %v", what, id, err)
		}
	}
	if wrong > 0 {
		t.Errorf("%s: %d of %d samples are not as they should be", what, wrong,
			g.source.Index.Len())
	}
	if n := g.reads(); n > g.source.Index.Len() {
		t.Errorf("%s: %d reads of %d samples", what, n, g.source.Index.Len())
	}
}

// TestRecipeOfAllJobs checks that forms hold what the recipe makes that all jobs have, that they
// are made anew when jobs come and go, as far as memory has room, and that nothing is read for it.
func TestRecipeOfAllJobs(t *testing.T) {
	a, b := fakeRecipe{'a', 1500}, fakeRecipe{'b', 1000}
	large := fakeRecipe{'l', 3000}
	synctest.Test(t, func(t *testing.T) {
		class := memory.New(memory.Options{Segment: 16 << 10})
		g := recipeRig(t, 3000, class)
		g.use.TakeForms(true)
		g.checkForms(t, "no recipe", Way{})
		g.use.TakeRecipe(a)
		g.checkForms(t, "one job", Way{a, true})
		before, _ := g.cache.Forms(0)
		same := g.cache.UseForms(nil, true, a)
		g.checkForms(t, "two jobs of one recipe", Way{a, true})
		if f, _ := g.cache.Forms(0); f.Converted != before.Converted {
			t.Errorf("%d conversions for another job of the same recipe",
				f.Converted-before.Converted)
		}
		same.Close()
		other := g.cache.UseForms(nil, true, b)
		g.checkForms(t, "jobs of two recipes", Way{})
		none := g.cache.UseForms(nil, true, nil)
		other.Close()
		g.checkForms(t, "a job without a recipe", Way{})
		none.Close()
		g.use.TakeRecipe(b)
		g.checkForms(t, "another recipe", Way{b, true})
		g.use.TakeRecipe(large)
		g.checkForms(t, "a recipe without room for all", Way{large, false})
		g.use.TakeRecipe(a)
		g.checkForms(t, "the first one again", Way{a, true})
		files := g.cache.Use(nil)
		settle()
		if f, _ := g.cache.Forms(0); f.Samples != 0 || f.Reread != 0 {
			t.Errorf("a job that needs samples: %+v", f)
		}
		files.Close()
		g.checkForms(t, "without it", Way{a, true})
		g.close()
		g = recipeRig(t, 3000, class) // finds what is held
		defer g.close()
		g.use.TakeRecipe(b)
		g.checkForms(t, "forms of an earlier cache", Way{b, true})
		if n := g.reads(); n != 0 {
			t.Errorf("%d reads", n)
		}
	})
}
