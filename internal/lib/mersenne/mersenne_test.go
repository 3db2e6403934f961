package mersenne

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"
)

// TestReference: the words of the reference implementation's own test (mt19937ar.out).
func TestReference(t *testing.T) {
	var g Generator
	g.SeedWith([]uint32{0x123, 0x234, 0x345, 0x456})
	for i, want := range []uint32{1067595299, 955945823, 477289528, 4107218783, 4228976476} {
		if got := g.Word(); got != want {
			t.Errorf("word %d is %d, want %d", i, got, want)
		}
	}
}

// TestSeed: the 10,000th word from the seed 5489, as the C++ standard gives it.
func TestSeed(t *testing.T) {
	var g Generator
	g.Seed(5489)
	for range 9999 {
		g.Word()
	}
	if got := g.Word(); got != 4123659995 {
		t.Errorf("the 10,000th word is %d, want 4123659995", got)
	}
}

// TestPython: words of several blocks are those of Python's random module, whatever is drawn at a
// time.
func TestPython(t *testing.T) {
	const program = `
import json, random
out = []
for seed in [0, 1, 2**32 - 1, 2**32, 2**64 - 1, 0x123456789abcdef]:
    random.seed(seed)
    out.append([random.getrandbits(32) for _ in range(2000)])
print(json.dumps(out))`
	printed, err := exec.Command("python3", "-c", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	var words [][]uint32
	if err := json.Unmarshal(printed, &words); err != nil {
		t.Fatal(err)
	}
	seeds := [][]uint32{
		{0}, {1}, {1<<32 - 1}, {0, 1}, {1<<32 - 1, 1<<32 - 1}, {0x89abcdef, 0x1234567},
	}
	for i, want := range words {
		var one, several Generator
		one.SeedWith(seeds[i])
		several.SeedWith(seeds[i])
		for _, w := range want {
			if got := one.Word(); got != w {
				t.Fatalf("seed %v: word by word: %d, want %d", seeds[i], got, w)
			}
		}
		for n := 1; len(want) > 0; n = n*3%701 + 1 {
			got := several.Untempered(min(n, len(want)))
			for _, y := range got {
				if Temper(y) != want[0] {
					t.Fatalf("seed %v: %d at a time: %d, want %d", seeds[i], n, Temper(y), want[0])
				}
				want = want[1:]
			}
		}
	}
}

// TestMixed: drawing word by word and many at a time give one sequence.
func TestMixed(t *testing.T) {
	var one, both Generator
	one.Seed(7)
	both.Seed(7)
	for n := 1; n < 2000; n = n*2 + 1 {
		var got []uint32
		for range n % 5 {
			got = append(got, both.Word())
		}
		for _, y := range both.Untempered(n) {
			got = append(got, Temper(y))
		}
		for i, w := range got {
			if want := one.Word(); w != want {
				t.Fatalf("%d of %d: %d, want %d", i, n, w, want)
			}
		}
	}
}

func BenchmarkFirstWord(b *testing.B) {
	for _, words := range []int{1, 4, 20} {
		b.Run(fmt.Sprint(words, " words"), func(b *testing.B) {
			var g Generator
			for i := range b.N {
				g.Seed(uint32(i))
				for range words {
					g.Word()
				}
			}
		})
	}
}
