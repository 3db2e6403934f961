package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// mixing returns a change of a request to a job over three datasets, the samples 0 to 24, 25 to 29
// and 30 to 39.
func mixing(shuffle string, change func(*request.Mix)) func(*request.Open) {
	return func(m *request.Open) {
		mix := &request.Mix{
			Sizes: []int{25, 5, 10}, Weights: [][]uint64{{2, 1, 1}}, Entries: 16,
		}
		change(mix)
		m.Stream.Mix, m.Stream.GlobalBatch = mix, 4
		m.Stream.Shuffle = shuffle
	}
}

func asItIs(*request.Mix) {}

// demanded returns the bytes that the epochs of a mix need in all, each sample counted once.
func demanded(s *access.Stream, epochs int) (bytes int64) {
	seen := map[int32]bool{}
	for e := range epochs {
		for _, k := range s.Epoch(e).Samples() {
			if !seen[k] {
				seen[k] = true
				bytes += sampleSize
			}
		}
	}
	return bytes
}

// TestMixIsDeliveredAndReadOnce checks under each policy that keeps the order that ranks get the
// mix's samples, that the audit of an epoch is complete, and that nothing is read twice, or that no
// epoch needs.
func TestMixIsDeliveredAndReadOnce(t *testing.T) {
	for _, shuffle := range []string{"feistel", "none"} {
		for _, policy := range keepingOrder() {
			w := world{}
			n := w.node()
			change := []func(*request.Open){mixing(shuffle, asItIs), set("policy", policy.Name())}
			ranks := []*Rank{
				open(t, n, message(0, 2, change...)),
				open(t, n, message(1, 2, change...)),
			}
			if o := ranks[0].Opened(); o.Positions != 16 || o.Samples != samples || o.Steps != 4 ||
				o.RankSamples != 8 {
				t.Errorf("opened %+v", o)
			}
			stream := ranks[0].entry.open.Order.Stream()
			together(ranks, func(r *Rank) {
				r.Wait() // before policy naive reads anything
				for here, ids := range consume(t, r, at{}, end) {
					want := stream.Epoch(here.epoch).Batch(nil, r.Number(), here.step)
					if !slices.Equal(ids, want) {
						t.Errorf("%s: rank %d, %+v: samples %v, want %v", policy.Name(), r.Number(),
							here, ids, want)
					}
				}
				if a, err := r.Audit(t.Context(), 3); err != nil || !a.Complete {
					t.Errorf("%s: audit %+v, %v", policy.Name(), a, err)
				}
			})
			needed := demanded(stream, 4)
			r := ranks[0].Report()
			if r.Subset || r.Mixed != 3 || r.Positions != 16 || r.Needed != samples*sampleSize {
				t.Errorf("report %+v", r.Settings)
			}
			if policy.About().Copies != plan.NoCopies &&
				(r.Bound != needed || w.bytes.Load() != needed) {
				t.Errorf("%s, %s: %d bytes left the source, and the bound is %d; want %d",
					policy.Name(), shuffle, w.bytes.Load(), r.Bound, needed)
			}
			closeAll(ranks)
			w.close(t, n)
		}
	}
}

// TestMixIsReadOnceOverNodes checks a mix over several nodes, with a plan made at once and in the
// background: samples that come in several epochs, on several nodes, are read from the source once.
func TestMixIsReadOnceOverNodes(t *testing.T) {
	for _, background := range []bool{false, true} {
		c := newNodes(t, 2, background)
		ranks := c.open(mixing("feistel", asItIs), set("memory", "50000B"))
		want := demanded(ranks[0].entry.open.Order.Stream(), 4) / sampleSize
		c.epochs(ranks, 0, 4)
		if total, most := c.read(); int64(total) != want || most != 1 {
			t.Errorf("background=%v: the source was read %d times, one sample %d times; want %d, "+
				"and 1", background, total, most, want)
		}
		closeAll(ranks)
		c.close()
	}
}

// refused returns the error of opening a job.
func refused(t *testing.T, n *Node, m request.Open) error {
	t.Helper()
	_, err := n.Open(t.Context(), m, nil, func(request.Step) {})
	return err
}

// TestBadMixesAreRefused: what cannot be a mix, and what ranks disagree about.
func TestBadMixesAreRefused(t *testing.T) {
	var w world
	n := w.node()
	for _, c := range []struct {
		want    string
		shuffle string
		change  func(*request.Mix)
	}{
		{"Samples is 40", "feistel", func(m *request.Mix) { m.Sizes[0] = 24 }},
		{"add up to 0", "feistel", func(m *request.Mix) { m.Weights[0] = []uint64{0, 0, 0} }},
		{"has 2 weights", "feistel", func(m *request.Mix) { m.Weights[0] = []uint64{1, 1} }},
		{"has at most", "feistel", func(m *request.Mix) { m.Entries = 1 << 29 }},
		{"multiple of GlobalBatch", "none", func(m *request.Mix) { m.Entries, m.Single = 15, true }},
		{"has no such order", "torch", asItIs},
	} {
		err := refused(t, n, message(0, 2, mixing(c.shuffle, c.change)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	both := message(0, 2, mixing("none", asItIs), over(t, []int32{1, 2}))
	if err := refused(t, n, both); err == nil ||
		!strings.Contains(err.Error(), "stream.mix is set beside") {
		t.Errorf("a subset of a mix: %v", err)
	}
	rank := open(t, n, message(0, 2, mixing("feistel", asItIs)))
	other := mixing("feistel", func(m *request.Mix) { m.Weights[0][1] = 2 })
	if err := refused(t, n, message(1, 2, other)); err == nil ||
		!strings.Contains(err.Error(), "mix is 3 datasets") {
		t.Errorf("other weights: %v", err)
	}
	if err := rank.Check(access.MaxMixedEpoch+1, 0); err == nil {
		t.Error("an epoch beyond those of a mix is begun")
	}
	closeAll([]*Rank{rank})
	w.close(t, n)
}

// TestMixIsDealtByLocality: a policy that moves samples within global batches moves those of a mix,
// and the audits of all epochs are complete.
func TestMixIsDealtByLocality(t *testing.T) {
	c := newNodes(t, 2, false)
	ranks := c.open(mixing("feistel", asItIs), set("policy", policies.Locality{}.Name()),
		set("memory", "50000B"))
	stream := ranks[0].entry.open.Order.Stream()
	if stream.Order() == nil {
		t.Fatal("the policy has no order of its own")
	}
	c.epochs(ranks, 0, 4)
	for e := range 4 {
		for step := range stream.Steps() {
			before, now := stream.Original().Epoch(e).Global(nil, step), stream.Epoch(e).Global(nil, step)
			slices.Sort(before)
			slices.Sort(now)
			if !slices.Equal(before, now) {
				t.Errorf("epoch %d, step %d: samples %v became %v", e, step, before, now)
			}
		}
		if a, err := ranks[0].Audit(t.Context(), e); err != nil || !a.Complete {
			t.Errorf("epoch %d: audit %+v, %v", e, a, err)
		}
	}
	closeAll(ranks)
	c.close()
}
