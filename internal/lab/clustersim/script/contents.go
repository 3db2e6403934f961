package script

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// Size returns the size of a sample in bytes.
func (s *Script) Size(id int) int {
	if s.Transforms { // an array's shape is the same for all samples
		return s.Largest
	}
	return 1 + int(mix(s.Seed, uint64(id))%uint64(s.Largest))
}

// Bytes returns the size of the dataset in bytes.
func (s *Script) Bytes() (sum int) {
	for id := range s.Samples {
		sum += s.Size(id)
	}
	return sum
}

// Content returns the bytes of a sample as a node sees them.
func (s *Script) Content(node, id int) []byte {
	data := s.fresh(id)
	if node%2 == 1 && slices.Contains(s.Stale, id) {
		data[0] ^= 1
	}
	return data
}

func (s *Script) fresh(id int) []byte {
	data := make([]byte, s.Size(id))
	for i := range data {
		if i%8 == 0 {
			word := mix(uint64(id)+1, uint64(i))
			for k := i; k < min(i+8, len(data)); k++ {
				data[k] = byte(word >> (8 * (k - i)))
			}
		}
	}
	return data
}

// Delivered returns what is due for a sample on a node: its bytes, or what the transforms make of
// them.
func (s *Script) Delivered(node, id int) []byte {
	return s.Transformed(s.Content(node, id))
}

// Transformed returns a sample's bytes, or, if there are transforms, what they make of these: the
// float32 of half of each byte less one.
func (s *Script) Transformed(data []byte) []byte {
	if !s.Transforms {
		return data
	}
	out := make([]byte, 0, 4*len(data))
	for _, b := range data {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(0.5*(float32(b)-1)))
	}
	return out
}

// LargestDelivered returns how many bytes Delivered returns at most.
func (s *Script) LargestDelivered() int {
	if s.Transforms {
		return 4 * s.Largest
	}
	return s.Largest
}

// Label returns the label of a sample: that of one of three classes.
func (s *Script) Label(id int) int { return 3 * id / s.Samples }

// Positions returns how many samples an epoch has before it is padded or cut.
func (s *Script) Positions() int { return cmp.Or(s.Mix, s.Subset, s.Samples) }

// MixWeights are the weights of the datasets of a mix.
var MixWeights = [2]int{3, 2}

// MixSizes returns how many samples each dataset of a mix has.
func (s *Script) MixSizes() [2]int {
	first := max(s.Samples/3, 1)
	return [2]int{first, s.Samples - first}
}

// Chosen returns the samples of the subset in their order; nil: all are read.
func (s *Script) Chosen() []int {
	if s.Subset == 0 {
		return nil
	}
	return s.shuffled(1)[:s.Subset]
}

// Given returns the order of an epoch that processes give.
func (s *Script) Given(epoch int) []int { return s.shuffled(uint64(epoch) + 2) }

// shuffled returns all samples in an order that a number determines.
func (s *Script) shuffled(number uint64) []int {
	ids := make([]int, s.Samples)
	for id := range ids {
		ids[id] = id
	}
	slices.SortFunc(ids, func(a, b int) int {
		return cmp.Compare(mix(s.Seed+number, uint64(a)), mix(s.Seed+number, uint64(b)))
	})
	return ids
}

// Part returns the samples of an epoch that a rank of so many gives. All parts are as long as the
// longest: the first samples are repeated.
func (s *Script) Part(epoch, rank, ranks int) (ids []int) {
	order := s.Given(epoch)
	for at := rank; at-rank < len(order); at += ranks {
		ids = append(ids, order[at%len(order)])
	}
	return ids
}

// Caches returns the sizes in bytes of a node's caches in memory and on disk.
func (s *Script) Caches(node int) (memory, disk int) {
	if s.Uneven && node%2 == 1 {
		return s.Memory / 2, (s.Disk + 1) / 2
	}
	return s.Memory, s.Disk
}

// CachesNothing reports whether the policy keeps no samples.
func (s *Script) CachesNothing() bool {
	p, err := policies.ByName(s.Policy)
	return err == nil && p.About().Copies == plan.NoCopies
}

// Notes reports whether processes return memory by notes in it, which are found when the daemon
// waits for memory.
func (s *Script) Notes() bool { return s.Seed%2 == 0 }

// Roomy reports whether in each launch every node has room for more than its part of the dataset.
func (s *Script) Roomy() bool {
	for _, l := range s.Launches {
		memory, disk := s.Caches(1)
		if max(memory, disk) < s.Bytes()/l.Nodes+4*s.Largest {
			return false
		}
	}
	return true
}

// ReadsAhead reports whether the policy reads batches before they are asked for.
func (s *Script) ReadsAhead() bool { return s.Policy != policies.Naive{}.Name() }

// always returns the policies that run every job, in the order that was asked for.
func always() (names []string) {
	for _, p := range policies.Engine() {
		if _, orders := p.(plan.Orderer); !orders && p.About().Needs != plan.FirstClass {
			names = append(names, p.Name())
		}
	}
	return names
}

// inMemory returns the policies that keep samples in memory alone, in the order that was asked for.
// They run a job if memory on all nodes holds the dataset.
func inMemory() []string {
	return []string{
		policies.DeepIO{}.Name(), policies.LBANN{}.Name(), policies.LBANN{Preloading: true}.Name(),
	}
}

// OtherPolicy returns the name of another policy; "" is the default.
func (s *Script) OtherPolicy() string {
	if other := (policies.Naive{}).Name(); s.Policy != other {
		return other
	}
	return ""
}

// mix is SplitMix64's finaliser, of two numbers.
func mix(a, b uint64) uint64 {
	z := a*0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
