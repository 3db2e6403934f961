package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/lib/digest"
)

// golden returns the frames of docs/FORMATS.md, one of each kind.
func golden() map[string][]byte {
	frame := func(h Header, payload []byte) []byte { return AppendFrame(nil, h, payload) }
	requests := AppendRequest(nil,
		Request{Tag: 7, Sample: 1234567, Length: 112640, Most: 168960, Unpack: true})
	requests = AppendRequest(requests, Request{Tag: 8, Sample: 2, Length: 5})
	return map[string][]byte{
		"request": frame(Header{Kind: KindRequest}, requests),
		"cancel":  frame(Header{Kind: KindCancel}, []byte{7, 0, 0, 0}),
		"ping":    frame(Header{Kind: KindPing}, nil),
		"sample":  frame(Header{Kind: KindSample, Tag: 8, Sample: 2}, []byte("bytes")),
		"waited":  frame(Header{Kind: KindSample, Waited: 600, Tag: 8, Sample: 2}, []byte("bytes")),
		"failure": frame(Header{Kind: KindFailure, Code: CodeFailed, Tag: 7, Sample: 1234567},
			[]byte("no such file")),
		"form": frame(Header{Kind: KindForm, Code: 1, Tag: 7, Sample: 1234567}, []byte("a form")),
		"pong": frame(Header{Kind: KindPong}, nil),
	}
}

// TestFramesMatchGoldenFiles: the encoding does not change within a version.
func TestFramesMatchGoldenFiles(t *testing.T) {
	for name, b := range golden() {
		testkit.Compare(t, name+".hex", hex.Dump(b))
	}
}

// TestLengthsAreLimited: a header whose length is over the limit of its kind is invalid, in either
// direction.
func TestLengthsAreLimited(t *testing.T) {
	for k, limit := range map[Kind]int{
		KindRequest: RequestSize * MaxWindow, KindCancel: 4 * MaxWindow, KindPing: 0,
		KindSample: MaxSample, KindFailure: MaxMessage, KindPong: 0, KindForm: MaxSample,
	} {
		h := Header{Kind: k, Length: uint32(limit)}
		unit := map[Kind]uint32{KindRequest: RequestSize, KindCancel: 4}[k]
		if k == KindFailure || k == KindForm {
			h.Code = CodeFailed
		}
		var b [HeaderSize]byte
		h.Put(b[:], 0)
		if _, err := Parse(b[:], k >= KindSample); err != nil {
			t.Errorf("kind %d with %d bytes: %v", k, h.Length, err)
		}
		h.Length += max(unit, 1)
		h.Put(b[:], 0)
		if _, err := Parse(b[:], k >= KindSample); !errors.Is(err, ErrFrame) {
			t.Errorf("kind %d with %d bytes: %v", k, h.Length, err)
		}
	}
}

func FuzzHeader(f *testing.F) {
	for _, b := range golden() {
		f.Add(b[:HeaderSize])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < HeaderSize {
			return
		}
		for _, fromServer := range []bool{false, true} {
			h, err := Parse(b, fromServer)
			if err != nil {
				continue
			}
			var again [HeaderSize]byte
			h.Put(again[:], digest.Of(nil))
			if !bytes.Equal(again[:16], b[:16]) {
				t.Errorf("% x became % x", b, again)
			}
		}
	})
}

// FuzzRequest checks that a request is decoded to what is encoded to it, within the limits.
func FuzzRequest(f *testing.F) {
	for _, r := range []Request{
		{Tag: 7, Sample: 1234567, Length: 112640},
		{Most: 168960},
		{Most: 1, Unpack: true},
		{Unpack: true},
		{Sample: -1},
		{Length: MaxSample + 1},
		{Tag: MaxWindow},
	} {
		f.Add(AppendRequest(nil, r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < RequestSize {
			return
		}
		r, err := ParseRequest(b, MaxWindow)
		if err != nil {
			return
		}
		if again := AppendRequest(nil, r); !bytes.Equal(again, b[:RequestSize]) {
			t.Errorf("% x became % x", b, again)
		}
		if r.Tag >= MaxWindow || r.Sample < 0 || max(r.Length, r.Most) > MaxSample ||
			r.Unpack && r.Most == 0 {
			t.Errorf("%+v", r)
		}
	})
}
