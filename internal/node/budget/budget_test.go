package budget

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/store"
)

// TestJobThatNeedsTooManyFilesIsRefused checks that a job whose reads would exceed the limit of
// open files is refused when it starts.
func TestJobThatNeedsTooManyFilesIsRefused(t *testing.T) {
	_, err := Files(1 << 40)
	var e *failure.Error
	if !errors.As(err, &e) || e.Kind != failure.Limit ||
		e.Details["need"].(int64) <= e.Details["limit"].(int64) ||
		!strings.Contains(e.Message, "RLIMIT_NOFILE") {
		t.Errorf("%v", err)
	}
	if most, err := Files(4); err != nil || most < 4 {
		t.Errorf("4 threads: %v", err)
	}
}

// TestUnopenedClassesCountAsClaimed checks that storage classes another job is about to open count
// as claimed until they are open, and that a rank's buffer counts less once it is resident.
func TestUnopenedClassesCountAsClaimed(t *testing.T) {
	available := int64(1135)
	b := &Budget{
		Available: func() (int64, error) { return available, nil },
		Promised:  func() int64 { return 7 },
	}
	cfg := &config.Config{Origins: map[string]config.Origin{"memory": {Source: "argument"}}}
	other, _, err := b.Admit(Demand{Class: 100, Orders: 8, Buffer: 10, Ranks: 2}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	mine := Demand{Class: 1000}
	if got := b.Outstanding(); got != 28 {
		t.Errorf("%d bytes are outstanding, want 28", got)
	}
	if c, _, err := b.Admit(mine, cfg); err != nil {
		t.Errorf("a job that fits together with the other's classes: %v", err)
	} else {
		c.Drop()
	}
	available--
	if _, _, err := b.Admit(mine, cfg); err == nil ||
		failure.Of(err).Details["need"] != int64(1135) {
		t.Errorf("a job that does not fit together with the other's classes: %v", err)
	}
	other.Opened()
	available = 1035
	c, _, err := b.Admit(mine, cfg)
	if err != nil {
		t.Errorf("the other's classes are open and counted as promised: %v", err)
	}
	c.Drop()
	other.Drop()
	if got := b.Outstanding(); got != 0 {
		t.Errorf("%d bytes are outstanding without any job", got)
	}
}

// TestJobsAreAdmittedOneByOne checks that no job is admitted while another one is checked, and that
// an admitted job keeps its claim.
func TestJobsAreAdmittedOneByOne(t *testing.T) {
	var b Budget
	checked := 0
	b.Available = func() (int64, error) {
		checked++
		if b.admission.TryLock() {
			t.Error("other jobs can be admitted at the same time")
			b.admission.Unlock()
		}
		return 15, nil
	}
	if _, _, err := b.Admit(Demand{Buffer: 10, Ranks: 1}, &config.Config{}); err != nil {
		t.Error(err)
	}
	for range 2 { // a refused job claims nothing
		if _, _, err := b.Admit(Demand{Buffer: 10, Ranks: 1}, &config.Config{}); err == nil ||
			failure.Of(err).Details["need"] != int64(20) {
			t.Errorf("a second job: %v", err)
		}
	}
	if checked != 3 {
		t.Errorf("the memory was measured %d times", checked)
	}
}

// TestDerivedClassShrinksBeforeJobIsRefused checks that a derived memory class shrinks to 1 byte,
// which holds nothing, before a job is refused.
func TestDerivedClassShrinksBeforeJobIsRefused(t *testing.T) {
	available := int64(11)
	b := &Budget{Available: func() (int64, error) { return available, nil }}
	d := Demand{Class: 100, Buffer: 10, Ranks: 1}
	cfg := &config.Config{
		Memory: 100,
		StorageClasses: []config.StorageClass{{
			Kind: "memory", Memory: true, Options: option.Values{store.CapacityKey: int64(100)},
		}},
	}
	c, smaller, err := b.Admit(d, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if smaller.Memory != 1 || smaller.StorageClasses[0].Capacity() != 1 || cfg.Memory != 100 ||
		cfg.StorageClasses[0].Capacity() != 100 {
		t.Errorf("%+v became %+v", cfg, smaller)
	}
	c.Drop()
	available = 5
	if _, _, err := b.Admit(d, cfg); err == nil || failure.Of(err).Details["need"] != int64(11) {
		t.Errorf("the buffer alone is too large: %v", err)
	}
}

// TestAddSaturates checks that sums of sizes that users set saturate.
func TestAddSaturates(t *testing.T) {
	if got := Add(math.MaxInt64-1, 2); got != math.MaxInt64 {
		t.Errorf("%d", got)
	}
}
