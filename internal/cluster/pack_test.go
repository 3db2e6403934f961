package cluster

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"testing"
)

// TestUnpackedMessagesAreLimited checks that no memory is taken for a message that claims to be
// longer than messages may be, or than what is left of all of them.
func TestUnpackedMessagesAreLimited(t *testing.T) {
	limited := func(u *unpacker, what string) {
		t.Helper()
		if m, err := u.next(); m != nil || !errors.As(err, new(*LimitError)) {
			t.Errorf("%s: %v, %v", what, m, err)
		}
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(binary.AppendUvarint(nil, maxMessage+1))
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	var u unpacker
	u.pack(packed.Bytes())
	limited(&u, "in a pack")
	u.messages(appendMessage(nil, []byte("longer"))[:4])
	limited(&u, "in a frame")
	u.messages(binary.AppendUvarint(nil, 1<<63))
	limited(&u, "of 8 EiB")
}
