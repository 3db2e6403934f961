package main

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseBytesAcceptsUnits(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "17": 17, "3B": 3, "40MB": 40_000_000, "1.5KiB": 1536, "2 GiB": 2 << 30,
		"165MiB": 165 << 20,
	} {
		if got, err := parseBytes(text); err != nil || got != want {
			t.Errorf("parseBytes(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MB", "-1", "12XB", "NaN", "1e30GB", "Inf"} {
		if got, err := parseBytes(text); err == nil {
			t.Errorf("parseBytes(%q) = %d, want an error", text, got)
		}
	}
}

// TestBucketKeepsTheRate: for any requests at any time, never more than bandwidth * (t + burst) in
// the time t since the first request, and never later than if each request had the bandwidth to
// itself from its arrival or from the end of the one before it.
func TestBucketKeepsTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const start = int64(time.Hour)
		now := start
		b := bucket{now: func() int64 { return now }}
		rate := rapid.Int64Range(1000, 1e10).Draw(t, "rate")
		var sum float64
		worst := now
		for range rapid.IntRange(1, 50).Draw(t, "requests") {
			now += rapid.Int64Range(0, int64(20*time.Millisecond)).Draw(t, "pause")
			n := rapid.IntRange(1, 1<<20).Draw(t, "bytes")
			due := b.take(n, rate)
			sum += float64(n)
			cost := float64(n) / float64(rate) * 1e9
			worst = max(worst, now) + int64(cost) + 1
			if due > worst {
				t.Fatalf("due %d ns after the start, at worst %d", due-start, worst-start)
			}
			allowed := float64(rate) * (float64(due-start) + float64(burst) + 100) / 1e9
			if sum > allowed+1 {
				t.Fatalf("%.0f bytes until %d ns after the start, allowed %.0f", sum, due-start,
					allowed)
			}
		}
	})
}

func TestBucketWithoutALimitDoesNotWait(t *testing.T) {
	b := bucket{now: func() int64 { return 5 }}
	if due := b.take(1<<30, 0); due != 0 {
		t.Errorf("due at %d without a limit, want at once", due)
	}
}
