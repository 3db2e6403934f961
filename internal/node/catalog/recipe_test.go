package catalog

import (
	"bytes"
	"image"
	"image/png"
	"testing"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/transform"
	"github.com/hdmlp/hdmlp/internal/transform/forms"
)

// prefixOf returns what a list of transforms begins with.
func prefixOf(t *testing.T, list string) *transform.Prefix {
	t.Helper()
	description, err := transform.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	p, err := transform.Compile(description)
	if err != nil {
		t.Fatal(err)
	}
	return p.Prefix()
}

// TestRecipesByField: recipes are the same if those of all fields are.
func TestRecipesByField(t *testing.T) {
	a, again := prefixOf(t, "Resize((9, 8)), ToTensor()"), prefixOf(t, "Resize((9, 8))")
	b, none := prefixOf(t, "Resize((9, 7))"), prefixOf(t, "RandomResizedCrop(9)")
	if RecipeOf([]*transform.Prefix{none, none}) != nil {
		t.Error("a recipe of nothing")
	}
	of := func(p ...*transform.Prefix) cache.Recipe { return RecipeOf(p) }
	for i, c := range []struct {
		a, b cache.Recipe
		same bool
	}{
		{of(a), of(again), true},
		{of(a), of(b), false},
		{of(a, none), of(again, none), true},
		{of(a, none), of(none, a), false},
		{of(a, none), of(a, b), false},
		{of(a), of(a, none), false},
	} {
		if c.a.Same(c.b) != c.same || c.b.Same(c.a) != c.same {
			t.Errorf("%d: %v", i, !c.same)
		}
	}
	if n := of(a, none, b).Bytes(); n != 9*8*3+9*7*3 {
		t.Errorf("%d bytes", n)
	}
	index := filesOf(t, []files{{".jpg", 300}})
	if _, beside := WithForms(index, of(a)); beside != 300*9*8*3 {
		t.Errorf("%d bytes beside the files", beside)
	}
}

// TestConverterByRecipe: the converter makes forms by the recipe that it is given at the time.
func TestConverterByRecipe(t *testing.T) {
	c := &converter{index: filesOf(t, nil)}
	defer c.close()
	ways := []cache.Way{
		{Recipe: RecipeOf([]*transform.Prefix{prefixOf(t, "Resize((3, 4))")})},
		{},
		{Recipe: RecipeOf([]*transform.Prefix{prefixOf(t, "Resize((2, 4))")}), Ample: true},
	}
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewNRGBA(image.Rect(0, 0, 30, 20))); err != nil {
		t.Fatal(err)
	}
	photo := file.Bytes()
	made := make([][]byte, len(ways))
	for range 2 {
		for i, way := range ways {
			form, kind, ok := c.Convert(nil, 0, photo, way)
			want := forms.Transformed
			if way.Recipe == nil {
				want = forms.Decoded
			}
			if !ok || forms.Kind(kind) != want || int64(len(form)) != c.Size(0, photo, way) {
				t.Errorf("%d: kind %d of %d bytes, at most %d: %v", i, kind, len(form),
					c.Size(0, photo, way), ok)
			}
			made[i] = form
		}
	}
	for i, form := range made {
		for j, way := range ways {
			if c.Current(form, way) != (i == j) {
				t.Errorf("the form of %d stays for %d: %v", i, j, i != j)
			}
		}
		sample, ok := c.Restore(nil, form, uint8(forms.Transformed))
		if !ok || string(sample) != string(photo) {
			t.Errorf("%d: another file", i)
		}
	}
}
