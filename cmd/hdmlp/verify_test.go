package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// stateFile writes the state of a rank alone after its first epoch.
func stateFile(t *testing.T) string {
	t.Helper()
	stream, err := access.New(access.Spec{Samples: 9, Seed: 1<<63 + 1, GlobalBatch: 4, WorldSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"checkpoint": [{"version": 1, "random": 2, "epoch": 1, "step": 0,
		"steps": 3, "fingerprint": "%032x", "samples": 9, "seed": %d, "subset": null, "order": null,
		"shuffle": "torch", "scheme": "strided", "tail": "pad", "drop_last": false,
		"global_batch": 4, "delivered": [{"rank": 0, "world_size": 1, "from": [0, 0], "to": [1, 0],
		"samples": 9, "sum": "%016x", "id": "00000000000000a1"}]}]}`,
		0, uint64(1<<63+1), stream.Epoch(0).Audit(0))
	path := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAlteredStatesAreWrongInput changes each key of a state, and leaves each out.
func TestAlteredStatesAreWrongInput(t *testing.T) {
	path := stateFile(t)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole := string(data)
	run := func(text string) error {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return runVerify([]string{path}, "", "", false, nil, io.Discard)
	}
	refused := func(name, text, want string) {
		t.Helper()
		var input inputError
		err := run(text)
		if !errors.As(err, &input) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, and not exit status 2 with %q", name, err, want)
		}
	}
	if err := run(whole); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"from": [0, 0]`, `"from": [0]`, "from has 1 number"},
		{`"from": [0, 0]`, `"from": []`, "from has 0 numbers"},
		{`"from": [0, 0]`, `"from": [0, 0, 0]`, "from has 3 numbers"},
		{`"from": [0, 0]`, `"from": ["0", 0]`, "from is a string: the state was changed; expected"},
		{`"from": [0, 0]`, `"from": null`, "delivered[0].from is null"},
		{`"from": [0, 0]`, `"from": [1, 0]`, "expected a to after from"},
		{`"to": [1, 0]`, `"to": [1000000000000000, 0]`, "epoch 1000000000000000, out of range"},
		{`"to": [1, 0]`, `"to": [4000000000, 0]`, "delivered ends at epoch 4000000000, step 0"},
		{`"epoch": 1`, `"epoch": 5`, "epoch is 5 and step is 0, and delivered ends at epoch 1, step 0"},
		{`"step": 0`, `"step": 2`, "epoch is 1 and step is 2, and delivered ends"},
		{`"seed": 9223372036854775809`, `"seed": null`, "seed is null"},
		{`"seed": 9223372036854775809`, `"seed": -1`, "seed is a number -1"},
		{`"seed": 9223372036854775809`, `"Seed": 1`, "seed is missing"},
		{`"seed": 9223372036854775809`, `"seed": 1, "seed": 2`, "has the key seed twice"},
		{`"random": 2`, `"random": 1`, "random is 1, and this release reads 2"},
		{`"steps": 3`, `"steps": 0`, "steps is 0"},
		{`"steps": 3`, `"steps": []`, "steps is an array"},
		{`"tail": "pad"`, `"tail": true`, "tail is a bool: the state was changed; expected pad"},
		{`"order": null`, `"order": "x"`, "a policy made an order"},
		{`"id": "0`, `"id": "x`, "id is"},
		{`"delivered": [`, `"delivered": [7, `, "delivered[0] is no object"},
		{`"fingerprint": "0`, `"fingerprint": "`, "expected 32 hexadecimal digits"},
		{`"sum": "`, `"dropped": -1, "sum": "`, "dropped is -1"},
		{`"sum": "`, `"dropped": "1", "sum": "`, "dropped is a string"},
		{`"samples": 9, "seed"`, `"samples": NaN, "seed"`, "Samples is 0"},
		{`"subset": null`, `"subset": null, "mix": {"sizes": [9]}`, "mix.weights is missing"},
	} {
		text := strings.Replace(whole, c.old, c.new, 1)
		if text == whole {
			t.Errorf("there is no %s", c.old)
		}
		refused(c.new, text, c.want)
	}
	for _, keys := range [][]stateKey{stateKeys, partKeys} {
		for _, k := range keys {
			if text := strings.Replace(whole, `"`+k.key+`":`, `"other":`, 1); !k.absent {
				refused("without "+k.key, text, k.key)
			}
		}
	}
	begin := strings.Index(whole, `{"rank"`)
	part := whole[begin : strings.Index(whole, `}`)+1]
	refused("a part twice", strings.Replace(whole, part, part+", "+part, 1), "the id of delivered[0]")
	refused("two values", whole+whole, "after the JSON value, which ends at byte")
	refused("garbage", whole+"x", "after the JSON value")
	refused("depth", strings.Repeat("[", 200_000), "not JSON")
}

