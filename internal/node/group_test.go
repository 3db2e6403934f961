package node

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/job"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

func TestWhatCannotBeSharedSaysWhy(t *testing.T) {
	for says, change := range map[string]func(*opening){
		"": func(*opening) {},
		"port = 7000": func(o *opening) {
			o.request.Cluster = &request.Cluster{Nodes: 2, LocalWorldSize: 1}
			o.config.Port = 7000
		},
		"draws the order itself": func(o *opening) { o.request.Stream.Given = &request.Given{} },
		"nothing to share":       func(o *opening) { o.request.Transforms = nil },
		"on_error = skip":        func(o *opening) { o.config.OnError = "skip" },
		"policy = naive":         func(o *opening) { o.config.Policy = "naive" },
	} {
		o := opening{config: &config.Config{OnError: "raise", Policy: "cooperative"}}
		o.request.WorldSize = 1
		o.request.Transforms = json.RawMessage(
			`[{"name": "ImgDecode"}, {"name": "CenterCrop", "size": 8}, {"name": "ToTensor"}]`)
		change(&o)
		if why := unshareable(&o); !strings.Contains(why, says) || (why == "") != (says == "") {
			t.Errorf("%q: %q", says, why)
		}
	}
}

// shapes is a group that asks ranks for their shapes.
type shapes struct{ left int }

func (s *shapes) Enter(context.Context, request.Said) (Membership, error) { return s, nil }
func (s *shapes) Seed() *uint64                                           { return nil }
func (s *shapes) Agree(context.Context, Team, Opener, func()) error       { return nil }
func (s *shapes) Epoch() int                                              { return 0 }
func (s *shapes) Leave()                                                  { s.left++ }
func (s *shapes) Join(_ context.Context, r *Rank, _ Opener) (job.Member, error) {
	_, _, _, err := r.Shape()
	return nil, err
}

// TestARankWithAnEmptyBatchGoesAlone unless its loader names the group: 40 samples are 3 batches of
// 13, and one of which rank 3 has no sample.
func TestARankWithAnEmptyBatchGoesAlone(t *testing.T) {
	empty := func(m *request.Open) {
		m.Stream.Scheme = "uniform"
		m.Stream.Tail = "keep"
		m.Stream.GlobalBatch = 13
		m.Transforms = json.RawMessage(
			`[{"name": "ImgDecode"}, {"name": "CenterCrop", "size": 8}, {"name": "ToTensor"}]`)
	}
	for _, required := range []bool{false, true} {
		var w world
		n, groups := w.node(), &shapes{}
		n.options.Groups = groups
		share := variable("HDMLP_SHARE", "search")
		if required {
			share = set("share", "search")
		}
		r, err := n.Open(t.Context(), message(3, 4, empty, share), nil, func(request.Step) {})
		switch {
		case required && (err == nil || !strings.Contains(err.Error(), "without samples")):
			t.Errorf("the rank is told %v", err)
		case !required && err != nil:
			t.Error(err)
		case !required:
			if all := strings.Join(r.Opened().Warnings, "\n"); !strings.Contains(all, "without samples") {
				t.Errorf("the warnings are %q", all)
			}
			r.Close()
		}
		if groups.left != 1 {
			t.Errorf("it left the group %d times", groups.left)
		}
		w.close(t, n)
	}
}
