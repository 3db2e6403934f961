package job

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/stats"
)

// classes is a dataset whose storage classes stop.
type classes []stats.Class

func (c *classes) Reports() []stats.Class { return *c }

// TestNewsOfUnusableSamples checks that a process is told at the first sample that is left out or
// replaced, and again when there are ten times as many, but not of those that end its stream.
func TestNewsOfUnusableSamples(t *testing.T) {
	for policy, does := range map[string]string{
		"skip": "left out of its batch", "substitute": "replaced by another one", "raise": "",
	} {
		w := start(t, func(_ *Config, p *Parts) { p.Unusable = NewUnusable(policy) })
		r := w.join(t, 0)
		if said := r.News(true); said != nil {
			t.Errorf("%s: %q, before there is anything", policy, said)
		}
		var said []string
		for id := range 12 {
			w.p.Unusable.Report(100+id, "c.jpg", "no image") // of which the process has told
			_ = w.p.Unusable.Forgive(id, &dataset.SampleError{
				ID: id, Path: "a\n/b.jpg", Kind: errors.New("truncated"),
			}, true)
			for range 2 {
				said = append(said, r.News(true)...)
			}
		}
		if policy == "raise" {
			if said != nil {
				t.Errorf("%q", said)
			}
			r.Close()
			continue
		}
		want := does + ` (on_error="` + policy + `"); sample 0, `
		if len(said) != 2 || !strings.HasPrefix(said[0], "1 sample cannot be used so far, and it ") ||
			!strings.HasPrefix(said[1], "10 samples cannot be used so far, and each ") ||
			!strings.Contains(said[0], want) || !strings.Contains(said[1], want) ||
			strings.Contains(said[0], "\n") || !strings.Contains(said[0], ": truncated; ") {
			t.Errorf("%s: %q", policy, said)
		}
		r.Close()
	}
}

// TestNewsOfStoppedClasses checks that a process is told once of each class that keeps no more
// samples, and that the classes are looked at once per second and at the end.
func TestNewsOfStoppedClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &classes{{Name: "memory"}, {Name: "file"}}
		w := start(t, func(_ *Config, p *Parts) { p.Dataset = c })
		r := w.join(t, 0)
		defer r.Close()
		if said := r.News(false); said != nil {
			t.Errorf("%q, before there is anything", said)
		}
		(*c)[1].Stopped = "no space left on device"
		if said := r.News(false); said != nil {
			t.Errorf("%q, within a second", said)
		}
		time.Sleep(lookAgain + 1)
		if said := r.News(false); len(said) != 1 ||
			!strings.HasPrefix(said[0], "storage class file keeps no more samples") ||
			!strings.HasSuffix(said[0], "no space left on device") {
			t.Errorf("%q, after a second", said)
		}
		(*c)[0].Stopped = "read-only"
		if said := r.News(true); len(said) != 1 || !strings.Contains(said[0], "class memory") {
			t.Errorf("%q, at the end", said)
		}
		if said := r.News(true); said != nil {
			t.Errorf("%q, again", said)
		}
	})
}
