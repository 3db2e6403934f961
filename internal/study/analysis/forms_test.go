package analysis

import (
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/remedy"
)

// forms is a job that prepares 400 samples/s with all in memory, whose forms take half of that
// time.
func forms() *Measured {
	m := job()
	m.Loader.CacheMB, m.Room = 1000, 3_000_000_000
	m.Forms = &model.Forms{Time: 0.5, Size: 1.1, Sent: true}
	return m
}

// TestFormsOfSamples: with 4/3 of the memory, preparation is twice as fast, which is advised first.
func TestFormsOfSamples(t *testing.T) {
	r := analyze(t, forms(), Options{})
	if f := r.Formed; f == nil || !near(f.MB, 4000./3, 1e-6) || !f.Fits || f.Has ||
		!near(f.Prepare, 800, 1e-6) || !near(f.AsRead, 400, 1e-6) {
		t.Fatalf("%+v", f)
	}
	first := r.First()
	if first == nil || !first.Forms || !strings.HasPrefix(first.Text, "memory=1.2 GiB for images") ||
		!near(first.Epoch, 12.5, 1e-6) || !near(first.Simulated, 12.5, 0.03) ||
		!near(first.Times, 2, 0.03) || first.Limit != remedy.Preprocessing {
		t.Errorf("%+v", first)
	}
	if r.Now.Samples != 400 || !near(r.Now.Later, 25, 0.02) {
		t.Errorf("as it is: %+v", r.Now)
	}
}

// TestFormsThatAreNotAdvised: there is no memory for all, the job has it, or preparation does not
// limit; what they would take is said all the same. Pixels take what they take.
func TestFormsThatAreNotAdvised(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(*Measured)
		fits, has bool
		mb        float64
	}{
		"no memory": {func(m *Measured) { m.Room = 1_300_000_000 }, false, false, 4000. / 3},
		"the job has it": {
			func(m *Measured) { m.Loader.CacheMB = 1400 }, true, true, 4000. / 3,
		},
		"training": {func(m *Measured) { m.Training = rate(300) }, true, false, 4000. / 3},
		"pixels":   {func(m *Measured) { m.Forms.Size = 3 }, false, false, 3150},
	} {
		m := forms()
		c.change(m)
		r := analyze(t, m, Options{})
		if f := r.Formed; f.Fits != c.fits || f.Has != c.has || !near(f.MB, c.mb, 1e-6) ||
			!near(f.Prepare, 800, 1e-6) {
			t.Errorf("%s: %+v", name, f)
		}
		for _, o := range r.Remedies {
			if o.Forms {
				t.Errorf("%s: %+v is advised", name, o)
			}
		}
	}
	m := forms()
	m.Forms = nil
	if r := analyze(t, m, Options{}); r.Formed != nil {
		t.Errorf("of no forms: %+v", r.Formed)
	}
}

// TestFormsInThePlaceOfTorch: both are advised, hdmlp's loader with and without forms, whose rates
// are hdmlp's.
func TestFormsInThePlaceOfTorch(t *testing.T) {
	m := forms()
	m.Loader.Name, m.Loader.CacheMB = Torch, 1000
	m.Preparation, m.Switched = points(map[int]float64{1: 50, 2: 100}), m.Preparation
	r := analyze(t, m, Options{})
	var plain, formed *Option
	for i := range r.Remedies {
		switch o := &r.Remedies[i]; {
		case o.Forms:
			formed = o
		case o.Switch && plain == nil:
			plain = o
		}
	}
	if plain == nil || formed == nil || !formed.Switch || !near(plain.Epoch, 25, 0.01) ||
		!near(formed.Epoch, 12.5, 0.01) || !strings.Contains(formed.Text, "loader, with memory=") {
		t.Errorf("%+v and %+v", plain, formed)
	}
	if f := r.Formed; !near(f.AsRead, 400, 1e-6) || f.Has {
		t.Errorf("%+v", f)
	}
}

// TestImpossibleFormsOfSamples: they are refused by their keys.
func TestImpossibleFormsOfSamples(t *testing.T) {
	for _, f := range []model.Forms{{Time: 2, Size: 1}, {Time: 0, Size: 1}, {Time: 1, Size: 0.5}} {
		m := forms()
		m.Forms = &f
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), "forms.") {
			t.Errorf("%+v: %v", f, err)
		}
	}
}
