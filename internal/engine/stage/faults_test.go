package stage

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/source"
)

func TestRaiseNamesTheSample(t *testing.T) {
	var back atomic.Bool
	o := plain(8, 1)
	o.hook = func(_ context.Context, id int) error {
		if id == 5 && !back.Load() {
			return &source.SampleError{ID: id, Path: "/source/5", Kind: source.ErrMissing}
		}
		return nil
	}
	g := newRig(t, o)
	defer g.close()
	out, err := g.run(g.ranks[0], step{0, 0}, 0, 0)
	var sample *source.SampleError
	if !errors.As(err, &sample) || sample.ID != 5 || sample.Path != "/source/5" ||
		!errors.Is(err, source.ErrMissing) {
		t.Fatalf("error %v, want sample 5 to be named missing", err)
	}
	if got := stream(out); !slices.Equal(got, []int{0, 1, 2, 3}) {
		t.Errorf("delivered %v before the error, want all batches before it", got)
	}
	list := g.faults.List()
	if len(list) != 1 || list[0].Sample != 5 || list[0].Count != 1 ||
		list[0].Policy != string(Raise) {
		t.Errorf("faults %+v", list)
	}
	// The file is back: the next try succeeds.
	back.Store(true)
	out, err = g.run(g.ranks[0], step{0, 2}, 0, 0)
	if err != nil || !slices.Equal(stream(out), []int{4, 5, 6, 7}) {
		t.Errorf("after the file came back: %v, %v", stream(out), err)
	}
}

