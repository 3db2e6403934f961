package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/source"
)

// TestMismatchNamesTheParameter checks that ranks that disagree in any parameter get an error that
// names it, and both values.
func TestMismatchNamesTheParameter(t *testing.T) {
	var w world
	n := w.node()
	first := open(t, n, message(0, 2))
	seed := uint64(8)
	for _, c := range []struct {
		key, mine, theirs string
		change            func(*request.Open)
	}{
		{"world_size", "3", "2", func(m *request.Open) { m.WorldSize = 3 }},
		{"dataset kind", "other", "fake", func(m *request.Open) { m.Dataset.Kind = "other" }},
		{"dataset", "/other", "/data", func(m *request.Open) { m.Dataset.Path = "/other" }},
		{"extensions", "[.y]", "[]", func(m *request.Open) {
			m.Dataset.Options = option.Values{source.ExtensionsKey: []string{".y"}}
		}},
		{"seed", "8", "7", func(m *request.Open) { m.Stream.Seed = &seed }},
		{"epochs", "5", "4", func(m *request.Open) { m.Stream.Epochs = 5 }},
		{"global batch size", "20", "10", func(m *request.Open) { m.Stream.GlobalBatch = 20 }},
		{"drop_last", "true", "false", func(m *request.Open) { m.Stream.DropLast = true }},
		{"shuffle", "feistel", "torch", func(m *request.Open) { m.Stream.Shuffle = "feistel" }},
		{"scheme", "uniform", "strided", func(m *request.Open) { m.Stream.Scheme = "uniform" }},
		{"tail", "keep", "pad", func(m *request.Open) { m.Stream.Tail = "keep" }},
		{"transforms", `[{"name":"Reshape"}]`, "none", func(m *request.Open) {
			m.Transforms = []byte(`[{"name": "Reshape"}]`)
		}},
		{"transform_threads", "3", "0", set("transform_threads", 3.0)},
		{"decode_memory", "32MiB", "auto", set("decode_memory", "32MiB")},
		{"policy", "minio", "cooperative", set("policy", "minio")},
		{"on_error", "skip", "raise", set("on_error", "skip")},
		{"memory", "30000B", "40000B", set("memory", "30000B")},
		{"memory", "auto", "40000B", set("memory", nil)},
		{"cache_dir", "/nowhere/cache", "", set("cache_dir", "/nowhere/cache")},
		{"staging_buffer", "128KiB", "64KiB", set("staging_buffer", "128KiB")},
		{"prefetch_batches", "3", "64", set("prefetch_batches", 3.0)},
		{"source_threads", "2", "0", set("source_threads", 2.0)},
		{"cache_threads", "2", "4", set("cache_threads", 2.0)},
		{"source_timeout", "5s", "60s", set("source_timeout", "5s")},
		{"index_dir", "/tmp", "auto", set("index_dir", "/tmp")},
		{"disk_reserve", "1MB", "auto", variable("HDMLP_DISK_RESERVE", "1MB")},
		{"cache_size", "1MB", "auto", variable("HDMLP_CACHE_SIZE", "1MB")},
	} {
		e := refusal(t, n, message(1, 2, c.change))
		if e.Kind != failure.Mismatch || e.Details["key"] != c.key ||
			fmt.Sprint(e.Details["mine"]) != c.mine || fmt.Sprint(e.Details["theirs"]) != c.theirs {
			t.Errorf("%s: %+v, want mine %s and theirs %s", c.key, e, c.mine, c.theirs)
		}
		for _, want := range []string{
			"rank 1 disagrees with rank 0 of job j: ",
			fmt.Sprintf("%s is %s on rank 1 and %s on rank 0", c.key, c.mine,
				cmp.Or(c.theirs, "not set")),
		} {
			if !strings.Contains(e.Message, want) {
				t.Errorf("%s: %q does not say %q", c.key, e.Message, want)
			}
		}
	}
	// Null agrees with any seed, and stands for no transforms.
	second := open(t, n,
		message(1, 2, func(m *request.Open) { m.Stream.Seed, m.Transforms = nil, []byte("null") }))
	if second.Opened().Seed != 7 {
		t.Errorf("seed %d, want the first rank's", second.Opened().Seed)
	}
	second.Close()
	first.Close()
	w.close(t, n)
}

