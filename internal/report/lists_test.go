package report

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/remedy"
)

// TestEmptyListsAreNotNull: a report of a job without classes, or that has not begun, has lists
// that scripts can iterate over.
func TestEmptyListsAreNotNull(t *testing.T) {
	r := &Report{
		Settings:      Settings{Nodes: 1, Samples: 1, Bytes: 1},
		Ranks:         []RankReport{{}},
		Preprocessing: &Preprocessing{},
		Waiting:       &Waiting{},
		run:           &remedy.Run{Capacity: []int64{}},
		Plans:         Plans{Known: &model.Node{}},
	}
	assembling := &Report{Assembling: true}
	for _, v := range []any{
		r, *r, r.Summary(), *r.Summary(), assembling, assembling.Summary(),
		(&ClusterReport{}).Over(nil),
	} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "null") {
			t.Errorf("%T: %s", v, text)
		}
		var back map[string]any
		if err := json.Unmarshal(text, &back); err != nil || back["classes"] == nil {
			t.Errorf("%T: %v, classes %v", v, err, back["classes"])
		}
	}
}
