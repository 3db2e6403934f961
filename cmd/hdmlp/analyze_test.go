package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/study/analysis"
	"github.com/hdmlp/hdmlp/internal/study/instrument"
	"github.com/hdmlp/hdmlp/internal/study/measure"
	"github.com/hdmlp/hdmlp/internal/study/measure/survey"
)

func TestWhatAScriptDidIsJudged(t *testing.T) {
	rank := func(iterations int, ended bool) map[int]*instrument.Rank {
		r := &instrument.Rank{Ended: ended, AsIs: make([]instrument.Iteration, iterations)}
		return map[int]*instrument.Rank{0: r}
	}
	for _, test := range []struct {
		name   string
		record instrument.Record
		status int
		code   int    // of hdmlp; 0: there is something to conclude from
		cut    bool   // not everything was measured
		words  string // of the error
	}{
		{"all", instrument.Record{Pythons: 1, Ranks: rank(20, true)}, 0, 0, false, ""},
		{"early", instrument.Record{Pythons: 1, Ranks: rank(20, false)}, 3, 0, true, "status 3"},
		{"too early", instrument.Record{Pythons: 1, Ranks: rank(0, false)}, 0, 1, false, "too few"},
		{"no loader", instrument.Record{Pythons: 1}, 0, 2, false, "iterated no loader"},
		{"failed", instrument.Record{Pythons: 1}, 5, 1, false, "status 5 before it iterated"},
		{"no Python", instrument.Record{}, 0, 2, false, "must start Python"},
		{
			"lost",
			instrument.Record{Pythons: 1, Ranks: rank(20, false), Lost: "gone"},
			0, 0, true, "gone",
		},
		{"lost at once", instrument.Record{Pythons: 1, Lost: "gone"}, 0, 1, false, "gone"},
		{
			"nodes",
			instrument.Record{Pythons: 1, Refused: "the job has 2 nodes"},
			0, 2, false,
			"the job has 2 nodes",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			cut, err := judge(&test.record, instrument.Exit{Status: test.status})
			code := 0
			if input := (inputError{}); errors.As(err, &input) {
				code = 2
			} else if err != nil {
				code = 1
			}
			if code != test.code || (cut != nil) != test.cut {
				t.Errorf("%d, %v: %v", code, cut, err)
			}
			if said := errors.Join(err, cut); said != nil && !strings.Contains(said.Error(), test.words) {
				t.Errorf("%v, want %q", said, test.words)
			}
		})
	}
}

func TestASurveyIsAddedToWhatAScriptMeasured(t *testing.T) {
	curve := func(mbps float64) measure.Curve {
		return measure.Curve{Size: 0.1, Points: []measure.Point{{
			Streams: 2, Rate: measure.Estimate{Median: mbps, Low: mbps, High: mbps, Certain: true},
		}}}
	}
	transforms := curve(5)
	s := &survey.Result{
		Source: []measure.Curve{curve(10)}, Transforms: &transforms,
		Classes: []survey.ClassResult{
			{Name: "memory", Read: []measure.Curve{curve(1), curve(1000)}},
			{Name: "file", Path: "/cache", Read: []measure.Curve{curve(500)}},
			{Name: "file", Path: "/full"},
		},
		Skipped: []survey.Skipped{
			{What: "network", Why: "one node"}, {What: "storage class", Why: "x"},
		},
	}
	for _, loader := range []string{analysis.HDMLP, analysis.Torch} {
		m := &analysis.Measured{Loader: analysis.Loader{Name: loader}}
		fill(m, s, true, 1)
		prepared := m.Preparation
		if loader == analysis.Torch {
			prepared = m.Switched
		}
		if len(prepared) != 1 || prepared[0].Median != 50 || m.Source[0].Median != 100 ||
			m.Memory.Median != 10000 || m.Directory.Median != 5000 || len(m.Notes) != 1 {
			t.Errorf("%s: %+v", loader, m)
		}
	}
	s.Sources = []survey.Total{{Nodes: 1, Point: curve(10).Points[0]}}
	s.Mean = 0.1
	m := new(analysis.Measured)
	if fill(m, s, true, 2); m.Source[0].Median != 50 || m.Sources[0].Median != 50 ||
		m.Memory.Median != 5000 || m.Directory.Median != 2500 {
		t.Errorf("of samples of two files: %+v", m)
	}
}

