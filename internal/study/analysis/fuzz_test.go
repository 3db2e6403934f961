package analysis

import (
	"encoding/json"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model/remedy"
)

// FuzzDecode: what is read is valid, and what follows from it can be said as JSON, and read again.
func FuzzDecode(f *testing.F) {
	for _, change := range []func(*Measured){
		func(*Measured) {},
		func(m *Measured) { m.Loader.Name, m.Loader.Workers = Torch, 0 },
		func(m *Measured) {
			m.Nodes = 3
			m.Ranks = 6
			m.Preparation = nil
		},
	} {
		m := job()
		m.Dataset = Dataset{Samples: 500, MB: 50}
		change(m)
		text, err := json.Marshal(Report{Measured: m})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Decode(data)
		if err != nil {
			return
		}
		if m.Dataset.Samples > 1000 || m.Nodes > 8 || m.Batch > 1000 || m.Ranks > 8 {
			return // takes long
		}
		r, err := Analyze(t.Context(), m, Options{Changes: []remedy.Change{
			{Key: remedy.Memory, Amount: 1e9}, {Key: remedy.ComputeSpeed, Times: 2},
		}})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(text); err != nil {
			t.Fatal(err)
		}
		if len(m.Environment()) == 0 {
			t.Error("no environment")
		}
	})
}