// TestLeftOutSamplesAreNotTriedAgain checks skip and substitute over two epochs: a decision is kept
// without another attempt, and the audit accounts for what is missing.
func TestLeftOutSamplesAreNotTriedAgain(t *testing.T) {
	for _, c := range []struct {
		policy  Policy
		epoch   []int
		missing []int // in the audit's sum
		added   []int
	}{
		{Skip, []int{0, 1, 2, 5, 6, 7}, []int{3, 4}, nil},
		{Substitute, []int{0, 1, 2, 5, 5, 5, 6, 7}, []int{3, 4}, []int{5, 5}},
	} {
		t.Run(string(c.policy), func(t *testing.T) {
			o := plain(8, 2)
			o.policy = c.policy
			g := newRig(t, o)
			defer g.close()
			g.source.Bad[3], g.source.Bad[4] = true, true
			out, err := g.run(g.ranks[0], step{0, 0}, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			if want := slices.Concat(c.epoch, c.epoch); !slices.Equal(stream(out), want) {
				t.Errorf("delivered %v, want %v", stream(out), want)
			}
			for _, part := range out {
				for _, s := range part {
					if want := g.seen(s.id); !equal([]seen{s}, []seen{want}) {
						t.Errorf("sample %d has wrong content", s.id)
					}
				}
			}
			for _, f := range g.faults.List() {
				if f.Count < 2 || f.Policy != string(c.policy) || f.Path == "" || f.Reason == "" {
					t.Errorf("fault %+v, want it counted in both epochs", f)
				}
			}
			if n := g.source.Reads[3].Load(); n != 1 {
				t.Errorf("the unreadable sample was tried %d times, want 1", n)
			}
			for epoch := range 2 {
				var want uint64
				for _, id := range c.missing {
					want += access.Mix(epoch, id)
				}
				for _, id := range c.added {
					want -= access.Mix(epoch, id)
				}
				samples, missing := g.ranks[0].ledger.Delivered(epoch)
				if missing != want || int(samples) != len(c.epoch) {
					t.Errorf("epoch %d: %d samples and %x missing, want %d and %x", epoch, samples,
						missing, len(c.epoch), want)
				}
				all := report.Amount{Samples: int64(len(c.epoch)), Bytes: 100 * int64(len(c.epoch))}
				if reads := g.ranks[0].ledger.Epochs()[epoch].Reads; len(reads) != 1 ||
					reads["source"] != all {
					t.Errorf("epoch %d: read %+v, want %+v from the source", epoch, reads, all)
				}
			}
		})
	}
}

// TestAuditCountsTheLastPass checks that an epoch that is begun again is counted again.
func TestAuditCountsTheLastPass(t *testing.T) {
	o := plain(8, 2)
	o.policy = Skip
	g := newRig(t, o)
	defer g.close()
	g.source.Bad[3] = true
	for range 2 {
		if _, err := g.run(g.ranks[0], step{0, 0}, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	for epoch := range 2 {
		samples, missing := g.ranks[0].ledger.Delivered(epoch)
		if samples != 7 || missing != access.Mix(epoch, 3) {
			t.Errorf("epoch %d: %d samples, %x missing; want 7 and %x", epoch, samples, missing,
				access.Mix(epoch, 3))
		}
	}
	if e := g.ranks[0].ledger.Epochs()[0]; e.Samples != 14 {
		t.Errorf("the report has %d samples of epoch 0, want all 14 that were delivered",
			e.Samples)
	}
}

func TestNothingLeftToSubstitute(t *testing.T) {
	o := plain(4, 1)
	o.policy = Substitute
	g := newRig(t, o)
	defer g.close()
	for id := range 4 {
		g.source.Bad[id] = true
	}
	_, err := g.run(g.ranks[0], step{0, 0}, 0, 0)
	if !errors.Is(err, source.ErrMissing) ||
		!strings.Contains(err.Error(), "no readable sample is left") {
		t.Errorf("error %v", err)
	}
}

// TestUnavailableIsRaised checks that samples are not left out because the source does not answer.
func TestUnavailableIsRaised(t *testing.T) {
	for _, policy := range []Policy{Raise, Skip, Substitute} {
		o := plain(4, 1)
		o.policy = policy
		o.hook = func(_ context.Context, id int) error {
			if id == 1 {
				return &source.SampleError{ID: id, Path: "p", Kind: source.ErrUnavailable}
			}
			return nil
		}
		g := newRig(t, o)
		if _, err := g.run(g.ranks[0], step{0, 0}, 0, 0); !errors.Is(err, source.ErrUnavailable) {
			t.Errorf("%s: error %v, want that the source did not answer", policy, err)
		}
		if list := g.faults.List(); len(list) > 0 {
			t.Errorf("%s: faults %+v, want none", policy, list)
		}
		g.close()
	}
}

// TestLeftOutSampleStaysOut checks that a sample that was left out is not delivered later because a
// remote read has brought it into a class.
func TestLeftOutSampleStaysOut(t *testing.T) {
	o := plain(4, 2)
	o.policy, o.memory = Skip, 400
	var there atomic.Bool // other samples are read while it changes
	o.hook = func(_ context.Context, id int) error {
		if id == 2 && !there.Load() {
			return &source.SampleError{ID: id, Path: "p", Kind: source.ErrMissing}
		}
		return nil
	}
	g := newRig(t, o)
	defer g.close()
	first, err := g.run(g.ranks[0], step{0, 0}, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	there.Store(true)
	if err := g.serve(2); err != nil {
		t.Fatal(err)
	}
	if _, ok := g.cache.Locate(2); !ok {
		t.Fatal("the sample is not in the class")
	}
	second, err := g.run(g.ranks[0], step{1, 0}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := stream(first), stream(second); !slices.Equal(a, []int{0, 1, 3}) ||
		!slices.Equal(b, a) {
		t.Errorf("delivered %v, then %v; want both without sample 2", a, b)
	}
}

// TestLeftSamplesHaveNoFields checks that a sample that cannot be read is delivered at its place
// without its bytes, and stays so, and that nothing is counted as read for it.
func TestLeftSamplesHaveNoFields(t *testing.T) {
	o := plain(4, 2)
	o.policy, o.memory = Leave, 400
	o.hook = func(_ context.Context, id int) error {
		if id == 2 {
			return &source.SampleError{ID: id, Path: "p", Kind: source.ErrMissing}
		}
		return nil
	}
	g := newRig(t, o)
	defer g.close()
	for epoch := range 2 {
		out, err := g.run(g.ranks[0], step{epoch, 0}, 2, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := stream(out); !slices.Equal(got, []int{0, 1, 2, 3}) {
			t.Errorf("epoch %d: delivered %v", epoch, got)
		}
		for _, samples := range out {
			for _, s := range samples {
				if (s.data == nil) != (s.id == 2) {
					t.Errorf("epoch %d: sample %d has %d bytes", epoch, s.id, len(s.data))
				}
			}
		}
		if samples, missing := g.ranks[0].ledger.Delivered(epoch); samples != 4 || missing != 0 {
			t.Errorf("epoch %d: %d samples, missing %x", epoch, samples, missing)
		}
	}
	if text, _ := g.faults.Warning(0); !strings.Contains(text, "the process opens the files itself") {
		t.Errorf("the warning is %q", text)
	}
}

// TestFailedBatchFreesStandInsSegment checks that the segment allocated for a stand-in is freed
// when its batch fails.
func TestFailedBatchFreesStandInsSegment(t *testing.T) {
	o := plain(4, 1)
	o.policy, o.sizes = Substitute, []int{100, 5000, 100, 100}
	fail := errors.New("broken")
	o.hook = func(_ context.Context, id int) error {
		if id == 1 { // by then the stand-in's segment is allocated
			return fail
		}
		return nil
	}
	g := newRig(t, o)
	g.source.Bad[0] = true // its memory is too small for sample 1
	if _, err := g.run(g.ranks[0], step{0, 0}, 0, 0); !errors.Is(err, fail) {
		t.Fatalf("error %v", err)
	}
	g.ranks[0].stager.reap.Wait()
	if ring, extra := g.ranks[0].buffer.Usage(); ring != 0 || extra != 0 {
		t.Errorf("%d bytes of the ring and %d outside it are still in use", ring, extra)
	}
	g.close()
}

// TestLargerStandInGetsItsOwnSegment checks that a stand-in that is larger than the sample that it
// replaces is delivered completely, and that the process returns its segment like any other.
func TestLargerStandInGetsItsOwnSegment(t *testing.T) {
	o := plain(4, 1)
	// The second batch is further on in the ring.
	o.policy, o.sizes = Substitute, []int{100, 100, 100, 5000}
	g := newRig(t, o)
	defer g.close()
	g.source.Bad[2] = true
	out, err := g.run(g.ranks[0], step{0, 0}, 0, 0)
	if err != nil || !equal(out[step{0, 1}], []seen{g.seen(3), g.seen(3)}) {
		t.Errorf("got %v, %v", ids(out[step{0, 1}]), err)
	}
	if ring, extra := g.ranks[0].buffer.Usage(); ring != 0 || extra != 0 {
		t.Errorf("everything was returned, but %d bytes of the ring and %d outside it are in use",
			ring, extra)
	}
}

// TestStandInAfterALargerOneThatFails checks that a stand-in is delivered from the right place if a
// larger one before it, for which a segment was allocated, could not be read.
func TestStandInAfterALargerOneThatFails(t *testing.T) {
	o := plain(4, 1)
	o.policy, o.sizes = Substitute, []int{100, 5000, 100, 100}
	g := newRig(t, o)
	defer g.close()
	g.source.Bad[0], g.source.Bad[1] = true, true
	out, err := g.run(g.ranks[0], step{0, 0}, 0, 0)
	if err != nil || !equal(out[step{0, 0}], []seen{g.seen(2), g.seen(2)}) {
		t.Errorf("got %v, %v", ids(out[step{0, 0}]), err)
	}
	if ring, extra := g.ranks[0].buffer.Usage(); ring != 0 || extra != 0 {
		t.Errorf("everything was returned, but %d bytes of the ring and %d outside it are in use",
			ring, extra)
	}
}

// TestStandInIsOfTheEpoch checks that only samples of the epoch's subset stand in for others.
func TestStandInIsOfTheEpoch(t *testing.T) {
	o := plain(8, 1)
	o.policy, o.spec.Subset = Substitute, []int32{0, 2, 5, 6}
	g := newRig(t, o)
	defer g.close()
	g.source.Bad[2] = true
	out, err := g.run(g.ranks[0], step{0, 0}, 0, 0)
	if err != nil || !slices.Equal(stream(out), []int{0, 5, 5, 6}) {
		t.Errorf("delivered %v, %v", stream(out), err)
	}
}

// TestReportedSampleIsNotReadAgain checks that a sample that a process has reported as undecodable
// is not read again, even under policy raise.
func TestReportedSampleIsNotReadAgain(t *testing.T) {
	g := newRig(t, plain(4, 1))
	defer g.close()
	if policy := g.faults.Report(3, "/source/3", "not an image"); policy != Raise {
		t.Errorf("the policy is %q", policy)
	}
	for range 2 {
		out, err := g.run(g.ranks[0], step{0, 0}, 0, 0)
		var sample *source.SampleError
		if !errors.As(err, &sample) || sample.ID != 3 || !errors.Is(err, source.ErrPython) ||
			!slices.Equal(stream(out), []int{0, 1}) {
			t.Errorf("delivered %v, %v", stream(out), err)
		}
	}
	if n := g.source.Reads[3].Load(); n != 0 {
		t.Errorf("the sample was read %d times", n)
	}
}

// TestKnownFaultsDoNotStandIn checks that a sample that was left out is not read again to stand in
// for another one.
func TestKnownFaultsDoNotStandIn(t *testing.T) {
	o := plain(8, 2)
	o.policy, o.threads = Substitute, 1
	g := newRig(t, o)
	defer g.close()
	g.source.Bad[3], g.source.Bad[4] = true, true
	if _, err := g.run(g.ranks[0], step{0, 0}, 0, 0); err != nil {
		t.Fatal(err)
	}
	for _, id := range []int{3, 4} {
		if n := g.source.Reads[id].Load(); n != 1 {
			t.Errorf("sample %d was read %d times, want 1", id, n)
		}
	}
}

// TestUnavailableStandInIsRaised checks that stand-ins are not left out because the source does not
// answer.
func TestUnavailableStandInIsRaised(t *testing.T) {
	o := plain(4, 1)
	o.policy = Substitute
	o.hook = func(_ context.Context, id int) error {
		if id == 2 {
			return &source.SampleError{ID: id, Path: "p", Kind: source.ErrUnavailable}
		}
		return nil
	}
	g := newRig(t, o)
	defer g.close()
	g.source.Bad[1] = true
	if out, err := g.run(g.ranks[0], step{0, 0}, 0, 0); !errors.Is(err, source.ErrUnavailable) ||
		len(out) > 0 {
		t.Errorf("%v after %v", err, stream(out))
	}
}

// TestFaultsAreToldAndHeard checks that a node shares the faults that it has found, and none that
// it has received, and that samples whose faults it has received are not read.
func TestFaultsAreToldAndHeard(t *testing.T) {
	o := plain(4, 1)
	o.policy = Skip
	g := newRig(t, o)
	defer g.close()
	heard := report.Fault{Sample: 2, Path: "/there/2", Reason: "the file is missing"}
	for range 2 {
		g.faults.Hear([]report.Fault{heard})
	}
	g.source.Bad[1] = true
	if out, err := g.run(g.ranks[0], step{0, 0}, 0, 0); err != nil ||
		!slices.Equal(stream(out), []int{0, 3}) {
		t.Errorf("delivered %v, %v", stream(out), err)
	}
	if n := g.source.Reads[2].Load(); n != 0 {
		t.Errorf("sample 2 was read %d times", n)
	}
	list := g.faults.List()
	if len(list) != 2 || list[1].Path != heard.Path || list[1].Count != 1 ||
		list[1].Reason != "another node could not use the file: the file is missing" {
		t.Errorf("faults %+v", list)
	}
	own, upTo, _ := g.faults.Own(0)
	if upTo != 1 || len(own) != 1 || own[0].Sample != 1 || own[0].Reason != list[0].Reason {
		t.Errorf("told are %+v up to %d", own, upTo)
	}
}
