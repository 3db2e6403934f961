package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
)

func TestLargestListsTheLargestFirst(t *testing.T) {
	quiet(t)
	dir := tree(t, 12) // sample i has 2 * (50 + i) bytes
	var text, asJSON bytes.Buffer
	must(t, runLargest(t.Context(), "folder", dir, false, &text),
		runLargest(t.Context(), "folder", dir, true, &asJSON))
	var got []sampleSize
	must(t, json.Unmarshal(asJSON.Bytes(), &got))
	if len(got) != 10 || got[0] != (sampleSize{"b/0011.jpg", 122}) || got[9].Bytes != 104 {
		t.Errorf("%+v", got)
	}
	first, _, _ := bytes.Cut(text.Bytes(), []byte("\n"))
	if string(first) != "         122  b/0011.jpg" || bytes.Count(text.Bytes(), []byte("\n")) != 10 {
		t.Errorf("%s", &text)
	}
}

func TestLargestRefusesWhatIsNoDataset(t *testing.T) {
	quiet(t)
	var out bytes.Buffer
	err := runLargest(t.Context(), "folder", t.TempDir(), false, &out)
	if input := (inputError{}); !errors.As(err, &input) || out.Len() > 0 {
		t.Errorf("%v, printed %q", err, &out)
	}
}
