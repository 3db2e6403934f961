package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"

	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/source"
)

const (
	maxState = 1 << 32 // bytes of a state or a list of IDs
	// mostEpochs is how many epochs are searched for a sample's first access: of those that a job
	// without its last batches leaves out, hardly one is left after some epochs.
	mostEpochs = 64
)

// orderLike returns the order of the samples that a file says: that in which a job of this state
// needs them first or, of a list of IDs, the list's. Samples that do not come up are last, by ID.
func orderLike(path string, x *source.Index) ([]int32, error) {
	data, err := files.Read(path, maxState)
	if err != nil {
		return nil, badInput("--like: %w", err)
	}
	order := newOrder(x.Len())
	if data = bytes.TrimSpace(data); bytes.HasPrefix(data, []byte("[")) {
		err = order.listed(data)
	} else {
		err = order.ofState(data, x)
	}
	if err != nil {
		return nil, badInput("--like %s: %w", human.Name(path), err)
	}
	for id := range x.Len() {
		order.add(int32(id))
	}
	return order.list, nil
}

// order collects samples, each once.
type order struct {
	list []int32
	has  []bool
}

func newOrder(samples int) *order {
	return &order{list: make([]int32, 0, samples), has: make([]bool, samples)}
}

func (o *order) add(id int32) {
	if !o.has[id] {
		o.has[id] = true
		o.list = append(o.list, id)
	}
}

// listed adds the samples of a JSON list of IDs.
func (o *order) listed(data []byte) error {
	var ids []int64
	if err := json.Unmarshal(data, &ids); err != nil {
		return fmt.Errorf("it is no list of IDs: %w", err)
	}
	for i, id := range ids {
		if id < 0 || id >= int64(len(o.has)) {
			return fmt.Errorf("entry %d is %d; the dataset's IDs are 0 to %d", i, id, len(o.has)-1)
		}
		o.add(int32(id))
	}
	return nil
}

// ofState adds the samples in the order in which a job of this state needs them first.
func (o *order) ofState(data []byte, x *source.Index) error {
	var s loaderState
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("it is neither a loader's state nor a list of IDs as JSON; write one in "+
			"Python with json.dump(loader.state_dict(), file), torch.load giving what torch.save "+
			"wrote (%v)", err)
	}
	fingerprint := x.Fingerprint()
	switch mine := hex.EncodeToString(fingerprint[:]); {
	case s.Version != 1:
		return fmt.Errorf("it is no state of an HDMLP loader: its version is %d, and not 1; of a "+
			"checkpoint, write only what loader.state_dict() returned", s.Version)
	case s.Kind != "":
		return fmt.Errorf("its order was drawn by a sampler, and does not follow from the state: " +
			"write the IDs as a list instead, with json.dump(list(sampler), file)")
	case s.Subset != nil:
		return fmt.Errorf("its job reads a part of the dataset, of which the state has only a hash: " +
			"write the IDs in the order of the job as a list instead")
	case s.Mix != nil:
		return fmt.Errorf("its job mixes several datasets, of which this is one at most: write its " +
			"own IDs in the order of the job as a list instead")
	case s.Fingerprint != mine:
		return fmt.Errorf("it is of another dataset or another version of it: its fingerprint is "+
			"%s, and that of the dataset %s; give the dataset of the job, with the options that it "+
			"was opened with (--extensions, --option)", human.Text(s.Fingerprint), mine)
	case s.Epoch < 0 || s.Epoch > math.MaxInt32 || s.Step < 0:
		return fmt.Errorf("epoch %d, step %d: out of range", s.Epoch, s.Step)
	}
	stream, err := access.New(s.spec())
	if err != nil {
		return fmt.Errorf("its job cannot be: %w", err)
	}
	var batch []int32
	for e := s.Epoch; e < s.Epoch+mostEpochs && len(o.list) < len(o.has); e++ {
		epoch := stream.Epoch(e)
		first := 0
		if e == s.Epoch {
			first = s.Step
		}
		for step := first; step < stream.Steps(); step++ {
			batch = epoch.Global(batch[:0], step)
			for _, id := range batch {
				o.add(id)
			}
		}
	}
	return nil
}
