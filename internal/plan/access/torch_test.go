package access

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/lib/mersenne"
)

var rewrite = flag.Bool("rewrite", false,
	"write testdata/torch.golden.json from the torch that is installed")

const goldenFile = "testdata/torch.golden.json"

// samplerCase is one question to testdata/sampler.py, which describes the fields.
type samplerCase struct {
	F        int    `json:"f"`
	W        int    `json:"w"`
	Batch    int    `json:"batch"`
	Seed     uint64 `json:"seed"`
	Epoch    int    `json:"epoch"`
	DropTail bool   `json:"drop_tail"`
	DropLast bool   `json:"drop_last"`
	Shuffle  bool   `json:"shuffle"`
	Ranks    []int  `json:"ranks,omitempty"`
	Loader   bool   `json:"loader"`
	Randperm bool   `json:"randperm,omitempty"`
}

// torchAnswers is what sampler.py prints, with the questions beside it in the golden file.
type torchAnswers struct {
	Torch   string        `json:"torch"`
	Cases   []samplerCase `json:"cases"`
	Digests [][]string    `json:"digests"`
}

func samplerCases() []samplerCase {
	var cases []samplerCase
	bools := []bool{false, true}
	// Every combination of what may be dropped, over sizes that divide and that do not.
	for _, shape := range []struct{ f, w, batch int }{
		{1, 1, 1},
		{2, 1, 1},
		{3, 2, 1},
		{5, 3, 2},
		{17, 4, 2},
		{64, 4, 4},
		{100, 8, 5},
		{101, 7, 3},
		{623, 3, 16},
		{624, 2, 10},
		{625, 5, 25},
		{1000, 3, 7},
		{1249, 4, 32},
		{5000, 6, 64},
	} {
		for _, dropTail := range bools {
			for _, dropLast := range bools {
				for i, epoch := range []int{0, 3} {
					cases = append(cases, samplerCase{
						F: shape.f, W: shape.w, Batch: shape.batch,
						Seed: uint64(shape.f)*7 + uint64(i)*42, Epoch: epoch,
						DropTail: dropTail, DropLast: dropLast, Shuffle: i == 0 || shape.f%2 == 0,
						Ranks: allRanks(shape.w), Loader: true,
					})
				}
			}
		}
	}
	// Fewer samples than ranks: the padding goes round more than once.
	for _, shape := range []struct{ f, w int }{{1, 4}, {3, 8}, {5, 16}, {7, 32}} {
		for _, dropLast := range bools {
			cases = append(cases, samplerCase{
				F: shape.f, W: shape.w, Batch: 1, Seed: 9, Epoch: 2, DropLast: dropLast,
				Shuffle: true,
				Ranks:   allRanks(shape.w), Loader: true,
			})
		}
	}
	// Seeds that do not fit into 32 bits, and one whose sum with the epoch carries over.
	for _, seed := range []uint64{1<<32 - 1, 1 << 32, 1<<40 + 12345, 1<<63 - 100} {
		cases = append(cases, samplerCase{
			F:       1000,
			W:       4,
			Batch:   8,
			Seed:    seed,
			Epoch:   5,
			Shuffle: true,
			Ranks:   allRanks(4),
		})
	}
	// ImageNet's size and beyond.
	cases = append(
		cases,
		samplerCase{
			F:       1281167,
			W:       8,
			Batch:   32,
			Seed:    42,
			Epoch:   89,
			Shuffle: true,
			Ranks:   []int{0, 7},
		},
		samplerCase{
			F:        1281167,
			W:        1024,
			Batch:    16,
			Seed:     1,
			Epoch:    1,
			DropTail: true,
			DropLast: true,
			Shuffle:  true,
			Ranks:    []int{3, 1023},
		},
		samplerCase{F: 1300000, Seed: 5, Randperm: true},
		samplerCase{F: 3000017, Seed: 12345, Randperm: true},
	)
	return cases
}

func allRanks(w int) []int {
	ranks := make([]int, w)
	for r := range ranks {
		ranks[r] = r
	}
	return ranks
}

// askTorch runs sampler.py with the first Python that has torch.
func askTorch(t *testing.T, cases []samplerCase) (torchAnswers, bool) {
	t.Helper()
	const find = `import importlib.util as u, sys
sys.exit(not (u.find_spec("torch") and u.find_spec("numpy")))`
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(python, "-c", find).Run() != nil {
			continue
		}
		in, err := json.Marshal(cases)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(python, "testdata/sampler.py")
		cmd.Stdin = bytes.NewReader(in)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s testdata/sampler.py: %v\n%s", python, err, &stderr)
		}
		answers := torchAnswers{Cases: cases}
		if err := json.Unmarshal(out, &answers); err != nil {
			t.Fatal(err)
		}
		return answers, true
	}
	return torchAnswers{}, false
}

