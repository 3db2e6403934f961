package failure

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/engine/staging"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// TestOfKeepsKindAndDetails checks this for errors at any depth of wrapping.
func TestOfKeepsKindAndDetails(t *testing.T) {
	limits := map[string]any{"need": int64(3), "limit": int64(2)}
	both := []error{&config.Problem{}, &config.LimitError{Need: 3, Limit: 2}}
	for _, c := range []struct {
		err     error
		kind    Kind
		details map[string]any
	}{
		{&Error{Kind: Busy, Message: "m"}, Busy, nil},
		{
			&source.SampleError{ID: 5, Path: "/5", Kind: source.ErrMissing}, Sample,
			map[string]any{"sample": 5, "path": "/5"},
		},
		{
			&cache.ConflictError{Sample: 5, Path: "/5", Node: 2, Mine: 1, Theirs: 2}, Mismatch,
			map[string]any{
				"key": "digest of a sample", "sample": 5, "path": "/5", "node": 2,
				"mine":   "00000001",
				"theirs": "00000002",
			},
		},
		{
			&cache.VerifyError{Sample: 5, Path: "/5"}, Audit,
			map[string]any{"sample": 5, "path": "/5"},
		},
		{&store.UnsafeError{Path: "/c", Reason: "is not ours"}, Config, nil},
		{
			&source.Error{Path: "/d", Kind: source.ErrNoDirectory}, Dataset,
			map[string]any{"path": "/d"},
		},
		{&store.LimitError{Need: 3, Limit: 2}, Limit, limits},
		{&staging.LimitError{Need: 3, Limit: 2, Err: syscall.EMFILE}, Limit, limits},
		{errors.Join(both[1]), Limit, limits},
		{errors.Join(both...), Config, nil},
		{syscall.ENOMEM, Limit, nil},
		{errors.New("unknown"), Internal, nil},
	} {
		errs := []error{c.err}
		if _, joined := c.err.(interface{ Unwrap() []error }); !joined {
			errs = append(errs, fmt.Errorf("open it: %w", c.err))
		}
		for _, err := range errs {
			m := Of(err)
			if diff := cmp.Diff(c.details, m.Details); m.Kind != c.kind || diff != "" {
				t.Errorf("%v: kind %s, want %s; details %s", err, m.Kind, c.kind, diff)
			}
			if m.Message == "" {
				t.Errorf("%v: no message", err)
			}
		}
	}
}

// TestErrorsOfSamplesSayWhatToDo: which depends on what is wrong with the sample.
func TestErrorsOfSamplesSayWhatToDo(t *testing.T) {
	for kind, want := range map[error]string{
		source.ErrMissing: `restore the file, or leave such samples out with on_error = "skip" ` +
			`(an argument of loaders, a key of the configuration file, or HDMLP_ON_ERROR=skip)`,
		source.ErrUnreadable:  "permission",
		source.ErrChanged:     "start the job again",
		source.ErrEmpty:       "repair or remove the file",
		source.ErrContent:     "change the transforms",
		source.ErrUnavailable: "raise source_timeout",
	} {
		message := Of(&source.SampleError{ID: 5, Path: "/5", Kind: kind}).Message
		if !strings.Contains(message, want) ||
			!strings.HasPrefix(message, "sample 5 (/5): "+kind.Error()) {
			t.Errorf("%q; want %q", message, want)
		}
	}
}

// TestFailureSurvivesEncoding checks that a failure is the same after encoding and decoding, except
// that control characters in its text are escaped.
func TestFailureSurvivesEncoding(t *testing.T) {
	text, err := json.Marshal(Error{
		Kind:    Sample,
		Message: "a\x1b",
		Details: map[string]any{"path": "\x1b"},
	})
	var got Error
	if err = errors.Join(err, json.Unmarshal(text, &got)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Error{
		Kind:    Sample,
		Message: `a\x1b`,
		Details: map[string]any{"path": "\x1b"},
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestConstructorsSetKindAndDetails(t *testing.T) {
	for _, c := range []struct{ got, want error }{
		{Input("rank %d", 3), &Error{Kind: Config, Message: "rank 3"}},
		{
			Over("too much", 3, 2),
			&Error{
				Kind:    Limit,
				Message: "too much",
				Details: map[string]any{"need": int64(3), "limit": int64(2)},
			},
		},
		{
			Differs("seed", 1, 2, map[string]any{"node": 7}, "seed %d", 1),
			&Error{
				Kind:    Mismatch,
				Message: "seed 1",
				Details: map[string]any{"key": "seed", "mine": 1, "theirs": 2, "node": 7},
			},
		},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Error(diff)
		}
	}
	known := Input("rank 3").(*Error)
	Of(known).Message = "changed"
	if known.Message != "rank 3" {
		t.Error("the result of Of is shared with its argument")
	}
}