// TestASecondPassIsARepetition as of a loop that forgets set_epoch.
func TestASecondPassIsARepetition(t *testing.T) {
	path := stateFile(t)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole := string(data)
	begin := strings.Index(whole, `{"rank"`)
	part := whole[begin : strings.Index(whole, `}`)+1]
	text := part
	for _, id := range []string{"a2", "a3"} {
		text += ", " + strings.Replace(part, "a1", id, 1)
	}
	whole = strings.Replace(whole, part, text, 1)
	if err := os.WriteFile(path, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = runVerify([]string{path}, "", "", false, nil, &out)
	if !errors.Is(err, errNotProved) ||
		!strings.Contains(out.String(), "twice: epoch 0: samples came 3 times") {
		t.Errorf("%v: %s", err, &out)
	}
}

// TestCheckpointsAreReadAsPythonWritesThem with numbers that JSON does not have, and states of
// several loaders.
func TestCheckpointsAreReadAsPythonWritesThem(t *testing.T) {
	path := stateFile(t)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	state := strings.TrimSuffix(strings.TrimPrefix(string(data), `{"checkpoint": [`), `]}`)
	other := strings.Replace(state, `"fingerprint": "0`, `"fingerprint": "1`, 1)
	for _, c := range []struct{ text, key, want string }{
		{`{"a": -Infinity, "b": [NaN, Infinity], "c\\\"NaN": "\\\\", "x": ` + state + `}`, "", ""},
		{`{"x": NaNN, "y": ` + state + `}`, "", "not JSON"},
		{
			`{"train": ` + state + `, "other": ` + other + `}`, "",
			`--key (states are under "other" and "train")`,
		},
		{`{"m": {"train": ` + state + `}, "other": ` + other + `}`, "train", ""},
		{`{"m": {"train": ` + state + `}, "other": ` + other + `}`, "m", ""},
		{
			`{"m": {"train": ` + state + `}}`, "other",
			`under --key other in it; states are under ["m.train"]`,
		},
		{`{"train": 1}`, "train", "there is no state of an HDMLP loader"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := runVerify([]string{path}, "", c.key, false, nil, io.Discard)
		if c.want == "" && err != nil || c.want != "" &&
			(err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, and not %q", c.text[:20], err, c.want)
		}
	}
}

// TestWhatAStateDroppedIsNotProved although all that it has is as the order has it.
func TestWhatAStateDroppedIsNotProved(t *testing.T) {
	path := stateFile(t)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(data), `"sum":`, `"dropped": 3, "sum":`, 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, asJSON := range []bool{false, true} {
		var out strings.Builder
		err = runVerify([]string{path}, "", "", asJSON, nil, &out)
		want := "before it was given epoch 0: a state keeps the latest 256 passes, and 3 more are gone"
		if asJSON {
			want = `"dropped": 3`
		}
		if !errors.Is(err, errNotProved) || !strings.Contains(out.String(), want) {
			t.Errorf("%v: %s", err, &out)
		}
	}
}
