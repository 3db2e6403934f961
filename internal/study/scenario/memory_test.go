package scenario_test

import (
	"strings"
	"testing"
)

func TestFits(t *testing.T) {
	s, err := read(t, small, "storage_class.0.capacity=0.6")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Fits(); err == nil || !strings.Contains(err.Error(), "the largest sample has") {
		t.Errorf("got %v", err)
	}
	if s, _ = read(t, small); s.Fits() != nil {
		t.Error(s.Fits())
	}
}

// TestRunBytes: what is refused for want of memory depends on what a policy plans: 1024 nodes that
// each keep what they read need far more than 1024 nodes that keep each sample once.
func TestRunBytes(t *testing.T) {
	need := func(policy string, set ...string) int64 {
		s, err := read(t, small, append([]string{
			"nodes=1024", "global_batch_size=1024", "samples=14200000", "epochs=90",
			"storage_class.ram.capacity=1 TB", "profile=model", `policies=["` + policy + `"]`,
		}, set...)...)
		if err != nil {
			t.Fatal(err)
		}
		return s.RunBytes(false)
	}
	const gib = 1 << 30
	if got := need("cooperative"); got > 4*gib {
		t.Errorf("cooperative needs %d bytes, want less than 4 GiB", got)
	}
	if got := need("frequency"); got < 20*gib {
		t.Errorf("frequency needs %d bytes for more than a billion copies", got)
	}
	if counts, not := need("cooperative"), need("locality"); counts < not+gib {
		t.Errorf("a table of which node reads what takes more than %d bytes, of %d", counts-not, counts)
	}
	if shards, parts := need("sharded"), need("locality"); shards < 2*parts {
		t.Errorf("the thesis's shards go on with the samples of other nodes: %d bytes, and %d "+
			"where each sample lies once", shards, parts)
	}
	if slow, fast := need("cooperative", "network=10"), need("cooperative"); slow < 4*fast {
		t.Errorf("where the network is slow, nodes keep copies: %d bytes, and %d where it is fast",
			slow, fast)
	}
	if model, thesis := need("naive"),
		need("naive", "profile=thesis"); thesis < model+13*14200000*90 {
		t.Errorf("13 bytes per access: %d bytes in profile thesis, %d in model", thesis, model)
	}
}