// TestRankWithAnotherOrderEndsAllRanks checks that a rank with another order ends the job on all
// ranks, unless it was in the job before, or the difference is not about the order.
func TestRankWithAnotherOrderEndsAllRanks(t *testing.T) {
	seed := uint64(8)
	other := func(m *request.Open) { m.Stream.Seed = &seed }
	for name, c := range map[string]struct {
		change func(*request.Open)
		before bool // the second rank was in the job
		ends   bool
	}{
		"order":         {other, false, true},
		"order, again":  {other, true, false},
		"batch":         {func(m *request.Open) { m.Stream.GlobalBatch = 20 }, false, true},
		"dataset":       {func(m *request.Open) { m.Dataset.Path = "/other" }, false, false},
		"other setting": {set("prefetch_batches", 3.0), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			n := w.node()
			first := open(t, n, message(0, 2))
			if c.before {
				open(t, n, message(1, 2)).Close()
			}
			refused := refusal(t, n, message(1, 2, c.change))
			_, err := take(first, at{0, 0}, at{1, 0})
			var told *failure.Error
			switch {
			case !c.ends && err != nil:
				t.Errorf("the first rank's stream ended: %v", err)
			case c.ends && (!errors.As(err, &told) || told.Kind != failure.Mismatch ||
				!strings.Contains(told.Message, refused.Message)):
				t.Errorf("the first rank is told %v, want %v", err, refused)
			}
			first.Close()
			w.close(t, n)
		})
	}
}

// TestInvalidRequestsAreRefused checks that invalid requests are refused with the reason, and leave
// nothing behind.
func TestInvalidRequestsAreRefused(t *testing.T) {
	var w world
	n := w.node()
	for _, c := range []struct {
		kind   failure.Kind
		words  []string
		change func(*request.Open)
	}{
		{failure.Config, []string{"rank 2", "world size 2", "0 to 1"}, func(m *request.Open) {
			m.Rank = 2
		}},
		{failure.Config, []string{"rank -1"}, func(m *request.Open) { m.Rank = -1 }},
		{failure.Config, []string{"job's name has 257 bytes"}, func(m *request.Open) {
			m.Job = strings.Repeat("j", 257)
		}},
		{failure.Config, []string{"world size 0"}, func(m *request.Open) { m.WorldSize = 0 }},
		{
			failure.Config,
			[]string{"41", "more than the 40 of an epoch", "nothing would be delivered"},
			func(m *request.Open) {
				m.Stream.GlobalBatch, m.Stream.DropLast = 41, true
			},
		},
		{failure.Config, []string{"GlobalBatch", "0"}, func(m *request.Open) {
			m.Stream.GlobalBatch = 0
		}},
		{failure.Config, []string{"spiral"}, func(m *request.Open) { m.Stream.Shuffle = "spiral" }},
		{failure.Config, []string{"transforms", "it must be a list"}, func(m *request.Open) {
			m.Transforms = []byte(`{"name": "Resize"}`)
		}},
		{failure.Config, []string{"transforms", "the list is empty"}, func(m *request.Open) {
			m.Transforms = []byte(`[]`)
		}},
		{failure.Config, []string{
			"transforms[0] Resize", "size is 0", "from 1", "transforms[1]",
			"Crop",
		}, func(m *request.Open) {
			m.Transforms = []byte(`[{"name": "Resize", "size": 0}, {"name": "Crop"}]`)
		}},
		{failure.Config, []string{"no fixed size"}, func(m *request.Open) {
			m.Transforms = []byte(`[{"name": "Resize", "size": 8}]`)
		}},
		{failure.Config, []string{`"tape"`, "fake"}, func(m *request.Open) {
			m.Dataset.Kind = "tape"
		}},
		{failure.Dataset, []string{"/missing", "no such directory"}, func(m *request.Open) {
			m.Dataset.Path = "/missing"
		}},
		{failure.Config, []string{"memry", `did you mean "memory"`}, set("memry", "1GB")},
	} {
		e := refusal(t, n, message(0, 2, c.change))
		if e.Kind != c.kind {
			t.Errorf("%v: kind %s, want %s (%s)", c.words, e.Kind, c.kind, e.Message)
		}
		for _, want := range c.words {
			if !strings.Contains(e.Message, want) {
				t.Errorf("%q does not say %q", e.Message, want)
			}
		}
		w.empty(t, n)
	}
	w.close(t, n)
	if e := refusal(t, n, message(0, 1)); e.Kind != failure.Busy {
		t.Errorf("after Close: %+v", e)
	}
}

func TestRankInUseIsRefused(t *testing.T) {
	var w world
	n := w.node()
	first := open(t, n, message(0, 2))
	e := refusal(t, n, message(0, 2))
	if e.Kind != failure.Busy || !strings.Contains(e.Message, "rank 0 of job j is in use") {
		t.Errorf("%+v", e)
	}
	first.Close()
	first.Close() // idempotent
	again := open(t, n, message(0, 2))
	again.Close()
	w.close(t, n)
}

