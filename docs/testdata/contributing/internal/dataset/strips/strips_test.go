package strips

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/dataset/sourcetest"
)

func TestKeepsTheContractOfSources(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, samples []sourcetest.Sample) sourcetest.Fixture {
		dir := t.TempDir()
		for _, s := range samples { // by class
			name := filepath.Join(dir, s.Class+suffix)
			before, _ := os.ReadFile(name) // not there yet: empty
			data := binary.LittleEndian.AppendUint32(before, uint32(len(s.Data)))
			if err := os.WriteFile(name, append(data, s.Data...), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		source, err := Kind().Open(t.Context(), dir, dataset.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return sourcetest.Fixture{Source: source, Index: source.Index()}
	})
}
