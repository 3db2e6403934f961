package request

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// TestDifferencesAreAsTheUserWroteThem: sizes with their units, and a key that is not set.
func TestDifferencesAreAsTheUserWroteThem(t *testing.T) {
	resolved := func(arguments map[string]any) *config.Config {
		cfg, err := config.Resolve(config.Input{
			Arguments: arguments,
			Classes:   []store.Kind{memory.Kind(nil), file.Kind("0")},
		})
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	theirs := resolved(map[string]any{"memory": "1GB"})
	mine := resolved(map[string]any{"memory": "2GB", "cache_dir": "/nvme/x", "cache_size": "3GB"})
	want := "memory (1GB in that job, 2GB in this one), " +
		"cache_dir (not set in that job, /nvme/x in this one), " +
		"cache_size (auto in that job, 3GB in this one)"
	if got := Differences(theirs, mine); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := Differences(mine, mine); got != "" {
		t.Errorf("the same: %q", got)
	}
}

// TestOptionsOfDatasetsAreCompared, those that only one rank gives, too.
func TestOptionsOfDatasetsAreCompared(t *testing.T) {
	said := func(rank int, options option.Values) Said {
		m := &Open{Job: "j", Rank: rank, WorldSize: 2}
		m.Dataset.Options = options
		return Said{Open: m, Config: &config.Config{}, Order: &Order{}}
	}
	first := said(0, option.Values{"extensions": []string{".jpg"}, "fields": []string{"a", "b"}})
	for want, other := range map[string]option.Values{
		"extensions is [.png] on rank 1 and [.jpg] on rank 0": {
			"extensions": []string{".png"}, "fields": []string{"a", "b"},
		},
		"fields is not set on rank 1 and [a b] on rank 0": {"extensions": []string{".jpg"}},
		"zoom is 2 on rank 1 and not set on rank 0": {
			"extensions": []string{".jpg"}, "fields": []string{"a", "b"}, "zoom": 2,
		},
	} {
		if err := Compare(first, said(1, other), 0); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v\nwant %s", other, err, want)
		}
	}
	if err := Compare(first, said(1, first.Open.Dataset.Options), 0); err != nil {
		t.Errorf("the same: %v", err)
	}
}

// TestTransformsThatDifferAreNamed: lists may be long, and are equal but for an entry.
func TestTransformsThatDifferAreNamed(t *testing.T) {
	said := func(transforms string) Said {
		m := &Open{Job: "j", WorldSize: 1, Transforms: json.RawMessage(transforms)}
		return Said{Open: m, Config: &config.Config{}, Order: &Order{}}
	}
	first := said(`[{"name": "A"}, {"name": "B", "size": 2}]`)
	for other, want := range map[string]string{
		`[{"name":"A"},{"name":"B","size":3}]`: `transforms is {"name":"B","size":3} as number 2 ` +
			`in this job and {"name":"B","size":2} as number 2 in that one`,
		`[{"name": "A"}]`: `transforms is a list of 1 in this job and {"name":"B","size":2} as ` +
			`number 2 in that one`,
		`null`: `transforms is none in this job and [{"name":"A"},{"name":"B","size":2}] in that one`,
	} {
		if err := SameGroup("s", first, said(other), 0); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", other, err, want)
		}
	}
}

// TestAGroupNamesWhatTheUserGave: a job that does not shuffle has a seed of which its user does not
// know.
func TestAGroupNamesWhatTheUserGave(t *testing.T) {
	said := func(shuffle string, seed uint64) Said {
		m := &Open{Job: "j", WorldSize: 1, Stream: Stream{Shuffle: shuffle, Seed: &seed}}
		return Said{Open: m, Config: &config.Config{}, Order: &Order{}}
	}
	first := said("torch", 7)
	for key, other := range map[string]Said{
		"shuffle": said("sequential", 0), "seed": said("torch", 0), "": said("torch", 7),
	} {
		err := SameGroup("s", first, other, 7)
		if (err == nil) != (key == "") || err != nil && !strings.Contains(err.Error(), key+" is") {
			t.Errorf("%s: %v", key, err)
		}
	}
}