// TestSeedIsDrawnOnce checks that ranks that leave the seed to the daemon get the same one.
func TestSeedIsDrawnOnce(t *testing.T) {
	var w world
	n := w.node()
	const ranks = 8
	var all sync.WaitGroup
	seeds := make([]uint64, ranks)
	opened := make([]*Rank, ranks)
	for rank := range ranks {
		all.Go(func() {
			r, err := n.Open(context.Background(),
				message(rank, ranks, func(m *request.Open) {
					m.Stream.Seed = nil
				}), nil, func(request.Step) {})
			if err != nil {
				t.Error(err)
				return
			}
			opened[rank], seeds[rank] = r, r.Opened().Seed
		})
	}
	all.Wait()
	for rank, r := range opened {
		if seeds[rank] != seeds[0] {
			t.Errorf("rank %d has seed %d, rank 0 %d", rank, seeds[rank], seeds[0])
		}
		r.Close()
	}
	other := open(t, n, message(0, 1, func(m *request.Open) { m.Stream.Seed = nil }))
	if other.Opened().Seed == seeds[0] {
		t.Error("the next job has the same seed")
	}
	other.Close()
	w.close(t, n)
}

// TestLaterRanksAndJobsShareMemory checks that memory that the job itself has taken is available to
// its next rank, and to a second job on the dataset.
func TestLaterRanksAndJobsShareMemory(t *testing.T) {
	w := world{}
	available := int64(1 << 30)
	w.available = func() (int64, error) { return available, nil }
	n := w.node()
	change := []func(*request.Open){set("memory", "600MB")}
	first := open(t, n, message(0, 2, change...))
	available = 100 << 20
	second := open(t, n, message(1, 2, change...))
	third := open(t, n, message(0, 1, append(change, func(m *request.Open) { m.Job = "k" })...))
	_, err := n.Open(t.Context(),
		message(0, 1, append(change, func(m *request.Open) {
			m.Job, m.Dataset.Path = "l", "/else"
		})...), nil, func(request.Step) {})
	if err == nil || !strings.Contains(err.Error(), "too large for memory") {
		t.Errorf("a job on another dataset: %v, want it refused", err)
	}
	for _, r := range []*Rank{first, second, third} {
		r.Close()
	}
	w.close(t, n)
}

// TestBufferTooLargeForMemoryIsRefused checks that a job whose staging buffer does not fit in
// memory is refused with need and limit before anything is taken.
func TestBufferTooLargeForMemoryIsRefused(t *testing.T) {
	w := world{available: func() (int64, error) { return 1 << 20, nil }}
	n := w.node()
	e := refusal(t, n, message(0, 1, set("staging_buffer", "2MiB")))
	if e.Kind != failure.Limit || e.Details["need"] != int64(total+(2<<20)+planSize) ||
		e.Details["limit"] != int64(1<<20) ||
		!strings.Contains(e.Message,
			"2.0 MiB for staging buffers (1 of 2.0 MiB: staging_buffer)") ||
		!strings.Contains(e.Message, "reduce staging_buffer") {
		t.Errorf("%+v", e)
	}
	w.close(t, n)
}

// TestOpenedDescribesTheJob checks that each rank gets a description of the dataset, and how many
// samples it is to get.
func TestOpenedDescribesTheJob(t *testing.T) {
	var w world
	n := w.node()
	for rank, want := range []int{14, 14, 12} {
		r := open(t, n, message(rank, 3, func(m *request.Open) {
			m.Stream.GlobalBatch = 40
			m.Stream.Scheme = "uniform"
			m.Stream.Tail = "keep"
		}))
		o := r.Opened()
		if o.RankSamples != want || o.Samples != samples || o.Bytes != total || o.Steps != 1 ||
			o.Positions != samples || o.Seed != 7 ||
			!slices.Equal(o.Classes, []string{"a", "b"}) ||
			!slices.Equal(o.ClassSizes, []int{20, 20}) {
			t.Errorf("rank %d: %+v", rank, o)
		}
		r.Close()
	}
	w.close(t, n)
}

// TestSmallCachesAreWarnedAbout checks that a process is warned if the caches cannot hold what each
// epoch needs, unless its policy caches nothing.
func TestSmallCachesAreWarnedAbout(t *testing.T) {
	for _, c := range []struct{ policy, memory, want string }{
		{"cooperative", "20000B", "hold 19.5 KiB of the dataset's 39.1 KiB"},
		{"cooperative", "40000B", ""},
		{"naive", "20000B", ""},
	} {
		var w world
		n := w.node()
		r := open(t, n, message(0, 1, set("policy", c.policy), set("memory", c.memory)))
		warnings := strings.Join(r.Opened().Warnings, "; ")
		if !strings.Contains(warnings, c.want) || c.want == "" && warnings != "" {
			t.Errorf("%+v: warnings %q", c, warnings)
		}
		r.Close()
		w.close(t, n)
	}
}
