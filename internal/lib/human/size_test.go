package human_test

import (
	"errors"
	"math"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1048576": 1 << 20, "10GB": 10e9, "64MiB": 64 << 20, "1.5 kb": 1500,
		" 2TiB ": 2 << 40, "512B": 512, "0.5KiB": 512, "1.0001KiB": 1024,
		"1000000000.0": 1e9, "1.5GB": 1.5e9, "1.5B": 1, "1000000000.25": 1e9,
		"9223372036854775807": math.MaxInt64,
	} {
		if got, err := human.Parse(text); err != nil || got != want {
			t.Errorf("Parse(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "GB", "10G", "-1", "1e3", "1e999999999", "0x10", "1/2", "ten", "10 GB x", "1..2", ".",
		"9223372036854775808", "10000PiB", "inf", "1,5GB", "10GB10",
		"1.5", "0.5", " 1.5 ", "999999.5",
	} {
		if got, err := human.Parse(text); err == nil {
			t.Errorf("Parse(%q) = %d, want an error", text, got)
		}
	}
}

func TestFractionWithoutUnit(t *testing.T) {
	_, err := human.Parse("1.5")
	const want = `"1.5" is not a whole number of bytes: add a unit, as in "1.5GB"`
	if !errors.Is(err, human.ErrFraction) || err.Error() != want {
		t.Errorf("Parse(1.5): %v, want %s", err, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("10GB")
	f.Add("1.5 KiB")
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := human.Parse(text); err == nil && n < 0 {
			t.Fatalf("Parse(%q) = %d", text, n)
		}
	})
}

func TestFormat(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 bytes", 1023: "1023 bytes", 1024: "1.0 KiB", 1<<20 - 1: "1.0 MiB",
		24803467264: "23.1 GiB", math.MaxInt64: "8.0 EiB", -2048: "-2.0 KiB",
	} {
		if got := human.Format(n); got != want {
			t.Errorf("Format(%d) = %q, want %q", n, got, want)
		}
	}
}
