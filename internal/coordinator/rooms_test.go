package coordinator

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/placement"
)

// TestRoom: what a node tells of its classes is what the others read, and small.
func TestRoom(t *testing.T) {
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
	told := placement.Node{
		Capacity: []int64{1 << 40, 7},
		Held:     [][]int32{some, {samples - 1, 0}},
		Kept:     all,
	}
	text, whole, err := encodeRoom(told, 1<<20)
	if err != nil || !whole {
		t.Fatalf("%d bytes; %v, %v", len(text), whole, err)
	}
	got, err := decodeRoom(text, samples)
	want := placement.Node{
		Capacity: told.Capacity,
		Held:     [][]int32{sorted, {0, samples - 1}},
		Kept:     all,
	}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("another node was read: %v", err)
	}

	text, whole, err = encodeRoom(told, 1000)
	if err != nil || whole || len(text) > 1000 {
		t.Fatalf("%d bytes; %v, %v", len(text), whole, err)
	}
	got, err = decodeRoom(text, samples)
	if want := (placement.Node{Capacity: told.Capacity, Held: [][]int32{nil, nil}}); err != nil ||
		!cmp.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestRoomOfAnother: what is said of other samples than there are, or is nothing at all, is named.
func TestRoomOfAnother(t *testing.T) {
	tell := func(node placement.Node) string {
		text, _, err := encodeRoom(node, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for text, want := range map[string]string{
		tell(placement.Node{
			Capacity: []int64{1, 1},
			Held:     [][]int32{nil, {3, 21}},
		}): "storage class 2: sample 21; the dataset has 0 to 20",
		tell(placement.Node{
			Capacity: []int64{1},
			Kept:     []int32{1 << 20},
		}): "what it keeps: more than 21 samples",
		tell(placement.Node{
			Capacity: []int64{1},
			Held:     [][]int32{{1}, {2}},
		}): "2 storage classes hold samples, and there are 1",
		`{"capacity":[1],"kept":"AAEC"}`: "what it keeps: unexpected EOF",
		`{"capacity":[1,-1]}`:            "storage class 2 has room for -1 bytes",
		"{":                              "unexpected end",
	} {
		if _, err := decodeRoom([]byte(text), 21); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

// TestLeadOfAnother: what is said of steps that there are not, or is nothing at all, is named.
func TestLeadOfAnother(t *testing.T) {
	for _, text := range []string{
		`{"Epoch":0,"Step":0,"Steps":0}`,
		`{"Epoch":3,"Step":5,"Steps":5}`,
	} {
		if _, err := decodeLead([]byte(text), 5); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		`{"Epoch":-1}`: "epoch -1",
		`{"Step":-1}`:  "step -1",
		`{"Step":6}`:   "step 6 on; an epoch has 5 steps",
		`{"Steps":-1}`: "-1 steps",
		`{"Steps":6}`:  "6 steps from epoch 0, step 0 on",
		"{":            "unexpected end",
	} {
		if _, err := decodeLead([]byte(text), 5); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}
