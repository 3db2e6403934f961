package remote

import (
	"net/http"
	"testing"
)

// FuzzAnswerOf checks that what is taken for an answer is where it was asked for, or says where it
// is.
func FuzzAnswerOf(f *testing.F) {
	for _, s := range []string{
		"bytes 0-2/3", "bytes 5-4/3", "bytes 0-9223372036854775807/9223372036854775807", "bytes */3",
		"",
	} {
		f.Add(206, s, int64(3), int64(0), int64(3))
	}
	f.Add(200, "", int64(10), int64(0), int64(10))
	f.Fuzz(func(t *testing.T, status int, span string, length, offset, n int64) {
		if offset < 0 || n <= 0 || length < -1 {
			return
		}
		a, err := AnswerOf(status, http.Header{"Content-Range": {span}}, length, offset, n)
		if err != nil {
			return
		}
		if a.Offset < 0 || a.Length > a.Size || a.Length >= 0 && a.Offset > a.Size-a.Length {
			t.Errorf("%+v of %q", a, span)
		}
	})
}