func digest(h interface{ Write([]byte) (int, error) }, batch []int32) {
	buf := binary.LittleEndian.AppendUint32(nil, uint32(len(batch)))
	for _, k := range batch {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(k))
	}
	h.Write(buf)
}

// ours answers a case as sampler.py does.
func ours(t *testing.T, c samplerCase) []string {
	t.Helper()
	if c.Randperm {
		r := make([]int32, c.F)
		randperm(r, uint32(c.Seed))
		h := sha256.New()
		digest(h, r)
		return []string{hex.EncodeToString(h.Sum(nil))}
	}
	spec := Spec{
		Samples: c.F, Seed: c.Seed, WorldSize: c.W, GlobalBatch: c.W * c.Batch,
		DropLast: c.DropLast,
		Scheme:   Strided, Tail: Pad, Shuffle: Sequential,
	}
	if c.Shuffle {
		spec.Shuffle = Torch
	}
	if c.DropTail {
		spec.Tail = Drop
	}
	empty := hex.EncodeToString(sha256.New().Sum(nil))
	s, err := New(spec)
	answers := make([]string, len(c.Ranks))
	if err != nil {
		// We refuse exactly the streams over which torch silently iterates without a single batch.
		for i := range answers {
			answers[i] = empty
		}
		return answers
	}
	e := s.Epoch(c.Epoch)
	for i, r := range c.Ranks {
		h := sha256.New()
		var batch []int32
		for step := range s.Steps() {
			batch = e.Batch(batch[:0], r, step)
			digest(h, batch)
		}
		answers[i] = hex.EncodeToString(h.Sum(nil))
	}
	return answers
}

func compareWithTorch(t *testing.T, want torchAnswers) {
	t.Helper()
	for i, c := range want.Cases {
		if diff := cmp.Diff(want.Digests[i], ours(t, c)); diff != "" {
			t.Errorf("%+v differs from torch %s (-torch +ours):\n%s", c, want.Torch, diff)
		}
	}
}

// TestTorchGolden compares with what a real torch delivered, and needs none.
func TestTorchGolden(t *testing.T) {
	if *rewrite {
		answers, ok := askTorch(t, samplerCases())
		if !ok {
			t.Fatal("no Python here has torch")
		}
		out, err := json.Marshal(answers)
		if err != nil {
			t.Fatal(err)
		}
		out = bytes.ReplaceAll(out, []byte(`},{"f"`), []byte("},\n{\"f\""))
		out = bytes.ReplaceAll(out, []byte(`],[`), []byte("],\n["))
		if err := os.WriteFile(goldenFile, append(out, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	var golden torchAnswers
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Cases) != len(samplerCases()) || len(golden.Digests) != len(golden.Cases) {
		t.Fatalf("%s has %d cases and %d answers, the test %d: write it anew with -rewrite",
			goldenFile, len(golden.Cases), len(golden.Digests), len(samplerCases()))
	}
	compareWithTorch(t, golden)
}

// TestTorchInstalled compares with the torch that is installed, on cases that
// the golden file does not have.
func TestTorchInstalled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Python")
	}
	var cases []samplerCase
	rng := &mersenne.Generator{}
	rng.Seed(2024)
	pick := func(n int) int { return int(rng.Word() % uint32(n)) }
	for i := range 60 {
		w := 1 + pick(12)
		cases = append(cases, samplerCase{
			F: 1 + pick(3000), W: w, Batch: 1 + pick(40), Seed: uint64Of(rng) >> 2,
			Epoch:    pick(1000),
			DropTail: i&1 != 0, DropLast: i&2 != 0, Shuffle: i%10 != 0, Ranks: allRanks(w),
			Loader: i%3 == 0,
		})
	}
	answers, ok := askTorch(t, cases)
	if !ok {
		t.Skip("no Python here has torch; TestTorchGolden compares with recorded answers")
	}
	compareWithTorch(t, answers)
}

// TestWideRandperm: from 2^32/20 elements on today's torch draws 64 bits for each. The first
// outputs of a generator seeded with 5489 are known (Matsumoto and Nishimura).
func TestWideRandperm(t *testing.T) {
	var g mersenne.Generator
	g.Seed(5489)
	if got, want := uint64Of(&g), uint64(3499211612)<<32|581869302; got != want {
		t.Errorf("first 64 bits: %d, want %d", got, want)
	}
	// Inside out: sample i goes to the place drawn for it, what was there moves to the end.
	r := make([]int32, 1000)
	g.Seed(7)
	shuffle64(r, &g)
	var want []int32
	g.Seed(7)
	for i := range len(r) {
		hi := uint64(g.Word())
		z := int((hi<<32 | uint64(g.Word())) % uint64(i+1))
		want = append(want, int32(i))
		want[z], want[i] = int32(i), want[z]
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
	if fmt.Sprint(wideRandperm) != "214748364" {
		t.Errorf("64 bits from %d elements on; torch: 214748364", wideRandperm)
	}
}
