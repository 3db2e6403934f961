package scenario_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/study/scenario"
)

// TestJobs: several jobs, groups and cores come from the file; without them there is one job, with
// a core for each thread.
func TestJobs(t *testing.T) {
	s, err := read(t, small)
	if err != nil {
		t.Fatal(err)
	}
	if s.Jobs != 1 || s.Share || s.Env.Processors != (model.Processors{}) {
		t.Errorf("got %d jobs, share %v, %+v", s.Jobs, s.Share, s.Env.Processors)
	}
	s, err = read(t, small, "profile=model", "jobs=8", "share=true", "cores=24", "hyperthreads=48")
	if err != nil {
		t.Fatal(err)
	}
	job, err := s.Job()
	if err != nil {
		t.Fatal(err)
	}
	if job.Jobs != 8 || !job.Share ||
		job.Env.Processors != (model.Processors{Cores: 24, Hyperthreads: 48}) {
		t.Errorf("got %+v", job)
	}
	if job.Order == nil {
		t.Error("a group reads in one order, which is not drawn once for all simulations")
	}
	s, err = read(t, small, "profile=model", "jobs=8")
	if err != nil {
		t.Fatal(err)
	}
	if job, err = s.Job(); err != nil || job.Order != nil {
		t.Errorf("8 jobs for themselves read in one order: %v, %v", job, err)
	}
	one, err := read(t, small, "profile=model")
	if err != nil || one.RunBytes(true) >= s.RunBytes(true) {
		t.Errorf("8 jobs need no more memory than one: %v", err)
	}
}

// TestForms: forms are JPEGs' unless a size is given, and sent if they are small enough.
func TestForms(t *testing.T) {
	for _, test := range []struct {
		set  []string
		want model.Forms
	}{
		{[]string{}, model.Forms{}},
		{[]string{"forms=0.5"}, model.Forms{Time: 0.5, Size: 1.12, Sent: true}},
		{[]string{"forms=1", "forms_size=1"}, model.Forms{Time: 1, Size: 1, Sent: true}},
		{
			[]string{"forms=0.5", "forms_sent=false"}, model.Forms{Time: 0.5, Size: 1.12},
		},
		{[]string{"forms=0.5", "forms_size=1.5"}, model.Forms{Time: 0.5, Size: 1.5, Sent: true}},
		{[]string{"forms=0.2", "forms_size=3.8"}, model.Forms{Time: 0.2, Size: 3.8}},
		{
			[]string{"forms=0.2", "forms_size=20", "forms_sent=false"},
			model.Forms{Time: 0.2, Size: 20},
		},
	} {
		s, err := read(t, small, append(test.set, "profile=model")...)
		if err != nil {
			t.Errorf("%s: %v", test.set, err)
			continue
		}
		if job, err := s.Job(); err != nil || job.Forms != test.want {
			t.Errorf("%s: got %+v, %v, want %+v", test.set, job.Forms, err, test.want)
		}
	}
}

// TestJobsRefused: what jobs and cores cannot be is refused, with the key.
func TestJobsRefused(t *testing.T) {
	for _, test := range []struct {
		set  []string
		want []string
	}{
		{[]string{"profile=model", "jobs=0"}, []string{"job.jobs is 0", "1 to 1024"}},
		{[]string{"profile=model", "jobs=1.5"}, []string{"job.jobs is 1.5", "a whole number"}},
		{[]string{"profile=model", "jobs=9999"}, []string{"job.jobs is 9999", "1 to 1024"}},
		{
			[]string{"profile=model", "jobs=1000", "nodes=100", "global_batch_size=100"},
			[]string{"job.jobs is 1000: with 100 nodes more than 65535 ranks", "1 to 655"},
		},
		{[]string{"profile=model", "share=yes"}, []string{`job.share is "yes"`, "true or false"}},
		{[]string{"profile=model", "share=true"}, []string{"job.share is true", "2 jobs or more"}},
		{[]string{"profile=model", "cores=0"}, []string{"environment.cores is 0", "from 1"}},
		{[]string{"profile=model", "cores=many"}, []string{`environment.cores is "many"`}},
		{
			[]string{"profile=model", "hyperthreads=8"},
			[]string{"environment.hyperthreads is 8: environment.cores is missing"},
		},
		{
			[]string{"profile=model", "cores=16", "hyperthreads=8"},
			[]string{"environment.hyperthreads is 8: fewer than environment.cores = 16", "16 or more"},
		},
		{[]string{"jobs=2"}, []string{`job.jobs is 2: profile "thesis" has one job only`}},
		{
			[]string{"cores=2"},
			[]string{`environment.cores is 2: profile "thesis" has threads only`},
		},
		{[]string{"profile=model", "forms=0"}, []string{"job.forms is 0", "above 0, at most 1"}},
		{[]string{"profile=model", "forms=1.5"}, []string{"job.forms is 1.5", "at most 1"}},
		{[]string{"forms=0.5"}, []string{`job.forms is 0.5: profile "thesis" has no forms`}},
		{
			[]string{"profile=model", "forms_size=2"},
			[]string{"job.forms_size is 2: job.forms is missing", "forms together with forms_size"},
		},
		{
			[]string{"profile=model", "forms_sent=true"},
			[]string{"job.forms_sent is true: job.forms is missing"},
		},
		{
			[]string{"profile=model", "forms=0.5", "forms_size=0.9"},
			[]string{"job.forms_size is 0.9", "a number from 1 to 63"},
		},
		{
			[]string{"profile=model", "forms=0.5", "forms_size=64"},
			[]string{"job.forms_size is 64", "a number from 1 to 63"},
		},
		{
			[]string{"profile=model", "forms=0.5", "forms_size=large"},
			[]string{`job.forms_size is "large"`, "a number from 1 to 63"},
		},
		{
			[]string{"profile=model", "forms=0.5", "forms_sent=yes"},
			[]string{`job.forms_sent is "yes"`, "true or false"},
		},
		{
			[]string{"profile=model", "forms=0.2", "forms_size=3.8", "forms_sent=true"},
			[]string{
				"job.forms_sent is true", "more than 1.5 times their size", "job.forms_size = 3.8",
				"false, or forms_size up to 1.5",
			},
		},
		{[]string{"job.job=2"}, []string{`job.job is 2: unknown key`, `did you mean "jobs"?`}},
	} {
		_, err := read(t, small, test.set...)
		var faults scenario.Faults
		if !errors.As(err, &faults) {
			t.Errorf("%s: got %v, want faults", test.set, err)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the message lacks %q:\n%v", test.set, want, err)
			}
		}
	}
}
