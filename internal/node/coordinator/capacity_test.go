package coordinator

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
)

// TestCapacityReportRoundTrip checks that a capacity report decodes to what was encoded, and is
// small.
func TestCapacityReportRoundTrip(t *testing.T) {
	const samples = 1_000_003
	r := rand.New(rand.NewPCG(1, 2))
	all := make([]int32, samples)
	for i := range all {
		all[i] = int32(i)
	}
	some := slices.Clone(all)
	r.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	some = some[:samples/3]
	sorted := slices.Sorted(slices.Values(some))
	told := plan.Node{
		Capacity: []int64{1 << 40, 7},
		Held:     [][]int32{some, {samples - 1, 0}},
		Kept:     all,
	}
	known := model.Node{
		Source: model.GivenRate(200, 1e-3), Sources: model.Curve{{Clients: 2, MBps: 300}},
		Classes: []model.NodeClass{{Name: "x", Read: model.GuessedClass}}, Streams: 3,
	}
	told.Known = &known
	text, whole, err := encodeCapacity(told, 1<<20)
	if err != nil || !whole {
		t.Fatalf("%d bytes; %v, %v", len(text), whole, err)
	}
	got, err := decodeCapacity(text, samples)
	want := plan.Node{
		Capacity: told.Capacity,
		Held:     [][]int32{sorted, {0, samples - 1}},
		Kept:     all,
		Known:    &known,
	}
	// One by one, a million samples take cmp ten seconds.
	if err != nil || !cmp.Equal(got, want, cmp.Comparer(slices.Equal[[]int32])) {
		t.Errorf("decoding returned something else: %v", err)
	}

	text, whole, err = encodeCapacity(told, 1000)
	if err != nil || whole || len(text) > 1000 {
		t.Fatalf("%d bytes; %v, %v", len(text), whole, err)
	}
	got, err = decodeCapacity(text, samples)
	if want := (plan.Node{
		Capacity: told.Capacity, Held: [][]int32{nil, nil}, Known: &known,
	}); err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestInvalidCapacityReportsAreRefused checks that reports of impossible samples, or that are
// malformed, are refused with the reason.
func TestInvalidCapacityReportsAreRefused(t *testing.T) {
	tell := func(node plan.Node) string {
		text, _, err := encodeCapacity(node, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for text, want := range map[string]string{
		tell(plan.Node{
			Capacity: []int64{1, 1},
			Held:     [][]int32{nil, {3, 21}},
		}): "storage class 2: sample 21; the dataset has 0 to 20",
		tell(plan.Node{
			Capacity: []int64{1},
			Kept:     []int32{1 << 20},
		}): "kept samples: more than 21 samples",
		tell(plan.Node{
			Capacity: []int64{1},
			Held:     [][]int32{{1}, {2}},
		}): "2 storage classes hold samples, but the node has 1",
		`{"capacity":[1],"kept":"AAEC"}`: "kept samples: unexpected EOF",
		`{"capacity":[1,-1]}`:            "storage class 2 has a capacity of -1 bytes",
		"{":                              "unexpected end",
		`{"capacity":[1],"known":{"compute_mbps":{"value":-1}}}`: "compute_mbps is -1 MB/s",
		`{"capacity":[1],"known":{"network":{"latency_s":1e9}}}`: "network.latency_s is 1e+09 s",
		`{"capacity":[1],"known":{"sources":[{"Clients":0}]}}`:   "sources has a point for 0",
		`{"capacity":[1],"known":{"streams":"x"}}`:               "cannot unmarshal string",
	} {
		if _, err := decodeCapacity([]byte(text), 21); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

// TestInvalidLeadsAreRefused checks that bootstrap windows out of range, or that are malformed, are
// refused with the reason.
func TestInvalidLeadsAreRefused(t *testing.T) {
	for _, text := range []string{
		`{"Epoch":0,"Step":0,"Steps":0}`,
		`{"Epoch":3,"Step":5,"Steps":5}`,
	} {
		if _, err := decodeWindow([]byte(text), 5); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		`{"Epoch":-1}`:                  "epoch -1",
		`{"Step":-1}`:                   "step -1",
		`{"Epoch":9223372036854775807}`: "epoch 9223372036854775807",
		`{"Step":6}`:                    "step 6 on; an epoch has 5 steps",
		`{"Steps":-1}`:                  "-1 steps",
		`{"Steps":6}`:                   "6 steps from epoch 0, step 0 on",
		"{":                             "unexpected end",
	} {
		if _, err := decodeWindow([]byte(text), 5); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

// TestCapacityReportThatJustFits checks that a report of the most bytes is sent whole, and that one
// which cannot be encoded is an error.
func TestCapacityReportThatJustFits(t *testing.T) {
	told := plan.Node{Capacity: []int64{7}, Held: [][]int32{{1, 2, 3}}}
	text, _, err := encodeCapacity(told, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int]bool{len(text): true, len(text) - 1: false} {
		if _, whole, err := encodeCapacity(told, most); whole != want || err != nil {
			t.Errorf("%d bytes of at most %d: whole %v, %v", len(text), most, whole, err)
		}
	}
	told.Known = &model.Node{Source: model.GivenRate(math.NaN(), 0)}
	if text, _, err := encodeCapacity(told, 1<<20); err == nil {
		t.Errorf("encoded as %s", text)
	}
}
