package order

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/node/request/requesttest"
)

// TestInterleavePutsEachRanksSamplesInPlace checks that the order has each rank's samples where the
// rank reads them, whichever node has which ranks, and however the parts are cut into pieces.
func TestInterleavePutsEachRanksSamplesInPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world, entries := rapid.IntRange(1, 9).Draw(t, "ranks"),
			rapid.IntRange(1, 20).Draw(t, "entries")
		size := 4 * rapid.IntRange(1, 50).Draw(t, "size")
		nodes := make([][]int, rapid.IntRange(1, 4).Draw(t, "nodes"))
		lists := make([][]int32, world)
		for r := range world {
			n := rapid.IntRange(0, len(nodes)-1).Draw(t, "node")
			nodes[n] = append(nodes[n], r)
			lists[r] = rapid.SliceOfN(rapid.Int32(), entries, entries).Draw(t, "list")
		}
		order := make([]int32, world*entries)
		for _, ranks := range nodes {
			var bytes []byte
			for _, r := range ranks {
				bytes = append(bytes, requesttest.Encoded(lists[r])...)
			}
			for from := 0; from < 4*world*entries; from += size {
				piece := bytes[min(from, len(bytes)):min(from+size, len(bytes))]
				if err := interleave(order, piece, from, size, ranks, entries); err != nil {
					t.Fatal(err)
				}
				if err := interleave(order, append(slices.Clone(piece), 0, 0, 0, 0), from, size,
					ranks, entries); err == nil {
					t.Fatal("a piece that is too long is accepted")
				}
				if len(piece) > 0 {
					if err := interleave(order, piece[:len(piece)-1], from, size, ranks,
						entries); err == nil {
						t.Fatal("a piece that is too short is accepted")
					}
				}
			}
		}
		for i, k := range order {
			if want := lists[i%world][i/world]; k != want {
				t.Fatalf("sample %d at index %d, want %d", k, i, want)
			}
		}
	})
}

// TestInvalidPartsAreRefused checks that decodeParts refuses anything invalid that another node
// sends, and names the node.
func TestInvalidPartsAreRefused(t *testing.T) {
	members := [][]int{{0, 2}, {1}}
	good := `[{"rank":0,"epoch":3,"batch":2,"entries":5,"seed":18446744073709551615},` +
		`{"rank":2,"left":true}]`
	all, err := decodeParts([][]byte{[]byte(good), []byte(`[{"rank":1,"apart":"why"}]`)}, members,
		3)
	if err != nil || all[0].Entries != 5 || all[0].Seed != 1<<64-1 || all[1].Apart != "why" ||
		!all[2].Left {
		t.Errorf("%+v, %v", all, err)
	}
	for text, want := range map[string]string{
		"": "node 1 sent parts of an epoch that " +
			"cannot be decoded",
		"null":                               "node 1 sent parts of ranks [], but has ranks [1]",
		"[null]":                             "cannot be decoded",
		`{"rank":1}`:                         "cannot be decoded",
		`[{"rank":0}]`:                       "node 1 sent parts of ranks [0], but has ranks [1]",
		`[{"rank":1},{"rank":1}]`:            "node 1 sent parts of ranks [1 1], but has ranks [1]",
		`[{"rank":-1}]`:                      "node 1 sent parts of ranks [-1]",
		`[{"rank":1,"entries":-1}]`:          "-1 samples of epoch 0",
		`[{"rank":1,"epoch":-1}]`:            "epoch -1",
		`[{"rank":1,"epoch":4294967296}]`:    "epoch 4294967296",
		`[{"rank":1,"batch":-5}]`:            "in batches of -5",
		`[{"rank":1,"entries":"many"}]`:      "cannot be decoded",
		`[{"rank":1,"seed":-1,"entries":1}]`: "cannot be decoded",
	} {
		if all, err := decodeParts([][]byte{[]byte(good), []byte(text)}, members, 3); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %q", text, all, err, want)
		}
	}
}
