package protocol

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTextsAreEscapedAndDetailsAreExact checks that texts of messages cannot control a terminal.
func TestTextsAreEscapedAndDetailsAreExact(t *testing.T) {
	for _, c := range []struct {
		message any
		want    string
	}{
		{&ErrorMessage{
			Kind:    KindSample,
			Message: "a\x1b[1m\nb",
			Details: map[string]any{"path": "\x1b"},
		}, `{"kind":"sample","message":"a\\x1b[1m\nb","details":{"path":"\u001b"}}`},
		{
			ReplyMessage{ID: 1, Error: &ErrorMessage{Kind: KindBusy, Message: "\x07"}},
			`{"id":1,"error":{"kind":"busy","message":"\\a"}}`,
		},
		{
			ProgressMessage{What: "scanning \x1b", Done: 7},
			`{"what":"scanning \\x1b","done":7,"total":0}`,
		},
	} {
		got, err := json.Marshal(c.message)
		if diff := cmp.Diff(c.want, string(got)); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
}

func TestWarningsAreEscapedAndAlwaysAList(t *testing.T) {
	for _, c := range []struct {
		warnings []string
		want     string
	}{{[]string{"a\x1b", "b"}, `["a\\x1b","b"]`}, {nil, "[]"}} {
		text, err := json.Marshal(OpenedMessage{Warnings: c.warnings})
		var got struct {
			Warnings json.RawMessage `json:"warnings"`
		}
		if err = errors.Join(err, json.Unmarshal(text, &got)); err != nil ||
			string(got.Warnings) != c.want {
			t.Errorf("%q: %s, %v; want %s", c.warnings, got.Warnings, err, c.want)
		}
	}
}

// TestNumbersOutOfRangeAreConfigErrors checks also that the error names the key.
func TestNumbersOutOfRangeAreConfigErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"stream": {"global_batch": 100000000000000000000}}`: "batch_size, over all ranks, is " +
			"100000000000000000000; allowed: a whole number up to 9223372036854775807",
		`{"stream": {"epochs": -100000000000000000000}}`: "epochs is -100000000000000000000; " +
			"allowed: a whole number up to 9223372036854775807",
	} {
		var refused *ErrorMessage
		if err := DecodeJSON([]byte(text), new(OpenMessage)); !errors.As(err, &refused) ||
			refused.Kind != KindConfig || refused.Message != want {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	err := DecodeJSON([]byte(`{"stream": {"epochs": "two"}}`), new(OpenMessage))
	if !errors.Is(err, ErrProtocol) {
		t.Errorf("a text: %v", err)
	}
}
