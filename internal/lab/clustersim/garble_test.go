package clustersim

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// TestSamplesWithFlippedBitsAreFound: seeds draw scripts in which a sample from another node has a
// flipped bit, while the connection lasts, and its checksum does not match.
func TestSamplesWithFlippedBitsAreFound(t *testing.T) {
	dir, tried := t.TempDir(), 0
	for seed := uint64(0); tried < 80; seed++ {
		s := script.Generate(seed)
		if !slices.ContainsFunc(s.Events, func(e script.Event) bool { return e.Of > 0 }) {
			continue
		}
		tried++
		var log bytes.Buffer
		synctest.Test(t, func(t *testing.T) {
			out, err := Run(&s, filepath.Join(dir, strconv.FormatUint(seed, 10)),
				slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil || len(out.Errors) > 0 {
				t.Errorf("%s: %v, %v", asked.bySeed(seed), err, out.Errors)
			}
		})
		if strings.Contains(log.String(), "its checksum does not match") {
			return
		}
	}
	t.Errorf("no sample of %d scripts had a flipped bit", tried)
}
