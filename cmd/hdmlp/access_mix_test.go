package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestAccessShowsAMix compares the batches that the command shows with the order of the oracle
// (python/tests/mix_oracle.py), of weights that are written in another way.
func TestAccessShowsAMix(t *testing.T) {
	data, err := os.ReadFile("../../internal/plan/access/testdata/mixture.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Mix    struct{ Sizes []int }
		Seed   uint64
		Epochs map[string][]int32
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	want := cases[3].Epochs["2"] // sizes 40, 7, 90, weights 7, 2, 1, 53 samples, seed 0
	if !slices.Equal(cases[3].Mix.Sizes, []int{40, 7, 90}) || cases[3].Seed != 0 {
		t.Fatalf("another case: %+v", cases[3])
	}
	var got []int32
	for _, step := range []string{"0", "1", "2"} {
		code, printed, errs := status(t, "access", "--mix", "40:0.7,7:0.20,90:1e-1", "--epoch-size",
			"53", "--batch", "20", "--nodes", "1", "--epochs", "3", "--rank", "0", "--epoch", "2",
			"--step", step, "--json")
		if code != 0 {
			t.Fatal(errs)
		}
		var a batchAnswer
		if err := json.Unmarshal([]byte(printed), &a); err != nil {
			t.Fatal(err)
		}
		got = append(got, a.Samples...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestAccessRefusesOtherMixes: exit status 2, with what is wrong.
func TestAccessRefusesOtherMixes(t *testing.T) {
	for want, args := range map[string][]string{
		"--epoch-size without --mix":   {"--epoch-size", "5"},
		"leave --samples out":          {"--mix", "5:1", "--samples", "5", "--epoch-size", "5"},
		"--mix without --epoch-size":   {"--mix", "5:1"},
		"\"5\" must be N:WEIGHT":       {"--mix", "5:1,5", "--epoch-size", "5"},
		"\"0:1\" must be N:WEIGHT":     {"--mix", "0:1", "--epoch-size", "5"},
		"\"5:-1\" must be N:WEIGHT":    {"--mix", "5:-1", "--epoch-size", "5"},
		"\"5:NaN\" must be N:WEIGHT":   {"--mix", "5:NaN", "--epoch-size", "5"},
		"add up to 0":                  {"--mix", "5:0", "--epoch-size", "5"},
		"or to 2^32 or more":           {"--mix", "5:1,5:0.0000000001", "--epoch-size", "5"},
		"--epoch-size is 0":            {"--mix", "5:1", "--epoch-size", "0"},
		"a --mix has no such order":    {"--mix", "5:1", "--epoch-size", "5", "--shuffle", "torch"},
		"--sample is 5; allowed: 0 to": {"--mix", "5:1", "--epoch-size", "5", "--sample", "5"},
	} {
		code, _, errs := status(t, append([]string{"access"}, args...)...)
		if code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit status %d, %s, want 2 and %q", args, code, errs, want)
		}
	}
}