// TestCachesAreThoseOfTheConfiguration: a directory without a size has what is free on its disk,
// and a policy without copies has none.
func TestCachesAreThoseOfTheConfiguration(t *testing.T) {
	for policy, caches := range map[string]bool{"cooperative": true, "naive": false} {
		m := &analysis.Measured{Cores: 3, Loader: analysis.Loader{Name: analysis.HDMLP}}
		err := configured(m, &config.Config{Policy: policy, StorageClasses: []config.StorageClass{
			{Memory: true, Options: option.Values{store.CapacityKey: int64(5e6)}},
			{Options: option.Values{store.PathKey: t.TempDir()}},
		}})
		if l := m.Loader; err != nil || l.Workers != 3 || (l.CacheMB == 5) != caches ||
			(l.DirectoryMB > 0) != caches || (len(m.Notes) == 0) != caches {
			t.Errorf("%s: %+v, %v, %v", policy, l, m.Notes, err)
		}
	}
}

// TestTransformsThatCannotBeMeasuredAreNoted, and not those that there are none of.
func TestTransformsThatCannotBeMeasuredAreNoted(t *testing.T) {
	s := &survey.Result{Skipped: []survey.Skipped{{What: "transforms", Why: "no image"}}}
	for transforms, want := range map[bool][]analysis.Note{
		true: {{About: "preparation_by_hdmlp", Text: "no image"}}, false: nil,
	} {
		m := &analysis.Measured{Loader: analysis.Loader{Name: analysis.HDMLP}}
		if fill(m, s, transforms, 1); !slices.Equal(m.Notes, want) {
			t.Errorf("%v: %+v", transforms, m.Notes)
		}
	}
}

func TestTheDirectoryOfFilesIsTheDeepest(t *testing.T) {
	for _, test := range []struct {
		paths []string
		want  string
	}{
		{[]string{"/a/b/c"}, "/a/b"},
		{[]string{"/a/b/c/1", "/a/b/d/2"}, "/a/b"},
		{[]string{"/a/b/1", "/a/bc/2"}, "/a"},
		{[]string{"/a/1", "/b/2"}, "/"},
	} {
		if got := common(test.paths); got != test.want {
			t.Errorf("%q: %s, want %s", test.paths, got, test.want)
		}
	}
}

// TestAValidationHasTheCachesOfTheConfiguration, and not all that there is room for.
func TestAValidationHasTheCachesOfTheConfiguration(t *testing.T) {
	c := &config.Config{StorageClasses: []config.StorageClass{
		{Memory: true, Options: option.Values{store.CapacityKey: int64(5e6)}},
		{Options: option.Values{store.PathKey: t.TempDir(), store.CapacityKey: int64(7e6)}},
	}}
	m := &analysis.Measured{Room: 1e9, Loader: analysis.Loader{Name: analysis.Torch}}
	if with := tried(m, c); with.Room != 5e6 || with.Loader.DirectoryMB != 7 {
		t.Errorf("%+v", with)
	}
	m.Loader = analysis.Loader{Name: analysis.HDMLP, CacheMB: 3}
	if with := tried(m, c); with.Loader.CacheMB != 3 || with.Loader.DirectoryMB != 0 {
		t.Errorf("%+v", with)
	}
}

func TestWhatIsPredictedWithHDMLPsLoader(t *testing.T) {
	torch := &analysis.Measured{Loader: analysis.Loader{Name: analysis.Torch}}
	own := &analysis.Measured{Loader: analysis.Loader{Name: analysis.HDMLP}}
	for _, test := range []struct {
		m    *analysis.Measured
		r    analysis.Report
		want float64
	}{
		{own, analysis.Report{Now: analysis.Speed{Epoch: 3, Later: 2}}, 2},
		{own, analysis.Report{Now: analysis.Speed{Epoch: 3}}, 3},
		{torch, analysis.Report{Missing: []string{"source"}}, 0},
		{torch, analysis.Report{Remedies: []analysis.Option{
			{Epoch: 9}, {Switch: true, Epoch: 4, Simulated: 5},
		}}, 5},
	} {
		if got := predictedEpoch(test.m, &test.r); got != test.want {
			t.Errorf("%v, want %v", got, test.want)
		}
	}
}
