package job

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/source"
)

// classes is a dataset whose storage classes stop.
type classes []report.Class

func (c *classes) Reports() []report.Class { return *c }

// TestWarningsOfUnusableSamples checks that a process is warned of the first sample that is left
// out or replaced, and again when there are ten times as many, but not of those that end its
// stream.
func TestWarningsOfUnusableSamples(t *testing.T) {
	for policy, does := range map[string]string{
		"skip": "left out of its batch", "substitute": "replaced by another one", "raise": "",
	} {
		w := start(t, func(_ *Config, p *Parts) { p.Unusable = NewUnusable(policy) })
		r := w.join(t, 0)
		if got := r.Warnings(true); got != nil {
			t.Errorf("%s: %q, before there is anything", policy, got)
		}
		var got []string
		for id := range 12 {
			w.p.Unusable.Report(100+id, "c.jpg", "no image") // which the process has reported
			_ = w.p.Unusable.Forgive(id, &source.SampleError{
				ID: id, Path: "a\n/b.jpg", Kind: errors.New("truncated"),
			}, true)
			for range 2 {
				got = append(got, r.Warnings(true)...)
			}
		}
		if policy == "raise" {
			if got != nil {
				t.Errorf("%q", got)
			}
			r.Close()
			continue
		}
		want := does + ` (on_error="` + policy + `"); sample 0, `
		if len(got) != 2 || !strings.HasPrefix(got[0], "1 sample cannot be used so far, and it ") ||
			!strings.HasPrefix(got[1], "10 samples cannot be used so far, and each ") ||
			!strings.Contains(got[0], want) || !strings.Contains(got[1], want) ||
			strings.Contains(got[0], "\n") || !strings.Contains(got[0], ": truncated; ") {
			t.Errorf("%s: %q", policy, got)
		}
		r.Close()
	}
}

// TestWarningsOfStoppedClasses checks that a process is warned once of each class that keeps no
// more samples, and that the classes are checked once per second and at the end.
func TestWarningsOfStoppedClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &classes{{Name: "memory"}, {Name: "file"}}
		w := start(t, func(_ *Config, p *Parts) { p.Dataset = c })
		r := w.join(t, 0)
		defer r.Close()
		if got := r.Warnings(false); got != nil {
			t.Errorf("%q, before there is anything", got)
		}
		(*c)[1].Stopped = "no space left on device"
		if got := r.Warnings(false); got != nil {
			t.Errorf("%q, within a second", got)
		}
		time.Sleep(checkEvery + 1)
		if got := r.Warnings(false); len(got) != 1 ||
			!strings.HasPrefix(got[0], "storage class file keeps no more samples") ||
			!strings.HasSuffix(got[0], "no space left on device") {
			t.Errorf("%q, after a second", got)
		}
		(*c)[0].Stopped = "read-only"
		if got := r.Warnings(true); len(got) != 1 || !strings.Contains(got[0], "class memory") {
			t.Errorf("%q, at the end", got)
		}
		(*c)[1].Path, (*c)[1].Writing = "/cache", 5
		(*c)[1].Hangs = &report.Hangs{Times: 1, Seconds: 3, Age: 900}
		if got := r.Warnings(true); len(got) != 1 ||
			!strings.HasPrefix(got[0], "A write to the cache directory /cache has not returned for 5 s") {
			t.Errorf("%q, when a write hangs", got)
		}
		if got := r.Warnings(true); got != nil {
			t.Errorf("%q, again", got)
		}
	})
}

func (*classes) Requests() *report.Requests { return nil }
